//! Streams to ports and sockets inside, and the list of processes.

use std::{
    io::{IoSliceMut, Read, Write},
    mem::MaybeUninit,
    net::{Ipv6Addr, Shutdown, TcpListener, TcpStream, UdpSocket},
    os::{fd::OwnedFd, unix::net::UnixListener},
    thread,
};

use bytes::BytesMut;
use guest_protocol::{Decoder, FailureKind, Frame, FrameKind, PortProtocol, Request, Response, Target};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::support::{Host, TestGuest, shell};

fn open(guest: &TestGuest, target: Target) -> Host {
    let mut host = guest.connect();
    assert_eq!(host.ask(&Request::Connect { target }), Ok(Response::Connected));
    host
}

/// Reads to the end, then answers and closes: works only if each direction passes on its end separately.
fn reverse(mut stream: impl Read + Write) {
    let mut text = vec![];
    stream.read_to_end(&mut text).unwrap();
    text.reverse();
    stream.write_all(&text).unwrap();
}

fn check_reversed(mut host: Host) {
    let text: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    host.send_body(&text);
    let mut expected = text;
    expected.reverse();
    assert!(host.body() == expected);
    assert!(host.try_frame().is_none(), "both sides have ended");
}

#[test]
fn a_stream_to_a_port_half_closes_both_ways() {
    let guest = TestGuest::start();
    for listener in
        [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap()]
    {
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || reverse(listener.accept().unwrap().0));
        check_reversed(open(&guest, Target::Tcp(port)));
        server.join().unwrap();
    }
}

#[test]
fn a_stream_to_a_socket_works_alike() {
    let guest = TestGuest::start();
    let path = guest.path("service");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || reverse(listener.accept().unwrap().0));
    check_reversed(open(&guest, Target::Unix(path)));
    server.join().unwrap();
}

#[test]
fn a_server_may_end_first() {
    let guest = TestGuest::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        heard
    });
    let mut host = open(&guest, Target::Tcp(port));
    assert_eq!(host.body(), b"hello");
    host.send_body(b"still here");
    assert_eq!(server.join().unwrap(), "still here");
}

#[test]
fn a_host_that_vanishes_closes_the_stream_inside() {
    let guest = TestGuest::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for half_closed in [false, true] {
        let mut host = open(&guest, Target::Tcp(port));
        let (mut inside, _) = listener.accept().unwrap();
        if half_closed {
            host.send(&Frame::new(FrameKind::End, vec![]));
        }
        drop(host);
        // An end or a reset, but not a hang.
        inside.read_to_end(&mut vec![]).ok();
    }
}

#[test]
fn streams_to_nothing_are_failures() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let connect = |target| Request::Connect { target };
    assert_eq!(host.fails(&connect(Target::Tcp(port))), FailureKind::WrongState);
    assert_eq!(host.fails(&connect(Target::Tcp(0))), FailureKind::InvalidRequest);
    assert_eq!(host.fails(&connect(Target::Unix(guest.path("no")))), FailureKind::NotFound);
    assert_eq!(host.fails(&connect(Target::Unix("no".into()))), FailureKind::InvalidRequest);
    assert_eq!(host.fails(&connect(Target::Unix("/etc/passwd".into()))), FailureKind::WrongState);
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));
}

/// Asks for a socket and takes what is attached to the answer.
fn handed_out(host: &mut Host, port: u16, protocol: PortProtocol) -> OwnedFd {
    host.request(&Request::ConnectFd { port, protocol });
    let (mut bytes, mut space) = ([0; 4096], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(&host.stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty()).unwrap();
    let frame = Decoder::default().decode(&mut BytesMut::from(&bytes[..received.bytes])).unwrap().unwrap();
    assert_eq!(frame.parse::<Response>().unwrap(), Response::Socket);
    let attached = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
        _ => vec![],
    });
    let [socket]: [OwnedFd; 1] = attached.collect::<Vec<_>>().try_into().unwrap();
    socket
}

#[test]
fn a_connected_socket_is_handed_out_and_not_kept() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let at = listener.local_addr().unwrap();
        let server = thread::spawn(move || reverse(listener.accept().unwrap().0));
        let mut stream = TcpStream::from(handed_out(&mut host, at.port(), PortProtocol::Tcp));
        stream.set_nonblocking(false).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), at);
        stream.write_all(b"abc").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "cba");
        server.join().unwrap();

        let server = UdpSocket::bind(address).unwrap();
        let at = server.local_addr().unwrap();
        let client = UdpSocket::from(handed_out(&mut host, at.port(), PortProtocol::Udp));
        client.send(b"ping").unwrap();
        let (n_bytes, from) = server.recv_from(&mut [0; 16]).unwrap();
        assert_eq!((n_bytes, from), (4, client.local_addr().unwrap()));
    }
    // The guest has closed its own copy, so this is the last one.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    drop(handed_out(&mut host, listener.local_addr().unwrap().port(), PortProtocol::Tcp));
    assert_eq!(listener.accept().unwrap().0.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done), "the connection takes the next request");
}

#[test]
fn sockets_to_nothing_are_failures() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let connect = |port, protocol| Request::ConnectFd { port, protocol };
    assert_eq!(host.fails(&connect(port, PortProtocol::Tcp)), FailureKind::WrongState);
    for protocol in [PortProtocol::Tcp, PortProtocol::Udp] {
        assert_eq!(host.fails(&connect(0, protocol)), FailureKind::InvalidRequest);
    }
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));
    let unknown = r#"{"op":"connectFd","port":80,"protocol":"sctp","version":5}"#;
    host.send(&Frame::new(FrameKind::Request, unknown.as_bytes()));
    assert_eq!(host.answer().unwrap_err().kind, FailureKind::InvalidRequest);
}

#[test]
fn processes_know_their_exec() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let pid = host.start(&shell("p", "setsid sleep 1001 & sleep 1002 & echo ready; wait"));
    let mut events = guest.connect();
    events.attach("p", 1);
    events.wait_for("ready");
    let all = match host.ask(&Request::Processes) {
        Ok(Response::Processes { processes }) => processes,
        other => panic!("{other:?}"),
    };
    let of_exec: Vec<_> = all.iter().filter(|process| process.exec.as_deref() == Some("p")).collect();
    assert!(of_exec.iter().any(|process| process.pid == pid && process.user == 0), "{of_exec:?}");
    assert_eq!(of_exec.len(), 3, "{of_exec:?}");
    let own = all.iter().find(|process| process.pid == guest.pid() as i32).unwrap();
    assert!(own.exec.is_none() && own.memory_bytes > 0);
}
