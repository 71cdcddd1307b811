//! A daemon that is killed in the middle of a download leaves nothing half-made behind.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::Arc,
};

use gateway::{ClientId, Gateway, Scope};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use crate::{
    client::get,
    index::{Index, Reply},
    packages::sha256,
    served::{Served, config, files},
};

const CHILD_CACHE: &str = "GATEWAY_TEST_CACHE";
const CHILD_INDEX: &str = "GATEWAY_TEST_INDEX";

/// Not a test of its own: what the other one runs in a process that it may kill.
#[tokio::test]
async fn the_process_that_is_killed() {
    let (Ok(cache), Ok(index)) = (std::env::var(CHILD_CACHE), std::env::var(CHILD_INDEX)) else { return };
    let mut config = config(&index, cache.into());
    config.patience.silence = std::time::Duration::from_secs(60);
    let gateway = Gateway::open(config).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("\nlistening on {}", listener.local_addr().unwrap());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let gateway = gateway.clone();
        tokio::spawn(async move { gateway.serve(stream, Scope::ALL, ClientId::new("test")).await });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_leaves_nothing_half_made() {
    let bytes = vec![7; 500_000];
    let link = format!("<a href='/files/big-1.zip#sha256={}'>", sha256(&bytes));
    let permits = Arc::new(Semaphore::new(2));
    let index = Index::of([
        ("/simple/big/".to_owned(), Reply::html(link)),
        ("/files/big-1.zip".to_owned(), Reply::file(bytes.clone()).stepped(100_000, &permits)),
    ])
    .await;
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join("cache");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::the_process_that_is_killed", "--nocapture"])
        .env(CHILD_CACHE, &cache)
        .env(CHILD_INDEX, index.url(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let address: std::net::SocketAddr = output
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned))
        .unwrap()
        .parse()
        .unwrap();

    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /pip/files/big/big-1.zip HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
    let mut seen = vec![0; 150_000];
    stream.read_exact(&mut seen).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(files(&cache.join("tmp")).len(), 1, "it was in the middle");
    assert!(!cache.join("blobs/sha256").join(&sha256(&bytes)[..2]).join(sha256(&bytes)).exists());

    permits.add_permits(100);
    let served = Served::open(config(&index.url(""), cache.clone()), home, Scope::ALL).await;
    assert_eq!(served.drafts(), 0, "swept");
    let answer = get(served.address, "/pip/files/big/big-1.zip").await;
    assert!(answer.is_complete() && answer.body == bytes);
    assert!(served.blobs().contains(&sha256(&bytes)));
}
