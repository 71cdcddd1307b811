//! Datagrams: relayed where a rule says so, refused at once elsewhere.

use std::{
    io::ErrorKind,
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use sandbox::network::{NetworkEventKind, Preset};

use super::{
    edge::{Edge, plan},
    world::{PATIENCE, in_a_world},
};

fn echo(at: &'static str) {
    let socket = UdpSocket::bind(at).unwrap();
    thread::spawn(move || {
        let mut buffer = vec![0; 65_535];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[..length], from).unwrap();
        }
    });
}

fn ask(to: &str, payload: &[u8]) -> std::io::Result<Vec<u8>> {
    let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(payload)?;
    let mut buffer = vec![0; 65_535];
    let length = socket.recv(&mut buffer)?;
    Ok(buffer[..length].to_vec())
}

#[test]
fn datagrams_pass_where_a_rule_allows_them_and_are_refused_elsewhere() {
    in_a_world(|| {
        let edge = Edge::start();
        for at in ["93.184.216.34:123", "[2606:4700::1]:123", "93.184.216.34:443"] {
            echo(at);
        }
        let inside =
            edge.add(1, &plan(Preset::Public, &["udp@93.184.216.34:123,124", "udp@[2606:4700::1]:123"]));
        for to in ["93.184.216.34:123", "[2606:4700::1]:123"] {
            for size in [0, 1, 1000, 60_000] {
                let payload = vec![7; size];
                let back = inside.run(move || (ask(to, &payload).unwrap() == payload, payload.len()));
                assert_eq!(back, (true, size), "{to}");
            }
        }
        edge.event(|event| event.kind == NetworkEventKind::Allowed && event.port == 123);
        // Allowed, and nobody is there; not allowed, and somebody is.
        for to in ["93.184.216.34:124", "93.184.216.34:443", "[2606:4700::1]:443", "8.8.8.8:853"] {
            let (error, took) = inside.run(move || {
                let start = Instant::now();
                (ask(to, b"x").unwrap_err().kind(), start.elapsed())
            });
            assert_eq!(error, ErrorKind::ConnectionRefused, "{to}");
            assert!(took < Duration::from_millis(500), "{to}: {took:?}");
        }
        assert!(edge.denial(443).rule.contains("UDP needs a rule"));
        // A new policy ends flows.
        edge.update(1, &plan(Preset::Public, &[]));
        assert_eq!(
            inside.run(|| ask("93.184.216.34:123", b"x").unwrap_err().kind()),
            ErrorKind::ConnectionRefused
        );
    });
}

#[test]
fn the_number_of_flows_is_limited() {
    in_a_world(|| {
        let edge = Edge::start();
        echo("93.184.216.34:123");
        let mut few = plan(Preset::None, &["udp@93.184.216.34:123"]);
        few.limits.udp_flows = 5;
        let inside = edge.add(1, &few);
        let refused = inside.run(|| (0..8).filter(|_| ask("93.184.216.34:123", b"x").is_err()).count());
        assert_eq!(refused, 3);
        assert!(edge.denial(123).rule.contains("limit"));
    });
}
