//! Connections: the truth about refusals, bytes both ways, limits.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use sandbox::network::{NetworkEventKind, Preset};

use super::{
    edge::{Edge, plan},
    world::{PATIENCE, echo, in_a_world, serve, shell},
};

fn connect(to: &str) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to.parse().unwrap(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Ok(stream)
}

/// Sends and receives at the same time, and checks every byte.
fn round_trip(stream: TcpStream, bytes: usize) {
    let pattern = |at: usize| u8::try_from((at / 7 + at / 65_537) % 251).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let sending = thread::spawn(move || {
        let all: Vec<_> = (0..bytes).map(pattern).collect();
        writer.write_all(&all).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    (&stream).read_to_end(&mut got).unwrap();
    sending.join().unwrap();
    assert_eq!(got.len(), bytes);
    assert!(got.iter().enumerate().all(|(at, byte)| *byte == pattern(at)));
}

#[test]
fn an_allowed_address_is_reached_and_ten_megabytes_pass_both_ways() {
    in_a_world(|| {
        let edge = Edge::start();
        serve("93.184.216.34:7000", echo);
        serve("[2606:4700::1]:7000", echo);
        let inside = edge.add(1, &plan(Preset::None, &["93.184.216.34", "[2606:4700::1]:7000"]));
        for to in ["93.184.216.34:7000", "[2606:4700::1]:7000"] {
            inside.run(move || round_trip(connect(to).unwrap(), 10_000_000));
        }
        let event = edge.event(|event| event.kind == NetworkEventKind::Allowed);
        assert_eq!((event.address, event.port), (Some([93, 184, 216, 34].into()), 7000));
        let counters = edge.counters(|counters| counters.received_bytes >= 20_000_000);
        assert_eq!((counters.sent_bytes, counters.connections), (20_000_000, 2));
    });
}

#[test]
fn refused_outside_is_refused_inside_and_denied_is_refused_at_once() {
    in_a_world(|| {
        let edge = Edge::start();
        serve("93.184.216.35:7000", echo);
        serve("[2606:4700::2]:7000", echo);
        let inside = edge.add(1, &plan(Preset::None, &["93.184.216.34", "[2606:4700::1]"]));
        // Nobody listens there.
        for to in ["93.184.216.34:7001", "[2606:4700::1]:7001"] {
            let error = inside.run(move || connect(to).unwrap_err());
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{to}");
        }
        edge.event(|event| event.kind == NetworkEventKind::Failed && event.port == 7001);
        // Somebody listens there, and the policy says no.
        for to in ["93.184.216.35:7000", "[2606:4700::2]:7000"] {
            let took = inside.run(move || {
                let times = (0..20).map(|_| {
                    let start = Instant::now();
                    assert_eq!(connect(to).unwrap_err().kind(), ErrorKind::ConnectionRefused);
                    start.elapsed()
                });
                let mut times: Vec<_> = times.collect();
                times.sort();
                times
            });
            println!("denied connect to {to}: p50 {:?}, worst {:?}", took[10], took[19]);
            assert!(took[10] < Duration::from_millis(20), "{took:?}");
        }
        let event = edge.denial(7000);
        assert!(event.rule.starts_with("denied"), "{event:?}");
    });
}

#[test]
fn no_way_leads_to_errors_not_to_silence() {
    in_a_world(|| {
        let edge = Edge::start();
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        // The world has no route there.
        let error = inside.run(|| connect("198.41.0.4:80").unwrap_err());
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{error}");
    });
}

#[test]
fn presets_decide_by_address() {
    in_a_world(|| {
        let edge = Edge::start();
        for at in ["93.184.216.34:80", "10.1.2.3:80", "169.254.169.254:80", "[2606:4700::1]:80"] {
            serve(at, echo);
        }
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        let reached = |to: &'static str| inside.run(move || connect(to).is_ok());
        assert!(reached("93.184.216.34:80"));
        assert!(reached("[2606:4700::1]:80"));
        assert!(!reached("10.1.2.3:80"));
        assert!(!reached("169.254.169.254:80"));
        assert!(!reached("[::ffff:169.254.169.254]:80"));
        assert!(!reached("[64:ff9b::a9fe:a9fe]:80"));
        edge.update(1, &plan(Preset::PublicPrivate, &[]));
        assert!(reached("10.1.2.3:80"));
        assert!(!reached("169.254.169.254:80"));
        edge.update(1, &plan(Preset::All, &[]));
        assert!(!reached("169.254.169.254:80"));
        edge.update(1, &plan(Preset::None, &["169.254.169.254:80"]));
        assert!(reached("169.254.169.254:80"));
        assert!(!reached("93.184.216.34:80"));
    });
}

#[test]
fn the_host_and_its_own_listeners() {
    in_a_world(|| {
        let mut around = edge::Around::default();
        around.surroundings.closed.push("127.0.0.1:7777".parse().unwrap());
        let edge = Edge::start_with(around);
        serve("127.0.0.1:3000", echo);
        serve("[::1]:3001", echo);
        serve("127.0.0.1:7777", echo);
        let inside = edge.add(1, &plan(Preset::All, &["host:3000", "host:3001", "host:7777"]));
        let address = inside.run(|| shell("getent ahostsv4 host.warren.internal | head -1 | cut -d' ' -f1"));
        assert_eq!(address.trim(), "169.254.1.2");
        let reached = |to: &'static str| inside.run(move || connect(to).is_ok());
        assert!(reached("169.254.1.2:3000"));
        assert!(reached("169.254.1.2:3001"));
        assert!(!reached("169.254.1.2:7777"));
        assert!(!reached("169.254.1.2:22"));
    });
}

#[test]
fn half_closes_and_resets_are_carried_over() {
    in_a_world(|| {
        let edge = Edge::start();
        // Answers after the end of the question.
        serve("93.184.216.34:7000", |mut stream: TcpStream| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        // Resets in the middle: unread bytes make a close a reset.
        serve("93.184.216.34:7001", |mut stream: TcpStream| {
            stream.read_exact(&mut [0; 1]).unwrap();
            stream.write_all(b"x").unwrap();
            thread::sleep(Duration::from_millis(100));
        });
        let (ended, end) = mpsc::channel();
        serve("93.184.216.34:7002", move |mut stream: TcpStream| {
            stream.write_all(b"hello").unwrap();
            ended.send(stream.read(&mut [0; 8]).map_err(|error| error.kind())).unwrap();
        });
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        inside.run(|| round_trip(connect("93.184.216.34:7000").unwrap(), 100_000));
        let error = inside.run(|| {
            let mut stream = connect("93.184.216.34:7001").unwrap();
            stream.write_all(&[0; 100]).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        // The client goes away without reading.
        inside.run(|| {
            let stream = connect("93.184.216.34:7002").unwrap();
            stream.peek(&mut [0; 1]).unwrap();
        });
        assert_eq!(end.recv_timeout(PATIENCE).unwrap(), Err(ErrorKind::ConnectionReset));
    });
}

#[test]
fn a_new_policy_closes_what_it_does_not_allow() {
    in_a_world(|| {
        let edge = Edge::start();
        serve("93.184.216.34:7000", echo);
        serve("93.184.216.35:7000", echo);
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        let talk = |stream: &mut TcpStream| {
            stream.write_all(b"x")?;
            stream.read_exact(&mut [0; 1])
        };
        let (mut one, mut other) =
            inside.run(|| (connect("93.184.216.34:7000").unwrap(), connect("93.184.216.35:7000").unwrap()));
        talk(&mut one).unwrap();
        talk(&mut other).unwrap();
        edge.update(1, &plan(Preset::None, &["93.184.216.35"]));
        assert_eq!(one.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        talk(&mut other).unwrap();
        edge.denial(7000);
        assert!(inside.run(|| connect("93.184.216.34:7000").is_err()));
        // Without a sandbox nobody answers, and what was open is closed.
        edge.remove(1);
        assert_eq!(other.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let error = inside.run(|| {
            TcpStream::connect_timeout(&"93.184.216.35:7000".parse().unwrap(), Duration::from_millis(300))
                .unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_thousand_connections_in_quick_succession() {
    in_a_world(|| {
        let edge = Edge::start();
        serve("93.184.216.34:7000", |mut stream: TcpStream| stream.write_all(b"x").unwrap());
        let mut fast = plan(Preset::Public, &[]);
        fast.limits.connects_per_second = 10_000;
        let inside = edge.add(1, &fast);
        let start = Instant::now();
        let workers: Vec<_> = (0..8)
            .map(|_| {
                inside.start(|| {
                    let mut times = Vec::new();
                    for _ in 0..125 {
                        let start = Instant::now();
                        connect("93.184.216.34:7000").unwrap().read_exact(&mut [0; 1]).unwrap();
                        times.push(start.elapsed());
                    }
                    times
                })
            })
            .collect();
        let mut times: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        times.sort();
        let rate = 1000.0 / start.elapsed().as_secs_f64();
        println!(
            "1,000 connects: {rate:.0}/s, connect and a byte p50 {:?}, p99 {:?}",
            times[500], times[990]
        );
        assert!(start.elapsed() < PATIENCE);
    });
}

#[test]
fn connections_and_their_rate_are_limited() {
    in_a_world(|| {
        let edge = Edge::start();
        serve("93.184.216.34:7000", echo);
        let mut few = plan(Preset::Public, &[]);
        few.limits.connections = 10;
        let inside = edge.add(1, &few);
        let (open, refused) = inside.run(|| {
            let open: Vec<_> = (0..10).map(|_| connect("93.184.216.34:7000").unwrap()).collect();
            (open, connect("93.184.216.34:7000").unwrap_err().kind())
        });
        assert_eq!(refused, ErrorKind::ConnectionRefused);
        assert!(edge.denial(7000).rule.contains("limit"));
        drop(open);
        // Each ends within a moment, and makes room.
        let start = Instant::now();
        while inside.run(|| connect("93.184.216.34:7000").is_err()) {
            assert!(start.elapsed() < PATIENCE);
        }
        // Connections that were dropped take a moment to end: none of them may count here.
        few.limits.connections = 100;
        few.limits.connects_per_second = 10;
        edge.update(1, &few);
        let took = inside.run(|| {
            let start = Instant::now();
            for _ in 0..15 {
                drop(connect("93.184.216.34:7000").unwrap());
            }
            start.elapsed()
        });
        assert!(took > Duration::from_millis(300), "{took:?}");
    });
}

#[test]
fn a_slow_reader_does_not_stall_its_neighbours() {
    in_a_world(|| {
        let edge = Edge::start();
        serve("93.184.216.34:7000", |mut stream: TcpStream| while stream.write_all(&[0; 65_536]).is_ok() {});
        serve("93.184.216.34:7001", echo);
        let (slow, quick) =
            (edge.add(1, &plan(Preset::Public, &[])), edge.add(2, &plan(Preset::Public, &[])));
        let held = slow.run(|| (0..50).map(|_| connect("93.184.216.34:7000").unwrap()).collect::<Vec<_>>());
        for inside in [&slow, &quick] {
            let took = inside.run(|| {
                let start = Instant::now();
                round_trip(connect("93.184.216.34:7001").unwrap(), 1_000_000);
                start.elapsed()
            });
            assert!(took < Duration::from_secs(3), "{took:?}");
        }
        drop(held);
    });
}

#[test]
fn bytes_are_held_to_their_limit() {
    in_a_world(|| {
        let edge = Edge::start();
        serve("93.184.216.34:7000", echo);
        let mut slow = plan(Preset::Public, &[]);
        slow.limits.bytes_per_second = Some(sandbox::ByteSize(500_000));
        let inside = edge.add(1, &slow);
        let took = inside.run(|| {
            let start = Instant::now();
            round_trip(connect("93.184.216.34:7000").unwrap(), 1_000_000);
            start.elapsed()
        });
        assert!(took > Duration::from_millis(700) && took < Duration::from_secs(6), "{took:?}");
    });
}

#[test]
fn a_server_inside_is_reached_inside_and_catches_nothing_else() {
    in_a_world(|| {
        let edge = Edge::start();
        serve("93.184.216.34:7000", |mut stream: TcpStream| stream.write_all(b"outside").unwrap());
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        let (near, far) = inside.run(|| {
            let listener = TcpListener::bind("0.0.0.0:7000").unwrap();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    stream.unwrap().write_all(b"inside").unwrap();
                }
            });
            let hear = |to: &str| {
                let mut text = String::new();
                connect(to).unwrap().read_to_string(&mut text).unwrap();
                text
            };
            let own = format!("{}:7000", sandbox::network::OWN_ADDRESS_V4);
            ([hear("127.0.0.1:7000"), hear(&own)], hear("93.184.216.34:7000"))
        });
        assert_eq!((near, far), (["inside".to_owned(), "inside".to_owned()], "outside".to_owned()));
    });
}

#[test]
fn the_edge_ends_with_the_daemon() {
    in_a_world(|| {
        let mut edge = Edge::start();
        serve("93.184.216.34:7000", echo);
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        let mut open = inside.run(|| connect("93.184.216.34:7000").unwrap());
        assert_eq!(format!("{:?}", edge.stop()), format!("{:?}", std::process::ExitCode::SUCCESS));
        assert!(matches!(open.read(&mut [0; 1]), Ok(0) | Err(_)));
    });
}
