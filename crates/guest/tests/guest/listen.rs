//! Ports inside whose clients are served by the host.

use std::{
    io::{Read, Write},
    net::{Ipv6Addr, Shutdown, TcpListener, TcpStream},
};

use guest_protocol::{FailureKind, FrameKind, Incoming, Request, Response};

use crate::support::{Host, TestGuest, command, eventually};

fn listen(guest: &TestGuest) -> (Host, u16) {
    let mut host = guest.connect();
    match host.ask(&Request::Listen { port: 0 }) {
        Ok(Response::Listening { port }) => (host, port),
        other => panic!("{other:?}"),
    }
}

fn incoming(host: &mut Host) -> u64 {
    let frame = host.frame();
    assert_eq!(frame.kind, FrameKind::Data);
    frame.parse::<Incoming>().unwrap().incoming
}

fn client(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    stream
}

/// Whether the other end has closed, in whatever way.
fn is_closed(mut stream: &TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0) | Err(_))
}

#[test]
fn each_client_becomes_a_stream_of_the_hosts() {
    let guest = TestGuest::start();
    let (mut listener, port) = listen(&guest);
    let mut clients = [client(port), client(port)];
    let numbers = [incoming(&mut listener), incoming(&mut listener)];
    // Accepted in reverse: each number means its own client.
    for (number, client) in numbers.iter().zip(&mut clients).rev() {
        let mut host = guest.connect();
        assert_eq!(host.ask(&Request::Accept { incoming: *number }), Ok(Response::Connected));
        let question = format!("I am {number}").into_bytes();
        client.write_all(&question).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(host.body(), question);
        let answer: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
        host.send_body(&answer);
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).unwrap();
        assert!(heard == answer);
        assert!(host.try_frame().is_none(), "both sides have ended");
    }
}

#[test]
fn programs_inside_are_clients_too() {
    let guest = TestGuest::start();
    let (mut listener, port) = listen(&guest);
    let mut running = guest.connect();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo question >&3 && cat <&3");
    running.start(&command("ask", &["/bin/bash", "-c", &script]));
    let mut host = guest.connect();
    let number = incoming(&mut listener);
    assert_eq!(host.ask(&Request::Accept { incoming: number }), Ok(Response::Connected));
    assert_eq!(&host.frame().payload[..], b"question\n");
    host.send_body(b"answer\n");
    assert_eq!(running.follow("ask").stdout, "answer\n");
}

#[test]
fn the_listener_ends_with_its_connection_and_so_do_those_who_wait() {
    let guest = TestGuest::start();
    let (mut listener, port) = listen(&guest);
    let waiting = client(port);
    let number = incoming(&mut listener);
    drop(listener);
    assert!(is_closed(&waiting));
    eventually("nobody listens", || TcpStream::connect(("127.0.0.1", port)).is_err());
    assert_eq!(guest.connect().fails(&Request::Accept { incoming: number }), FailureKind::NotFound);
    // The same port again: a returning host finds its clients still connecting there.
    let mut host = guest.connect();
    assert_eq!(host.ask(&Request::Listen { port }), Ok(Response::Listening { port }));
}

#[test]
fn a_client_is_taken_once_and_strangers_are_not_found() {
    let guest = TestGuest::start();
    let (mut listener, port) = listen(&guest);
    let _client = client(port);
    let number = incoming(&mut listener);
    let mut host = guest.connect();
    assert_eq!(host.ask(&Request::Accept { incoming: number }), Ok(Response::Connected));
    for incoming in [number, 0, number + 1, u64::MAX] {
        let mut other = guest.connect();
        assert_eq!(other.fails(&Request::Accept { incoming }), FailureKind::NotFound);
        assert_eq!(other.ask(&Request::Ping), Ok(Response::Done), "the connection can go on");
    }
}

#[test]
fn only_loopback_is_listened_on_and_a_taken_port_is_told() {
    let guest = TestGuest::start();
    let (_listener, port) = listen(&guest);
    assert!(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).is_err());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ours = table.lines().filter(|line| line.contains(&format!(":{port:04X} 00000000:0000 0A")));
    assert!(ours.clone().count() == 1 && ours.clone().all(|line| line.contains("0100007F:")), "{table}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    assert_eq!(guest.connect().fails(&Request::Listen { port }), FailureKind::AlreadyExists);
}

#[test]
fn listeners_and_waiting_clients_are_bounded() {
    let guest = TestGuest::start();
    let mut listeners: Vec<_> = (0..8).map(|_| listen(&guest)).collect();
    assert_eq!(guest.connect().fails(&Request::Listen { port: 0 }), FailureKind::LimitReached);
    let (listener, port) = &mut listeners[0];
    // The kernel accepts more than the guest does.
    let clients: Vec<_> = (0..40).map(|_| client(*port)).collect();
    let numbers: Vec<_> = (0..32).map(|_| incoming(listener)).collect();
    let mut host = guest.connect();
    assert_eq!(host.ask(&Request::Accept { incoming: numbers[0] }), Ok(Response::Connected));
    assert!(incoming(listener) > numbers[31], "its place is another's");
    // A client that nobody accepts in time is closed.
    assert!(is_closed(&clients[1]));
    drop(listeners);
    eventually("places are free again", || guest.connect().ask(&Request::Listen { port: 0 }).is_ok());
}
