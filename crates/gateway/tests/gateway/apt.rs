//! apt, against a repository that is made on the spot.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use gateway::Scope;

use crate::{
    client::{get, get_with},
    index::{Asked, Index, Reply},
    managers::{Ran, found, run},
    packages::sha256,
    served::{Served, config, files},
};

const TOOLS: &[&str] = &["/usr/bin/apt-get", "/usr/bin/dpkg-deb", "/usr/bin/apt-ftparchive"];
const NEVER: &str = "Thu, 01 Jan 2015 00:00:00 GMT";

/// A repository with one package whose only file says its version.
async fn repository(place: &Path, version: &str) {
    let tree = place.join("tree");
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    fs::create_dir_all(tree.join("opt/alpha")).unwrap();
    fs::write(tree.join("opt/alpha/version"), version).unwrap();
    let control = format!(
        "Package: alpha\nVersion: {version}\nArchitecture: all\nMaintainer: me <me@example.org>\nDescription: test\n"
    );
    fs::write(tree.join("DEBIAN/control"), control).unwrap();
    fs::create_dir_all(place.join("repo/pool/main")).unwrap();
    fs::create_dir_all(place.join("repo/dists/stable/main/binary-all")).unwrap();
    let script = format!(
        "cd {} && dpkg-deb --root-owner-group -Zgzip -b tree repo/pool/main/alpha_{version}_all.deb && cd repo && \
         apt-ftparchive packages pool > dists/stable/main/binary-all/Packages && \
         gzip -nk9f dists/stable/main/binary-all/Packages && \
         apt-ftparchive -o APT::FTPArchive::Release::Architectures=all -o APT::FTPArchive::Release::Components=main \
         -o APT::FTPArchive::Release::Codename=stable release dists/stable > Release && mv Release dists/stable/",
        place.display()
    );
    run(place, "/bin/sh", &["-c", &script]).await.ok();
}

/// The directory as a web server shows it, with validators.
async fn publish(place: &Path) -> Index {
    let root = Arc::new(place.join("repo"));
    Index::start(move |asked: &Asked| {
        let Some(path) = asked.path.strip_prefix("/debian/") else { return Reply::status(404) };
        let Ok(bytes) = fs::read(root.join(path)) else { return Reply::status(404) };
        let etag = format!("\"{}\"", sha256(&bytes));
        if asked.headers.get("if-none-match") == Some(&etag) {
            return Reply::status(304).header("etag", &etag);
        }
        Reply::file(bytes).header("etag", &etag).header("last-modified", NEVER)
    })
    .await
}

/// A root of its own, so that nothing of this machine is read or changed.
async fn install(served: &Served, home: &Path) -> Ran {
    let root = home.join("root");
    for directory in [
        "lists/partial",
        "archives/partial",
        "etc/parts",
        "etc/preferences.d",
        "log",
        "var/lib/dpkg/updates",
        "var/lib/dpkg/info",
    ] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    fs::write(root.join("var/lib/dpkg/available"), "").unwrap();
    fs::write(
        root.join("etc/sources.list"),
        format!("deb [trusted=yes] {} stable main\n", served.url("/apt/0")),
    )
    .unwrap();
    let root = root.to_str().unwrap();
    let settings = format!(
        "Dir::Etc \"{root}/etc\";\nDir::Etc::sourcelist \"{root}/etc/sources.list\";\nDir::Etc::sourceparts \"{root}/etc/parts\";\n\
         Dir::Etc::parts \"{root}/etc/parts\";\nDir::State \"{root}/var\";\nDir::State::status \"{root}/var/lib/dpkg/status\";\n\
         Dir::State::lists \"{root}/lists\";\nDir::Cache \"{root}\";\nDir::Cache::archives \"{root}/archives\";\nDir::Log \"{root}/log\";\n\
         APT::Architecture \"amd64\";\nAPT::Sandbox::User \"\";\nAcquire::Languages \"none\";\nAcquire::Retries \"0\";\n\
         DPkg::Options {{ \"--root={root}\"; \"--force-not-root\"; \"--force-bad-path\"; \"--log={root}/log/dpkg\"; }};\n\
         DPkg::Use-Pty \"0\";\n#clear DPkg::Post-Invoke;\n#clear DPkg::Pre-Install-Pkgs;\n#clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n"
    );
    let file = home.join("apt.conf");
    fs::write(&file, settings).unwrap();
    let script = format!(
        "export APT_CONFIG={} DEBIAN_FRONTEND=noninteractive; apt-get update && apt-get install -y alpha",
        file.display()
    );
    run(home, "/bin/sh", &["-c", &script]).await
}

fn installed(home: &Path) -> String {
    fs::read_to_string(home.join("root/opt/alpha/version")).unwrap()
}

