//! Nonsense from the host's side and malice from the workload's: the guest answers or hangs up, and lives.

use std::io::Write;

use guest_protocol::{FailureKind, Frame, FrameKind, Request, Response, StartFailure};

use crate::support::{Host, TestGuest, command, eventually, exited, shell};

fn is_well(guest: &TestGuest) {
    assert_eq!(guest.connect().ask(&Request::Ping), Ok(Response::Done));
}

fn hangs_up(mut host: Host) {
    while let Some(frame) = host.try_frame() {
        assert_eq!(frame.kind, FrameKind::Failure);
    }
}

#[test]
fn garbage_closes_the_connection_and_nothing_else() {
    let guest = TestGuest::start();
    for bytes in [
        &[0_u8; 16][..],
        &[0xff; 16],
        b"GET / HTTP/1.1\r\n\r\n",
        &[2, 0, 0, 0, 99, 1],
        &[1, 0, 0, 0, 5],
        &[5, 0, 0, 0, 2, b'n', b'o', b'p', b'e'],
    ] {
        let mut host = guest.connect();
        host.stream.write_all(bytes).unwrap();
        hangs_up(host);
        is_well(&guest);
    }
    // A frame that never ends holds one connection, not the guest.
    let mut slow = guest.connect();
    slow.stream.write_all(&[0xff, 0xff, 0, 0, 2]).unwrap();
    is_well(&guest);
}

#[test]
fn frames_out_of_turn_close_the_connection() {
    let guest = TestGuest::start();
    for kind in [FrameKind::Data, FrameKind::End, FrameKind::Ack, FrameKind::Hello, FrameKind::Response] {
        let mut host = guest.connect();
        host.send(&Frame::new(kind, vec![1; 8]));
        hangs_up(host);
    }
    guest.connect().start(&shell("e", "sleep 100"));
    let mut attached = guest.connect();
    attached.attach("e", 1);
    attached.event();
    attached.send(&Frame::new(FrameKind::Data, vec![]));
    while attached.try_frame().is_some() {}
    let mut writing = guest.connect();
    writing.request(&Request::ExecStdin { id: "e".into(), close: false });
    writing.request(&Request::Ping);
    hangs_up(writing);
    is_well(&guest);
}

#[test]
fn random_bytes_never_break_the_guest() {
    let guest = TestGuest::start();
    // A fixed generator, so that a failure can be repeated.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..300 {
        let mut host = guest.connect();
        let mut bytes: Vec<u8> = (0..random() % 200).map(|_| random() as u8).collect();
        if bytes.len() > 5 && random() % 2 == 0 {
            // Half of them look like frames, some of those like requests.
            let length = (bytes.len() - 4) as u32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[4] = 1 + (random() % 8) as u8;
        }
        host.stream.write_all(&bytes).ok();
        host.stream.shutdown(std::net::Shutdown::Write).ok();
        while host.try_frame().is_some() {}
    }
    is_well(&guest);
}

#[test]
fn requests_with_odd_values_are_answered() {
    let guest = TestGuest::start();
    for json in [
        r#"{"op":"noSuchThing"}"#,
        r#"{"op":"execSignal","id":"x","signal":-9999999999,"scope":"group"}"#,
        r#"{"op":"list","path":"/","recursive":false,"limit":-1}"#,
        r#"{"op":"read","path":"/etc/passwd","offset":-1,"length":null}"#,
        "[]",
        "{",
        "",
    ] {
        let mut host = guest.connect();
        host.send(&Frame::new(FrameKind::Request, json.as_bytes().to_vec()));
        assert_eq!(host.answer().unwrap_err().kind, FailureKind::InvalidRequest, "{json}");
    }
    is_well(&guest);
}

#[test]
fn a_host_of_a_version_that_we_do_not_speak_is_told_so() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    host.send(&Frame::new(FrameKind::Request, r#"{"op":"ping","version":0}"#.as_bytes().to_vec()));
    let failure = host.answer().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unsupported, "{failure}");
    for known in [r#"{"op":"ping"}"#, r#"{"op":"ping","version":99}"#] {
        let mut host = guest.connect();
        host.send(&Frame::new(FrameKind::Request, known.as_bytes().to_vec()));
        assert_eq!(host.answer(), Ok(Response::Done), "{known}");
    }
}

#[test]
fn no_zombie_stays() {
    let guest = TestGuest::start();
    let ran =
        guest.shell("z", "for i in 1 2 3 4 5 6 7 8 9; do (setsid true &) ; done; (sleep 0.05 &); echo done");
    assert_eq!(ran.stdout, "done\n");
    eventually("all orphans are reaped", || guest.zombies().is_empty());
}

#[test]
fn many_execs_at_once_each_keep_their_own() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    for n in 0..200 {
        host.start(&shell(&format!("e{n}"), &format!("echo {n}; exit {n}")));
    }
    for n in 0..200 {
        let ran = guest.connect().follow(&format!("e{n}"));
        assert_eq!((ran.stdout, ran.report), (format!("{n}\n"), exited(n)));
    }
    assert!(guest.zombies().is_empty());
}

#[test]
fn too_many_execs_are_refused_until_some_are_taken() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    for n in 0..512 {
        host.start(&command(&format!("e{n}"), &["true"]));
    }
    let one_more = Request::ExecStart(command("more", &["true"]));
    assert_eq!(host.fails(&one_more), FailureKind::LimitReached);
    guest.connect().follow("e7");
    eventually("there is room again", || host.ask(&one_more).is_ok());
}

#[test]
fn an_ordinary_user_can_have_a_guest() {
    let guest = TestGuest::start_as(54_321, 64);
    let mut start = shell("own", "id -u; id -g");
    assert_eq!(guest.connect().not_started(&start).0, StartFailure::BadUser);
    start.id = "own again".to_owned();
    start.user = "54321:54321".to_owned();
    assert_eq!(guest.connect().run(&start).stdout, "54321\n54321\n");
}

#[test]
fn a_guest_without_a_process_to_spare_still_answers() {
    let guest = TestGuest::start_as(54_322, 1);
    let mut host = guest.connect();
    let mut start = command("e", &["true"]);
    start.user = "54322:54322".to_owned();
    let (reason, message) = host.not_started(&start);
    assert_eq!(reason, StartFailure::LimitReached, "{message}");
    // Not even a thread for files.
    assert_eq!(host.fails(&Request::Stat { path: "/".into(), follow: true }), FailureKind::LimitReached);
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));
}

#[test]
fn a_workload_that_swaps_directories_leads_nobody_astray() {
    let guest = TestGuest::start();
    let root = guest.path("r");
    let victim = guest.path("victim");
    std::fs::create_dir_all(format!("{root}/d/e")).unwrap();
    std::fs::create_dir_all(&victim).unwrap();
    std::fs::write(format!("{victim}/file"), "precious").unwrap();
    let script = format!("cd {root}; while :; do mv d x; ln -s {victim} d; rm d; mv x d; done");
    let mut host = guest.connect();
    host.start(&shell("swap", &script));
    for _ in 0..200 {
        host.ask(&Request::Chown { path: root.clone(), uid: Some(9), gid: Some(9), recursive: true }).ok();
        host.ask(&Request::Chmod { path: root.clone(), mode: 0o777, recursive: true }).ok();
    }
    host.ask(&Request::Remove { path: format!("{root}/d/e"), recursive: true }).ok();
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(format!("{victim}/file")).unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o777), (0, 0o644));
    is_well(&guest);
}
