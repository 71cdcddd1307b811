//! The cache: what is kept, shared, thrown away and asked for again.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
};

use crate::{
    client::{Answer, get, get_with, parse},
    index::{Asked, Index, Reply},
    packages::sha256,
    served::{Served, config},
};

const FILE: &str = "/pip/files/big/big-1.0.tar.gz";

/// A project with one file of these bytes, stated with its hash.
fn page(bytes: &[u8]) -> (String, Reply) {
    let link = format!("<a href='/files/big-1.0.tar.gz#sha256={}'>", sha256(bytes));
    ("/simple/big/".to_owned(), Reply::html(link))
}

fn noise(size: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..size).map(step).collect()
}

async fn ask(served: &Served) -> TcpStream {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = format!("GET {FILE} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads until at least `count` bytes of the body are there.
async fn read_some(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while parse(&bytes).is_none_or(|answer| answer.body.len() < count) {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.unwrap();
        assert!(read > 0, "ended too early");
        bytes.extend(&piece[..read]);
    }
    bytes
}

async fn read_rest(stream: &mut TcpStream, mut bytes: Vec<u8>) -> Answer {
    drop(stream.read_to_end(&mut bytes).await);
    parse(&bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_download_serves_all_and_streams_while_it_comes() {
    let bytes = noise(400_000);
    let permits = Arc::new(Semaphore::new(1));
    let file = Reply::file(bytes.clone()).stepped(100_000, &permits);
    let index = Index::of([page(&bytes), ("/files/big-1.0.tar.gz".to_owned(), file)]).await;
    let served = Served::with(&index, |config| config.patience.silence = Duration::from_secs(60)).await;

    // A piece arrives while the index has sent no more than that.
    let mut first = ask(&served).await;
    let begun = read_some(&mut first, 50_000).await;
    // One more joins, one never reads, one leaves.
    let mut second = ask(&served).await;
    let unread = ask(&served).await;
    drop(ask(&served).await);
    let joined = read_some(&mut second, 50_000).await;
    permits.add_permits(3);
    for (stream, seen) in [(&mut first, begun), (&mut second, joined)] {
        let answer = read_rest(stream, seen).await;
        assert!(answer.is_complete() && answer.body == bytes);
    }
    drop(unread);
    assert_eq!(get(served.address, FILE).await.body, bytes);
    assert_eq!(index.paths(), ["/simple/big/", "/files/big-1.0.tar.gz"]);
    assert_eq!(served.drafts(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_turns_out_wrong_at_its_end_breaks_off() {
    let bytes = noise(300_000);
    let mut wrong = bytes.clone();
    *wrong.last_mut().unwrap() ^= 1;
    let index = Index::of([page(&bytes), ("/files/big-1.0.tar.gz".to_owned(), Reply::file(wrong))]).await;
    let served = Served::before(&index).await;
    for _ in 0..2 {
        let answer = get(served.address, FILE).await;
        assert_eq!((answer.status, answer.headers["content-length"].as_str()), (200, "300000"));
        assert!(answer.body.len() < 300_000, "the last byte is never given");
    }
    assert_eq!(served.drafts(), 0);
    assert!(!served.blobs().contains(&sha256(&bytes)));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_asked_for_again_with_validators_and_used_when_the_index_is_away() {
    let handler = |asked: &Asked| match asked.headers.get("if-none-match").map(String::as_str) {
        Some("\"v1\"") => Reply::status(304).header("etag", "\"v1\""),
        _ => Reply::html("<a href='a-1.zip'>").header("etag", "\"v1\""),
    };
    let index = Index::start(handler).await;
    let served = Served::with(&index, |config| config.fresh_for = Duration::ZERO).await;
    for _ in 0..3 {
        assert!(get(served.address, "/pip/simple/a/").await.text().contains("a-1.zip"));
    }
    let stats = served.gateway.stats();
    assert_eq!((stats.upstream_requests, stats.misses, stats.hits, stats.stale), (3, 1, 2, 0));
    let _away = index.stop().await;
    for _ in 0..2 {
        assert!(get(served.address, "/pip/simple/a/").await.text().contains("a-1.zip"));
    }
    let stats = served.gateway.stats();
    assert_eq!(stats.stale, 2);
    assert_eq!(stats.errors, 1, "an index that is away is not asked again at once: {stats:?}");
    let unknown = get(served.address, "/pip/simple/b/").await;
    assert_eq!(unknown.status, 502);
    assert_eq!(
        unknown.text(),
        "The package index cannot be reached, and the project b is not in the cache.\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_remembered_for_a_moment() {
    let index = Index::of([]).await;
    let served = Served::before(&index).await;
    for _ in 0..3 {
        let answer = get(served.address, "/pip/simple/nowhere/").await;
        assert_eq!(answer.status, 404);
        assert_eq!(answer.text(), "The package index does not have the project nowhere.\n");
    }
    assert_eq!(index.paths().len(), 1);
    assert_eq!(served.gateway.stats().errors, 0, "which is no fault of anybody");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_keeps_to_its_size() {
    let body = |path: &str| {
        noise(40_000 + path.len()).iter().map(|byte| byte ^ path.as_bytes()[5]).collect::<Vec<_>>()
    };
    let index = Index::start(move |asked| {
        let name = asked.path.split('/').nth(2).unwrap_or_default().to_owned();
        match asked.path.ends_with('/') {
            true => Reply::html(format!(
                "<a href='/f/{name}/x-1.zip#sha256={}'>",
                sha256(&body(&format!("/f/x/{}", &name)))
            )),
            false => Reply::file(body(&format!("/f/x/{name}"))),
        }
    })
    .await;
    let served = Served::with(&index, |config| config.max_cache_bytes = 200_000).await;
    for name in ["aa", "ba", "ca", "da", "ea", "fa", "ga", "ha"] {
        let answer = get(served.address, &format!("/pip/files/{name}/x-1.zip")).await;
        assert!(answer.is_complete(), "{name}: {} {:?}", answer.status, served.gateway.stats());
    }
    let size: u64 = crate::served::files(&served.home.path().join("cache"))
        .iter()
        .map(|path| std::fs::metadata(path).unwrap().len())
        .sum();
    assert!((40_000..=200_000).contains(&size), "{size}");
    let before = index.paths().len();
    get(served.address, "/pip/files/ha/x-1.zip").await;
    assert_eq!(index.paths().len(), before, "the newest is still there");
    get(served.address, "/pip/files/aa/x-1.zip").await;
    assert!(index.paths().len() > before, "the oldest is not");

    let large = Reply::file(noise(300_000));
    let index = Index::of([page(&noise(300_000)), ("/files/big-1.0.tar.gz".to_owned(), large)]).await;
    let served = Served::with(&index, |config| config.max_cache_bytes = 200_000).await;
    let answer = get(served.address, FILE).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.text(), "The package index sent more for the file big-1.0.tar.gz than is taken.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_outlives_the_gateway() {
    let bytes = noise(1000);
    let index =
        Index::of([page(&bytes), ("/files/big-1.0.tar.gz".to_owned(), Reply::file(bytes.clone()))]).await;
    let home = tempfile::tempdir().unwrap();
    let (url, cache) = (index.url(""), home.path().join("cache"));
    {
        let first =
            Served::open(config(&url, cache.clone()), tempfile::tempdir().unwrap(), gateway::Scope::ALL)
                .await;
        assert_eq!(get(first.address, FILE).await.body, bytes);
        let refused = gateway::Gateway::open(config(&url, cache.clone())).unwrap_err().to_string();
        assert!(refused.contains("held by another process"), "{refused}");
    }
    let _away = index.stop().await;
    // The tasks of the first let go of the cache when they are dropped, which is soon.
    let mut tries = 0;
    while let Err(error) = gateway::Gateway::open(config(&url, cache.clone())) {
        tries += 1;
        assert!(tries < 1000, "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = Served::open(config(&url, cache), home, gateway::Scope::ALL).await;
    assert_eq!(get(second.address, FILE).await.body, bytes);
    assert_eq!(second.gateway.stats().upstream_requests, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_without_a_hash_are_asked_for_again_when_they_are_old() {
    let handler = |asked: &Asked| match asked.path.as_str() {
        "/simple/a/" => Reply::html("<a href='a-1.zip'>"),
        _ if asked.headers.contains_key("if-modified-since") => Reply::status(304),
        _ => Reply::file("zip").header("last-modified", "Thu, 01 Jan 2015 00:00:00 GMT"),
    };
    let index = Index::start(handler).await;
    let served = Served::with(&index, |config| config.fresh_for = Duration::ZERO).await;
    for _ in 0..2 {
        assert_eq!(get(served.address, "/pip/files/a/a-1.zip").await.text(), "zip");
    }
    assert_eq!(index.paths(), ["/simple/a/", "/simple/a/a-1.zip", "/simple/a/a-1.zip"]);
    let stats = served.gateway.stats();
    assert_eq!((stats.misses, stats.hits), (2, 1), "the page, the file, and the file that had not changed");
    // A client that distrusts caches is heard.
    let served = Served::before(&index).await;
    get(served.address, "/pip/files/a/a-1.zip").await;
    let before = index.paths().len();
    get(served.address, "/pip/files/a/a-1.zip").await;
    assert_eq!(index.paths().len(), before);
    get_with(served.address, "/pip/files/a/a-1.zip", &[("Cache-Control", "no-cache")]).await;
    assert_eq!(index.paths().len(), before + 1);
}