fn pool(paths: &[String]) -> Vec<&String> {
    paths.iter().filter(|path| path.contains("/pool/")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn apt_installs_and_then_without_the_archive() {
    if TOOLS.iter().any(|tool| found(tool).is_none()) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    repository(place.path(), "1.0").await;
    let index = publish(place.path()).await;
    let served = Served::before(&index).await;

    let first = tempfile::tempdir().unwrap();
    install(&served, first.path()).await.ok();
    assert_eq!(installed(first.path()), "1.0");

    // While the archive is there, it is asked whether its lists changed; packages are not asked for again.
    let before = index.paths().len();
    let second = tempfile::tempdir().unwrap();
    install(&served, second.path()).await.ok();
    let asked = index.paths();
    assert!(asked.len() > before && pool(&asked).len() == 1, "{asked:?}");
    assert_eq!(served.gateway.stats().stale, 0);

    // A new version is seen at once.
    repository(place.path(), "2.0").await;
    let third = tempfile::tempdir().unwrap();
    install(&served, third.path()).await.ok();
    assert_eq!(installed(third.path()), "2.0");

    let _away = index.stop().await;
    let fourth = tempfile::tempdir().unwrap();
    install(&served, fourth.path()).await.ok();
    assert_eq!(installed(fourth.path()), "2.0");
    let stats = served.gateway.stats();
    assert!(stats.stale > 0 && stats.last_error.is_some(), "an archive that is away is told: {stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_an_archive_by_address_and_by_hash() {
    let place = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path: PathBuf = place.path().join("repo").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let hash = sha256(b"true");
    write(&format!("dists/s/by-hash/SHA256/{hash}"), "true");
    write(&format!("dists/s/by-hash/SHA256/{}", sha256(b"other")), "false");
    write("pool/a+b_1%3a2_all.deb", "package");
    write("dists/s/Release", "list");
    let index = publish(place.path()).await;
    let served = Served::before(&index).await;
    let at = |path: &str| format!("/apt/0/{path}");

    assert_eq!(get(served.address, &at(&format!("dists/s/by-hash/SHA256/{hash}"))).await.body, b"true");
    let before = index.paths().len();
    assert_eq!(get(served.address, &at(&format!("dists/s/by-hash/SHA256/{hash}"))).await.body, b"true");
    assert_eq!(index.paths().len(), before, "the second time from the cache");
    let wrong = get(served.address, &at(&format!("dists/s/by-hash/SHA256/{}", sha256(b"other")))).await;
    assert!(!wrong.is_complete(), "{wrong:?}");
    // A name with a colon in it is written so in the archive, and encoded once more in the request.
    let missing = get(served.address, &at("pool/a+b_1%3a2_all.deb")).await;
    assert_eq!(missing.status, 404);
    assert_eq!(index.paths().last().unwrap(), "/debian/pool/a+b_1:2_all.deb");
    let found = get(served.address, &at("pool/a%2bb_1%253a2_all.deb")).await;
    assert_eq!(
        (found.status, index.paths().last().unwrap().as_str()),
        (404, "/debian/pool/a+b_1%253a2_all.deb")
    );

    let list = get(served.address, &at("dists/s/Release")).await;
    assert_eq!((list.text().as_str(), list.headers["last-modified"].as_str()), ("list", NEVER));
    let known = get_with(served.address, &at("dists/s/Release"), &[("If-Modified-Since", NEVER)]).await;
    assert_eq!(known.status, 304);
    let etags: Vec<_> =
        index.asked().iter().filter_map(|asked| asked.headers.get("if-none-match").cloned()).collect();
    assert_eq!(etags, [format!("\"{}\"", sha256(b"list"))], "the second time only whether it changed");
    assert_eq!(get(served.address, "/apt/1/dists/s/Release").await.status, 404, "there is no second source");
    assert!(!files(&served.home.path().join("cache/blobs")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hash_in_a_path_opens_nothing_that_others_fetched() {
    let hash = sha256(b"private");
    let index = Index::of([
        ("/simple/a/".to_owned(), Reply::html(format!("<a href='a-1.zip#sha256={hash}'>"))),
        ("/simple/a/a-1.zip".to_owned(), Reply::file("private")),
    ])
    .await;
    let served = Served::before(&index).await;
    assert_eq!(get(served.address, "/pip/files/a/a-1.zip").await.text(), "private");
    assert!(served.blobs().contains(&hash));
    let taken = get(served.address, &format!("/apt/0/x/by-hash/SHA256/{hash}")).await;
    assert_eq!(taken.status, 404, "the source was asked, and has it not: {}", taken.text());
}

/// As a proxy is asked: what is beneath a source is given, whatever else the address leads to is not.
#[tokio::test(flavor = "multi_thread")]
async fn apt_may_name_a_configured_source_by_its_address() {
    let secret = Index::of([("/secret".to_owned(), Reply::file("secret"))]).await;
    let index = Index::of([
        ("/debian/dists/s/Release".to_owned(), Reply::file("list")),
        ("/secret".to_owned(), Reply::file("secret")),
    ])
    .await;
    let served = Served::before(&index).await;
    let found = get(served.address, &index.url("/debian/dists/s/Release")).await;
    assert_eq!((found.status, found.text().as_str()), (200, "list"));
    let port = index.address.port();
    for address in [
        index.url("/secret"),
        index.url("/debian/../secret"),
        index.url("/debian/%2e%2e/secret"),
        index.url("/debian/..%2fsecret"),
        index.url("/debian"),
        index.url("/debian/"),
        secret.url("/secret"),
        secret.url("/debian/dists/s/Release"),
        format!("http://127.0.0.1:{port}@{}/debian/dists/s/Release", secret.address),
        format!("http://127.0.0.1.example:{port}/debian/dists/s/Release"),
        "http://127.0.0.1/debian/dists/s/Release".to_owned(),
        format!("ftp://127.0.0.1:{port}/debian/dists/s/Release"),
        format!("https://127.0.0.1:{port}/debian/dists/s/Release"),
    ] {
        let refused = get(served.address, &address).await;
        assert!(matches!(refused.status, 400 | 403 | 404), "{address}: {refused:?}");
        assert!(!refused.text().contains("list"), "{address}: {refused:?}");
    }
    assert_eq!(secret.paths(), Vec::<String>::new());
    assert_eq!(index.paths(), ["/debian/dists/s/Release"]);

    // Only for those who may use apt.
    let home = tempfile::tempdir().unwrap();
    let config = config(&index.url(""), home.path().join("cache"));
    let served = Served::open(config, home, Scope { pip: true, npm: true, apt: false }).await;
    assert_eq!(get(served.address, &index.url("/debian/dists/s/Release")).await.status, 400);
}
