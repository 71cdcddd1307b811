//! pip of three ages, and uv.

use std::path::{Path, PathBuf};

use crate::{
    client::{get, get_with},
    index::{Index, Reply},
    managers::{Ran, found, run},
    packages::{Style, Wheel, pip_pages},
    served::Served,
};

struct Installer {
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
}

/// Returns the installers that this machine has.
fn installers() -> Vec<Installer> {
    let pip = &["-m", "pip", "--disable-pip-version-check", "install", "--no-cache-dir"][..];
    let uv = &["pip", "install", "--no-cache", "--python", "/usr/bin/python3"][..];
    [
        ("pip of the host", "/usr/bin/python3", pip),
        ("pip without JSON", "old/bin/python", pip),
        ("the newest pip", "new/bin/python", pip),
        ("uv", "new/bin/uv", uv),
    ]
    .into_iter()
    .filter_map(|(name, program, arguments)| Some(Installer { name, program: found(program)?, arguments }))
    .collect()
}

impl Installer {
    async fn install(&self, served: &Served, home: &Path, package: &str) -> Ran {
        let index = served.url("/pip/simple/");
        let target = home.join("target");
        let mut arguments = self.arguments.to_vec();
        arguments.extend(["--index-url", &index, "--target", target.to_str().unwrap(), package]);
        run(home, &self.program, &arguments).await
    }
}

fn wheels() -> Vec<Wheel> {
    vec![Wheel::new("alpha", "1.0", &["beta>=1"]), Wheel::new("beta", "1.5", &[])]
}

async fn installs_twice(style: Style) {
    for installer in installers() {
        let index = Index::of(pip_pages(style, &wheels())).await;
        let served = Served::before(&index).await;

        let first = tempfile::tempdir().unwrap();
        installer.install(&served, first.path(), "Alpha").await.ok();
        for (module, version) in [("alpha", "1.0"), ("beta", "1.5")] {
            let text =
                std::fs::read_to_string(first.path().join("target").join(format!("{module}.py"))).unwrap();
            assert_eq!(text, format!("VERSION = {version:?}\n"), "{}", installer.name);
        }
        let asked = index.paths();
        let again: Vec<_> =
            asked.iter().filter(|path| asked.iter().filter(|other| other == path).count() > 1).collect();
        assert!(again.is_empty(), "{}: asked twice for {again:?}", installer.name);

        // The point of it all: the second install needs no index.
        let _away = index.stop().await;
        let before = served.gateway.stats();
        let second = tempfile::tempdir().unwrap();
        installer.install(&served, second.path(), "alpha").await.ok();
        assert!(second.path().join("target/beta.py").exists(), "{}", installer.name);
        let after = served.gateway.stats();
        assert_eq!(after.upstream_requests, before.upstream_requests, "{}", installer.name);
        assert!(after.hits > before.hits && after.bytes_served > before.bytes_served);
        assert_eq!((after.errors, after.last_error), (0, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_installer_installs_from_a_json_index_and_then_without_it() {
    installs_twice(Style::Json).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_installer_installs_from_an_html_index_and_then_without_it() {
    installs_twice(Style::Html).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_installer_installs_from_a_mere_listing_and_then_without_it() {
    installs_twice(Style::Listing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_installer_takes_a_file_that_was_tampered_with() {
    let mut pages = pip_pages(Style::Html, &[Wheel::new("alpha", "1.0", &[])]);
    let file = pages.iter_mut().find(|(path, _)| path.ends_with(".whl")).unwrap();
    file.1 = Reply::file(Wheel::new("alpha", "6.6", &[]).bytes);
    let index = Index::of(pages).await;
    let served = Served::before(&index).await;
    let pages = {
        get(served.address, "/pip/simple/alpha/").await;
        served.blobs()
    };
    for installer in installers() {
        let home = tempfile::tempdir().unwrap();
        let ran = installer.install(&served, home.path(), "alpha").await;
        assert!(!ran.succeeded, "{}: {}", installer.name, ran.output);
        assert!(!home.path().join("target/alpha.py").exists());
    }
    let answer = get(served.address, "/pip/files/alpha/alpha-1.0-py3-none-any.whl").await;
    assert!(answer.status == 200 && !answer.is_complete(), "{answer:?}");
    let stats = served.gateway.stats();
    assert!(stats.mismatches > 0 && stats.last_error.unwrap().contains("is not what the index states"));
    let kept: Vec<_> = served.blobs().into_iter().filter(|name| !pages.contains(name)).collect();
    let metadata = kept.len();
    assert!(metadata <= 1, "at most the metadata, which is what it should be, was kept: {kept:?}");
    assert_eq!(served.drafts(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_given_in_the_form_that_was_asked_for() {
    for style in [Style::Json, Style::Html] {
        let wheel = Wheel::new("alpha", "1.0", &[]);
        let (sha256, bytes) = (wheel.sha256(), wheel.bytes.clone());
        let index = Index::of(pip_pages(style, &[wheel])).await;
        let served = Served::before(&index).await;
        let html = get(served.address, "/pip/simple/ALPHA").await;
        assert_eq!(html.headers["content-type"], "text/html");
        let link = format!("href=\"/pip/files/alpha/alpha-1.0-py3-none-any.whl#sha256={sha256}\"");
        assert!(html.text().contains(&link) && html.text().contains("data-requires-python=\"&gt;=3.6\""));
        let accept = ("Accept", "application/vnd.pypi.simple.v1+json");
        let json = get_with(served.address, "/pip/simple/alpha/", &[accept]).await;
        assert_eq!(json.headers["content-type"], accept.1);
        assert!(json.text().contains(&format!("\"hashes\":{{\"sha256\":\"{sha256}\"}}")), "{}", json.text());

        let file = "/pip/files/alpha/alpha-1.0-py3-none-any.whl";
        assert_eq!(get(served.address, file).await.body, bytes);
        let metadata = get(served.address, &format!("{file}.metadata")).await;
        assert!(metadata.text().starts_with("Metadata-Version: 2.1\nName: alpha\n"));
        let range = get_with(served.address, file, &[("Range", "bytes=-10")]).await;
        assert_eq!((range.status, range.body.as_slice()), (206, &bytes[bytes.len() - 10..]));
        assert_eq!(
            range.headers["content-range"],
            format!("bytes {}-{}/{}", bytes.len() - 10, bytes.len() - 1, bytes.len())
        );
        let beyond = get_with(served.address, file, &[("Range", "bytes=99999999-")]).await;
        assert_eq!(beyond.status, 416);
        assert_eq!(index.paths().len(), 3, "{:?}", index.paths());
    }
}
