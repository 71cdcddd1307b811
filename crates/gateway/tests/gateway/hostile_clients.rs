//! Whatever runs in a sandbox may send anything.

use std::{sync::Arc, time::Duration};

use gateway::{ClientId, Scope};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::{
    client::{get, parse, say},
    index::{Index, Reply},
    packages::{Style, Wheel, pip_pages},
    served::{Served, config},
};

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_not_for_packages_are_refused_with_a_sentence() {
    let index = Index::of([]).await;
    let served = Served::before(&index).await;
    let secret = Index::of([("/".to_owned(), Reply::html("secret"))]).await;
    let proxied = format!("GET {} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n", secret.url("/"));
    let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", secret.address);
    let long = format!("GET /pip/simple/{}/ HTTP/1.1\r\nHost: here\r\n\r\n", "a".repeat(100_000));
    let headers = format!("GET /pip/simple/a/ HTTP/1.1\r\nHost: here\r\n{}\r\n", "x: y\r\n".repeat(1000));
    let big_header =
        format!("GET /pip/simple/a/ HTTP/1.1\r\nHost: here\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    for (request, statuses) in [
        (&*proxied, &[403][..]),
        (&connect, &[400, 405]),
        (&long, &[414, 431]),
        (&headers, &[431]),
        (&big_header, &[431]),
        (
            "POST /npm/-/npm/v1/security/advisories/bulk HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\n{}",
            &[405],
        ),
        ("PUT /npm/a HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n", &[405]),
        ("OPTIONS * HTTP/1.1\r\nHost: here\r\n\r\n", &[405]),
        ("GET /pip/simple/a/ HTTP/1.0\r\nHost: here\r\n\r\n", &[505]),
        ("GET /pip/simple/a/ HTTP/1.1\r\n\r\n", &[400]),
        ("GET /pip/simple/a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", &[400]),
        ("GET /npm/a HTTP/1.1\r\nHost: evil\"/><script>\r\n\r\n", &[400]),
        ("GET /npm/a HTTP/1.1\r\nHost: user@here\r\n\r\n", &[400]),
        ("GET /pip/simple/a/ HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello", &[400]),
        (
            "GET /a HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            &[400],
        ),
        ("GET /a HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", &[400]),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", &[400]),
        ("GET /pip/simple/\0/ HTTP/1.1\r\nHost: here\r\n\r\n", &[400]),
        ("nonsense\r\n\r\n", &[400]),
    ] {
        let answer = say(served.address, request).await;
        let status = answer.as_ref().map(|answer| answer.status);
        assert!(status.is_some_and(|status| statuses.contains(&status)), "{request:.80}: {answer:?}");
    }
    for path in [
        "/",
        "/pip/simple/",
        "/pip/simple/..%2f..%2fetc%2fpasswd/",
        "/npm/-/ping",
        "/apt/0/../../x",
        "/etc/passwd",
    ] {
        let answer = get(served.address, path).await;
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
        assert!(
            answer.text().ends_with(".\n") && !answer.text().contains("127.0.0.1"),
            "{path}: {}",
            answer.text()
        );
    }
    assert!(index.paths().is_empty() && secret.paths().is_empty(), "nobody was bothered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_reaches_what_its_scope_says() {
    let index = Index::of(pip_pages(Style::Json, &[Wheel::new("alpha", "1.0", &[])])).await;
    for (scope, statuses) in [
        (Scope::default(), [403, 403, 403]),
        (Scope { pip: true, ..Scope::default() }, [200, 403, 403]),
        (Scope { npm: true, ..Scope::default() }, [403, 404, 403]),
        (Scope { apt: true, ..Scope::default() }, [403, 403, 404]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let served = Served::open(config(&index.url(""), home.path().join("cache")), home, scope).await;
        let mut seen = Vec::new();
        for path in ["/pip/simple/alpha/", "/npm/alpha", "/apt/0/dists/stable/InRelease"] {
            let answer = get(served.address, path).await;
            if answer.status == 403 {
                let manager = path.split('/').nth(1).unwrap();
                assert_eq!(answer.text(), format!("This sandbox may not install packages with {manager}.\n"));
            }
            seen.push(answer.status);
        }
        assert_eq!(seen, statuses, "{scope:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_byte_stream_will_do_and_one_that_stalls_holds_up_nobody() {
    let wheel = Wheel::new("alpha", "1.0", &[]);
    let path = format!("/pip/files/alpha/{}", wheel.filename);
    let bytes = wheel.bytes.clone();
    let index = Index::of(pip_pages(Style::Json, &[wheel])).await;
    let served = Served::before(&index).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");

    // This one asks for the file and reads only the first bytes of it.
    let (mut stalled, far) = duplex(64);
    let gateway = served.gateway.clone();
    let serving = tokio::spawn(async move { gateway.serve(far, Scope::ALL, ClientId::new("test")).await });
    stalled.write_all(request.as_bytes()).await.unwrap();
    stalled.read_exact(&mut [0; 15]).await.unwrap();

    assert_eq!(get(served.address, &path).await.body, bytes);
    assert!(!serving.is_finished());

    // And it gets the rest when it wants it.
    let mut rest = Vec::new();
    stalled.read_to_end(&mut rest).await.unwrap();
    let answer = parse(&[b"HTTP/1.1 200 OK", rest.as_slice()].concat()).unwrap();
    assert_eq!(answer.body, bytes);
    serving.await.unwrap();
    assert_eq!(index.paths().iter().filter(|path| path.ends_with(".whl")).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_carries_many_requests_even_at_once() {
    let index = Index::of(pip_pages(Style::Json, &[Wheel::new("alpha", "1.0", &[])])).await;
    let served = Served::before(&index).await;
    // As apt does: all requests first, then all answers.
    let one = "GET /pip/simple/alpha/ HTTP/1.1\r\nHost: here\r\n\r\n".repeat(9);
    let last = "GET /pip/simple/alpha/ HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    let answers = say(served.address, &format!("{one}{last}")).await.unwrap();
    assert_eq!(answers.text().matches("HTTP/1.1 200 OK").count(), 9, "besides the first");
    assert_eq!(index.paths().len(), 1);
    let head = "HEAD /pip/simple/alpha/ HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    let answer = say(served.address, head).await.unwrap();
    assert!(answer.body.is_empty() && answer.headers["content-length"] != "0", "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_does_not_take_the_places_of_others() {
    const GREEDY: usize = 12;
    let permits = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&permits);
    let index = Index::start(move |asked| match asked.path.as_str() {
        "/debian/pool/free.deb" => Reply::file("free"),
        _ => Reply::file("slow").stepped(4, &gate),
    })
    .await;
    let served = Served::with(&index, |config| config.patience.silence = Duration::from_secs(60)).await;
    let address = served.address;
    let greedy: Vec<_> = (0..GREEDY)
        .map(|number| tokio::spawn(async move { get(address, &format!("/apt/0/pool/{number}.deb")).await }))
        .collect();
    // All have asked us, and eight were let through.
    let let_through = async {
        while served.gateway.stats().requests < GREEDY as u64 || index.paths().len() < 8 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), let_through).await.unwrap();

    let (mut near, far) = duplex(1 << 16);
    let gateway = served.gateway.clone();
    let other = tokio::spawn(async move { gateway.serve(far, Scope::ALL, ClientId::new("other")).await });
    let request = b"GET /apt/0/pool/free.deb HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    near.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    near.read_to_end(&mut answer).await.unwrap();
    other.await.unwrap();
    assert!(answer.ends_with(b"free"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(index.paths().len(), 9, "eight of one client and one of the other");

    permits.add_permits(GREEDY);
    for one in greedy {
        assert_eq!(one.await.unwrap().text(), "slow");
    }
}
