//! Numbers, printed by `cargo test -p guest speed -- --nocapture`. The bounds are loose: they catch a wrong turn, not noise.

use std::time::{Duration, Instant};

use guest_protocol::{Frame, FrameKind, MAX_DATA_BYTES, Request, Response, WriteMode};

use crate::support::{Host, TestGuest, cell, command};

const ROUNDS: usize = 200;
const FILE_BYTES: usize = 256 * 1024 * 1024;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn timed(mut round: impl FnMut(usize)) -> Duration {
    let times = (0..ROUNDS).map(|n| {
        let begin = Instant::now();
        round(n);
        begin.elapsed()
    });
    median(times.collect())
}

#[test]
fn an_exec_costs_little_more_than_its_process() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let ping = timed(|_| assert_eq!(host.ask(&Request::Ping), Ok(Response::Done)));
    let started = timed(|n| assert!(host.start(&command(&format!("s{n}"), &["/bin/true"])) > 0));
    let bare = timed(|_| assert!(std::process::Command::new("/bin/true").status().unwrap().success()));
    let whole = timed(|n| {
        let mut host = guest.connect();
        host.run(&command(&format!("w{n}"), &["/bin/true"]));
    });
    println!("ping {ping:?}, start {started:?}, start to closed {whole:?}, bare spawn and wait {bare:?}");
    assert!(whole < bare + Duration::from_millis(10));
}

#[test]
fn a_warm_cell_costs_little() {
    let guest = TestGuest::start();
    let mut before = Vec::new();
    let mut measure = |language: &str, code: &str| {
        timed(|n| {
            let mut host = guest.connect();
            host.run_cell(&cell(&format!("{language}{code}{n}"), language, code));
            before.push(host);
        })
    };
    let (python, bash) = (measure("python", "x = 1"), measure("bash", "x=1"));
    println!("a warm cell, connecting included: python {python:?}, bash {bash:?}");
    assert!(python < Duration::from_millis(20) && bash < Duration::from_millis(20));
}

fn per_second(begin: Instant) -> f64 {
    FILE_BYTES as f64 / begin.elapsed().as_secs_f64() / f64::from(1 << 30)
}

/// Reads a body away without keeping it, as a host that passes it on would.
fn skip_body(host: &mut Host) -> usize {
    let mut bytes = 0;
    loop {
        let frame = host.frame();
        match frame.kind {
            FrameKind::End => return bytes,
            _ => bytes += frame.payload.len(),
        }
    }
}

#[test]
fn files_move_fast() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    // In memory, so that the disk is not what is measured.
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("file").to_str().unwrap().to_owned();
    let write = Request::Write { path: path.clone(), write: WriteMode::Replace, mode: None, parents: false };
    let frame = Frame::new(FrameKind::Data, vec![7; MAX_DATA_BYTES]);
    let mut best = (0.0_f64, 0.0_f64);
    for _ in 0..3 {
        let begin = Instant::now();
        host.request(&write);
        for _ in 0..FILE_BYTES / MAX_DATA_BYTES {
            host.send(&frame);
        }
        host.send(&Frame::new(FrameKind::End, vec![]));
        assert_eq!(host.answer(), Ok(Response::Written { bytes: FILE_BYTES as u64 }));
        best.0 = best.0.max(per_second(begin));
        let begin = Instant::now();
        assert!(host.ask(&Request::Read { path: path.clone(), offset: 0, length: None }).is_ok());
        assert_eq!(skip_body(&mut host), FILE_BYTES);
        best.1 = best.1.max(per_second(begin));
    }
    println!("write {:.2} GiB/s, read {:.2} GiB/s", best.0, best.1);
    assert!(best.0 > 0.05 && best.1 > 0.05);
}
