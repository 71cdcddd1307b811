//! Ways to a guest besides its Unix socket.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    task::Poll,
};

use bytes::BytesMut;
use futures_util::{AsyncReadExt as _, AsyncWriteExt as _};
use guest_protocol::{
    Decoder, Failure, FailureKind, Frame, FrameKind, PortProtocol, Request, Response, encode,
};
use tokio_util::compat::TokioAsyncReadCompatExt as _;

use crate::support::{TestGuest, eventually};

struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn ping() -> Vec<u8> {
    let mut wire = BytesMut::new();
    encode(&Frame::request(&Request::Ping).unwrap(), &mut wire).unwrap();
    wire.to_vec()
}

/// Whether the received frames are the greeting and the answer to a ping.
fn is_greeted_and_answered(received: &mut BytesMut) -> bool {
    let mut seen = received.clone();
    let mut frames = Vec::new();
    while let Some(frame) = Decoder::default().decode(&mut seen).unwrap() {
        frames.push(frame);
    }
    match &frames[..] {
        [hello, answer] => {
            assert_eq!(hello.kind, FrameKind::Hello);
            assert_eq!(answer.parse::<Response>().unwrap(), Response::Done);
            true
        }
        _ => false,
    }
}

#[test]
fn over_tcp_only_who_has_the_token_gets_in() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "open sesame\n").unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let program = || Command::new(env!("CARGO_BIN_EXE_guest"));
    let refused = program().args(["--tcp", &address.to_string()]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("token"), "{refused:?}");
    let child = program().args(["--tcp", &address.to_string(), "--token-file"]).arg(&token).spawn().unwrap();
    let _guest = Guest(child);
    eventually("it listens", || TcpStream::connect(address).is_ok());
    let talk = |said: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        stream.write_all(&ping()).unwrap();
        let mut received = BytesMut::new();
        let mut chunk = [0; 1024];
        // A rejected client gets the end of the stream, or a reset, and not a byte before.
        while let Ok(n @ 1..) = stream.read(&mut chunk) {
            received.extend_from_slice(&chunk[..n]);
            if is_greeted_and_answered(&mut received) {
                return true;
            }
        }
        assert!(received.is_empty());
        false
    };
    assert!(!talk("open barley"));
    assert!(talk("open sesame"));
}

/// The standard library's copy lets the kernel gather a socket's bytes before a pipe gets any.
fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        to.write_all(&buffer[..n]).unwrap();
    }
}

#[tokio::test]
async fn one_carried_stream_holds_many_connections() {
    let child = Command::new(env!("CARGO_BIN_EXE_guest"))
        .arg("--stdio")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut guest = Guest(child);
    let (mut input, mut output) = (guest.0.stdin.take().unwrap(), guest.0.stdout.take().unwrap());
    // Pipes on one side, a socket on the other, like a container engine's client.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut from_host = theirs.try_clone().unwrap();
    let mut to_host = theirs;
    std::thread::spawn(move || copy(&mut from_host, &mut input));
    std::thread::spawn(move || copy(&mut output, &mut to_host));
    ours.set_nonblocking(true).unwrap();
    let ours = tokio::net::UnixStream::from_std(ours).unwrap();

    let mut connection = yamux::Connection::new(ours.compat(), yamux::Config::default(), yamux::Mode::Client);
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(std::future::poll_fn(|context| connection.poll_new_outbound(context)).await.unwrap());
    }
    let driver = tokio::spawn(async move {
        std::future::poll_fn(|context| match connection.poll_next_inbound(context) {
            Poll::Ready(Some(Ok(_))) => panic!("the guest opens nothing"),
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        })
        .await;
    });
    // Interleaved: each has its own greeting and its own answer.
    for stream in &mut streams {
        stream.write_all(&ping()).await.unwrap();
        stream.flush().await.unwrap();
    }
    for stream in &mut streams {
        let mut received = BytesMut::new();
        let mut chunk = [0; 1024];
        while !is_greeted_and_answered(&mut received) {
            let n = stream.read(&mut chunk).await.unwrap();
            assert_ne!(n, 0, "the guest hung up");
            received.extend_from_slice(&chunk[..n]);
        }
    }
    drop(streams);
    driver.abort();
    // Without the stream, the guest has no reason to run.
    drop(driver.await);
    assert!(guest.0.wait().unwrap().success());
}

#[test]
fn sockets_of_a_network_are_handed_out_only_where_there_are_some_and_by_unix_sockets() {
    let guest = TestGuest::start();
    assert_eq!(guest.connect().fails(&Request::NetworkSockets), FailureKind::NotFound);

    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "open sesame\n").unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_guest"));
    program.args(["--tcp", &address.to_string(), "--token-file"]).arg(&token);
    let _guest = Guest(program.spawn().unwrap());
    eventually("it listens", || TcpStream::connect(address).is_ok());
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"open sesame").unwrap();
    let mut wire = BytesMut::new();
    let connect = Request::ConnectFd { port: address.port(), protocol: PortProtocol::Tcp };
    for request in [&Request::NetworkSockets, &connect] {
        encode(&Frame::request(request).unwrap(), &mut wire).unwrap();
    }
    stream.write_all(&wire).unwrap();
    let (mut received, mut piece) = (BytesMut::new(), [0; 4096]);
    let failures = loop {
        let n_read = stream.read(&mut piece).unwrap();
        assert_ne!(n_read, 0);
        received.extend_from_slice(&piece[..n_read]);
        let mut seen = received.clone();
        let mut frame = || Decoder::default().decode(&mut seen).unwrap();
        if let (Some(_hello), Some(first), Some(second)) = (frame(), frame(), frame()) {
            break [first, second].map(|answer| answer.parse::<Failure>().unwrap());
        }
    };
    assert_eq!(failures.map(|failure| failure.kind), [FailureKind::Unsupported; 2]);
}
