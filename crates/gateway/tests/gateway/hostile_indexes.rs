//! An index, or whoever can write on its pages, may answer anything.

use std::{io::Write as _, time::Duration};

use flate2::{Compression, write::GzEncoder};

use crate::{
    client::{Answer, get, try_get},
    index::{Asked, Index, Reply},
    packages::sha256,
    served::Served,
};

/// An index whose project `a` links to this, stated to be `content`.
fn linking(url: &str, content: &[u8]) -> (String, Reply) {
    ("/simple/a/".to_owned(), Reply::html(format!("<a href='{url}#sha256={}'>", sha256(content))))
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_cannot_send_us_into_the_hosts_network() {
    let secret = Index::start(|_| Reply::file("secret")).await;
    let port = secret.address.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "2130706433",
        "127.1",
        "[::ffff:127.0.0.1]",
        "x.localhost",
    ] {
        let url = format!("http://{host}:{port}/a-1.zip");
        let redirect = ("/r/a-1.zip".to_owned(), Reply::redirect(&url));
        for (link, more) in [(url.as_str(), None), ("/r/a-1.zip", Some(redirect))] {
            let index = Index::of([linking(link, b"secret")].into_iter().chain(more)).await;
            let served = Served::before(&index).await;
            let answer = get(served.address, "/pip/files/a/a-1.zip").await;
            assert_eq!(answer.status, 403, "{url}: {}", answer.text());
            assert_eq!(
                answer.text(),
                "The package index names an address for the file a-1.zip that this host does not reach.\n"
            );
            let told = served.gateway.stats().last_error.unwrap();
            assert!(told.contains("public address"), "{told}");
        }
    }
    for url in ["file:///etc/a-1.zip", "ftp://127.0.0.1/a-1.zip", "javascript:a-1.zip", "data:,a-1.zip"] {
        let index = Index::of([linking(url, b"secret")]).await;
        let served = Served::before(&index).await;
        let answer = get(served.address, "/pip/files/a/a-1.zip").await;
        assert!(matches!(answer.status, 403 | 404), "{url}: {answer:?}");
    }
    assert!(secret.paths().is_empty(), "{:?}", secret.paths());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_may_be_redirected_but_not_for_ever_nor_anywhere() {
    let secret = Index::start(|_| Reply::html("<a href='a-1.zip'>")).await;
    let index = Index::of([
        ("/simple/near/".to_owned(), Reply::redirect("/elsewhere/")),
        ("/elsewhere/".to_owned(), Reply::html("<a href='a-1.zip'>")),
        ("/elsewhere/a-1.zip".to_owned(), Reply::file("zip")),
        ("/simple/loop/".to_owned(), Reply::redirect("/simple/loop/")),
        ("/simple/out/".to_owned(), Reply::redirect(&secret.url("/x/"))),
        ("/simple/odd/".to_owned(), Reply::redirect("http://[")),
    ])
    .await;
    let served = Served::before(&index).await;
    assert_eq!(
        get(served.address, "/pip/files/near/a-1.zip").await.text(),
        "zip",
        "relative to where the page was"
    );
    for (project, status) in [("loop", 502), ("out", 403), ("odd", 502)] {
        assert_eq!(get(served.address, &format!("/pip/simple/{project}/")).await.status, status, "{project}");
    }
    assert_eq!(index.paths().iter().filter(|path| path.contains("loop")).count(), 6);
    assert!(secret.paths().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_go_to_the_index_and_nowhere_else() {
    let other = Index::start(|_| Reply::file("zip")).await;
    let pages = [
        linking(&other.url("/a-1.zip"), b"zip"),
        ("/simple/b/".to_owned(), Reply::redirect(&other.url("/b/"))),
        ("/simple/c/".to_owned(), Reply::html("<a href='/c-1.zip'>")),
        ("/c-1.zip".to_owned(), Reply::file("zip")),
    ];
    let index = Index::of(pages).await;
    let address = other.address.to_string();
    let served = Served::with(&index, |config| {
        config.pip_index.set_username("me").unwrap();
        config.pip_index.set_password(Some("secret")).unwrap();
        config.also_reach = vec![address];
    })
    .await;
    assert_eq!(get(served.address, "/pip/files/a/a-1.zip").await.text(), "zip");
    get(served.address, "/pip/simple/b/").await;
    assert_eq!(get(served.address, "/pip/files/c/c-1.zip").await.text(), "zip");
    let authorized = |index: &Index| -> Vec<bool> {
        index.asked().iter().map(|asked| asked.headers.contains_key("authorization")).collect()
    };
    assert_eq!(authorized(&index), [true; 4]);
    assert_eq!(index.asked()[0].headers["authorization"], "Basic bWU6c2VjcmV0");
    assert_eq!(authorized(&other), [false; 2]);
    let page = get(served.address, "/pip/simple/c/").await.text();
    assert!(!page.contains("secret") && !page.contains(&index.address.to_string()), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_configured_for_one_manager_is_not_for_another() {
    let registry = Index::start(|_| Reply::file("private")).await;
    let page = format!("<a href='{}#sha256={}'>", registry.url("/npm/a-1.zip"), sha256(b"private"));
    let index = Index::of([("/simple/a/".to_owned(), Reply::html(page))]).await;
    let npm = registry.url("/npm/").parse().unwrap();
    let served = Served::with(&index, |config| config.npm_registry = npm).await;
    assert_eq!(get(served.address, "/pip/files/a/a-1.zip").await.status, 403);
    assert!(registry.paths().is_empty(), "a page of pip led to the private registry of npm");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_told_in_a_sentence_and_the_gateway_lives() {
    let gzip = |bytes: usize| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let piece = vec![b' '; 1 << 20];
        (0..bytes >> 20).for_each(|_| encoder.write_all(&piece).unwrap());
        encoder.finish().unwrap()
    };
    let pages = [
        ("forbidden", Reply::status(403), 403, "refuses"),
        ("unauthorized", Reply::status(401), 403, "refuses"),
        ("teapot", Reply::status(418), 502, "answered 418"),
        ("broken", Reply::status(503), 502, "answered 503"),
        ("unasked", Reply::status(304), 502, "not what it should be"),
        ("silent", Reply::silent(), 504, "did not answer in time"),
        ("short", Reply::html("<a").lying(1000), 502, "cannot be reached"),
        ("garbled", Reply::new("application/vnd.pypi.simple.v1+json", "{"), 502, "not what it should be"),
        ("large", Reply::html(vec![b' '; 33 << 20]), 502, "more for the project large than is taken"),
        ("bomb", Reply::html(gzip(33 << 20)).header("content-encoding", "gzip"), 502, "than is taken"),
        ("brotli", Reply::html("x").header("content-encoding", "br"), 502, "not what it should be"),
        ("fine", Reply::html(gzip(1 << 20)).header("content-encoding", "gzip"), 200, "Links for fine"),
    ];
    let replies = pages.iter().map(|(name, reply, ..)| (format!("/simple/{name}/"), reply.clone()));
    let index = Index::of(replies.collect::<Vec<_>>()).await;
    let served = Served::before(&index).await;
    for (name, _, status, sentence) in pages {
        let answer = get(served.address, &format!("/pip/simple/{name}/")).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        assert!(answer.text().contains(sentence), "{name}: {}", answer.text());
    }
    assert_eq!(served.drafts(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_ends_early_or_hangs_is_never_complete_nor_kept() {
    let content = vec![1; 10_000];
    let permits = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
    let half = Reply::file(&content[..5000]);
    for reply in [half.clone().lying(10_000), Reply::file(content.clone()).stepped(5000, &permits), half] {
        let index = Index::of([linking("/a-1.zip", &content), ("/a-1.zip".to_owned(), reply)]).await;
        let served = Served::before(&index).await;
        // The gateway may find out before it has begun to answer, or before it has sent anything: then all that is left
        // to do is to close.
        let answer = try_get(served.address, "/pip/files/a/a-1.zip").await;
        let is_told = |answer: &Answer| match answer.status {
            200 => !answer.is_complete(),
            status => status == 502,
        };
        assert!(answer.as_ref().is_none_or(is_told), "{answer:?}");
        assert!(!served.blobs().contains(&sha256(&content)));
        assert_eq!(served.drafts(), 0);
        assert!(served.gateway.stats().errors > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_of_the_host_is_used() {
    // What a proxy is asked has the whole address in it.
    let proxy = Index::start(|asked: &Asked| match asked.path.as_str() {
        "http://index.example/simple/a/" => Reply::html("<a href='http://files.example/a-1.zip'>"),
        "http://deb.example/debian/dists/s/Release" => Reply::file("release"),
        _ => Reply::status(404),
    })
    .await;
    let url = proxy.url("/");
    let served = Served::with(&proxy, |config| {
        config.pip_index = "http://index.example/simple/".parse().unwrap();
        config.apt_sources = vec!["http://deb.example/debian".parse().unwrap()];
        config.proxies.http = Some(url.parse().unwrap());
        config.apt_proxy = config.proxies.http.clone();
        config.apt_proxy.as_mut().unwrap().set_username("apt").unwrap();
        config.patience.connect = Duration::from_secs(30);
    })
    .await;
    assert!(get(served.address, "/pip/simple/a/").await.text().contains("a-1.zip"));
    assert_eq!(get(served.address, "/apt/0/dists/s/Release").await.text(), "release");
    let asked = proxy.asked();
    assert_eq!(asked[0].headers.get("proxy-authorization"), None);
    assert_eq!(asked[1].headers["proxy-authorization"], "Basic YXB0Og==");
    assert_eq!(asked[1].headers["host"], "deb.example");
    // In the open, from a host that nobody configured, without a hash: no.
    assert_eq!(get(served.address, "/pip/files/a/a-1.zip").await.status, 403);
    assert_eq!(proxy.paths().len(), 2);
}
