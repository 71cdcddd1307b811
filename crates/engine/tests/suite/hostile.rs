//! Guests that break the protocol hurt only their own request, within a time limit.

use engine::{Follow, SandboxRef, Target};
use futures_util::StreamExt;
use sandbox::{ErrorKind, ExecOutcome, ExecSpec, KillReason, SandboxState};
use test_backend::Hostility;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{EntryKind, World, assert_numbered, be_impatient, in_time, seq, text};

const ALL: [Hostility; 11] = [
    Hostility::TooLong,
    Hostility::Garbage,
    Hostility::WrongOrder,
    Hostility::EventGap,
    Hostility::EventTwice,
    Hostility::Endless,
    Hostility::Silence,
    Hostility::SilenceAfterHello,
    Hostility::Truncated,
    Hostility::NoHello,
    Hostility::SilentStart,
];
const FOR_EVER: usize = 1_000_000;

fn is_fitting(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Internal | ErrorKind::Unavailable)
}

#[tokio::test]
async fn a_request_to_a_hostile_guest_fails_in_time_and_names_the_sandbox() {
    for hostility in ALL {
        let world = World::impatient().await;
        let bad = world.create_named("bad").await.id.into();
        world.backend.be_hostile(hostility, FOR_EVER);
        let error = in_time(world.engine.stat(&world.who, &bad, "/", true)).await.unwrap_err();
        assert!(is_fitting(error.kind()) && error.to_string().contains("bad"), "{hostility:?}: {error}");
        assert!(error.next().is_some());
        let error = in_time(world.engine.processes(&world.who, &bad)).await.unwrap_err();
        assert!(is_fitting(error.kind()), "{hostility:?}: {error}");
        let write =
            world.engine.write_file(&world.who, &bad, "/a", Default::default(), super::support::bytes("x"));
        let error = in_time(write).await.unwrap_err();
        assert!(is_fitting(error.kind()), "{hostility:?}: {error}");
        // Once it behaves again, it works like any other.
        world.backend.be_hostile(hostility, 0);
        assert_eq!(world.run(&bad, "echo well").await.exit_code, Some(0), "{hostility:?}");
        in_time(world.remove(&bad)).await;
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_guest_of_another_version_is_asked_only_what_it_knows() {
    let world = World::impatient().await;
    let which = world.create_named("old").await.id.into();
    world.backend.be_hostile(Hostility::Version(1), FOR_EVER);
    in_time(world.engine.stat(&world.who, &which, "/", true)).await.unwrap();
    let error = in_time(world.engine.contexts(&world.who, &which)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("old") && error.next().is_some(), "{error}");
    world.backend.be_hostile(Hostility::Version(0), FOR_EVER);
    let error = in_time(world.engine.processes(&world.who, &which)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn a_port_is_reached_through_a_guest_that_hands_out_no_socket() {
    // One too old for it, and one whose sockets are lost on the way.
    for version in [4, guest_protocol::PROTOCOL_VERSION] {
        let world = World::new().await;
        world.backend.be_hostile(Hostility::Version(version), FOR_EVER);
        let which: SandboxRef = world.create_named("web").await.id.into();
        world.serve_echo(&which, 7).await;
        // The second time it is not even tried.
        for _ in 0..2 {
            let mut port = in_time(world.engine.connect(&world.who, &which, Target::Tcp(7))).await.unwrap();
            assert!(!port.is_socket(), "version {version}");
            port.write_all(b"x").await.unwrap();
            assert_eq!(in_time(port.read_u8()).await.unwrap(), b'x');
        }
    }
}

#[tokio::test]
async fn an_exec_in_a_hostile_guest_ends_and_the_neighbour_does_not_notice() {
    for hostility in ALL.into_iter().filter(|hostility| *hostility != Hostility::Endless) {
        let world = World::impatient().await;
        let good = world.create_named("good").await.id.into();
        world.run(&good, "true").await;
        let long = world.start_exec(&good, "echo still here; sleep 1000").await;
        let bad = world.create_named("bad").await.id.into();
        world.backend.be_hostile(hostility, FOR_EVER);
        // Started or not, it ends within our patience, with an error or an outcome.
        match in_time(world.engine.exec(&world.who, &bad, ExecSpec::shell("seq 10"))).await {
            Err(error) => assert!(is_fitting(error.kind()), "{hostility:?}: {error}"),
            Ok(exec) => {
                let done = world.wait(&bad, &exec.id).await;
                assert_eq!(
                    done.outcome,
                    Some(ExecOutcome::Killed { reason: KillReason::SandboxLost }),
                    "{hostility:?}"
                );
                assert_numbered(&world.entries(&bad, &exec.id, Follow::Yes).await);
            }
        }
        world.backend.be_hostile(hostility, 0);
        for exec in world.engine.execs(&world.who, &bad).await.unwrap() {
            // An exec that may have begun is settled once the guest can answer.
            world.wait(&bad, &exec.id).await;
        }
        assert_eq!(world.view(&good).await.n_running_execs, 1);
        assert!(world.engine.exec_view(&world.who, &good, &long.id).await.unwrap().outcome.is_none());
    }
}

#[tokio::test]
async fn output_without_end_is_held_to_the_cap_and_stops_with_the_sandbox() {
    let world = World::with(|config| {
        be_impatient(config);
        config.ledger.per_sandbox_bytes = 2 << 20;
        config.ledger.segment_bytes = 256 << 10;
    })
    .await;
    let which = world.create().await;
    world.backend.be_hostile(Hostility::Endless, FOR_EVER);
    let exec = world.engine.exec(&world.who, &which, ExecSpec::shell("true")).await.unwrap();
    // It prints far more than the cap.
    let entries = world.engine.exec_entries(&world.who, &which, &exec.id, 1, Follow::Yes).await.unwrap();
    in_time(entries.take(40).for_each(|item| async move { drop(item.unwrap()) })).await;
    let stopped =
        in_time(world.engine.stop_sandbox(&world.who, &which, Some(Default::default()))).await.unwrap();
    assert_eq!(stopped.state, SandboxState::Stopped);
    assert!(world.wait(&which, &exec.id).await.outcome.is_some());
    let logs = world.directory(&stopped).join("logs").join(exec.id.as_str());
    let on_disk: u64 =
        std::fs::read_dir(logs).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk <= 3 << 20, "{on_disk} bytes");
}

#[tokio::test]
async fn a_body_longer_than_was_asked_for_is_cut_off() {
    let world = World::impatient().await;
    let which = world.create().await;
    world.backend.be_hostile(Hostility::Endless, FOR_EVER);
    let (_, bytes) = world.engine.read_file(&world.who, &which, "/root/x", 0, Some(1000)).await.unwrap();
    let parts: Vec<_> = in_time(bytes.collect()).await;
    assert_eq!(parts.last().unwrap().as_ref().unwrap_err().kind(), ErrorKind::Internal);
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_no_line_is_lost() {
    let world = World::impatient().await;
    let which = world.create().await;
    let exec = world.start_exec(&which, "seq 200000; exit 4").await;
    // A second attach takes over, as the guest must allow: ours is closed, again and again.
    let meddler =
        sandbox::Backend::adopt(&world.backend, &world.view(&which).await.plan).await.unwrap().unwrap();
    for n in [2, 8, 16] {
        let entries = world.engine.exec_entries(&world.who, &which, &exec.id, 1, Follow::Yes).await.unwrap();
        in_time(entries.take(n).for_each(|item| async move { drop(item.unwrap()) })).await;
        world.backend.fail_next_connects(0);
        let stream = meddler.connect().await.unwrap();
        world.backend.fail_next_connects(3);
        steal(stream, exec.id.as_str()).await;
    }
    world.backend.fail_next_connects(0);
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(4));
    let entries = world.entries(&which, &exec.id, Follow::Yes).await;
    assert_numbered(&entries);
    assert!(text(&entries, EntryKind::Stdout) == seq(200_000));
}

/// Attaches to an exec and leaves without acknowledging anything.
async fn steal(mut stream: sandbox::GuestStream, exec: &str) {
    use guest_protocol::{Frame, FrameKind, Request};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let request = Request::ExecAttach { id: exec.to_owned(), from: 1 };
    let mut out = bytes::BytesMut::new();
    guest_protocol::encode(&Frame::request(&request).unwrap(), &mut out).unwrap();
    stream.write_all(&out).await.unwrap();
    // The greeting, then the answer: the exec is ours now, or over.
    let (mut decoder, mut buffer) = (guest_protocol::Decoder::default(), bytes::BytesMut::new());
    in_time(async {
        loop {
            match decoder.decode(&mut buffer).unwrap() {
                Some(frame) if frame.kind != FrameKind::Hello => return,
                Some(_) => {}
                None => assert_ne!(stream.read_buf(&mut buffer).await.unwrap(), 0),
            }
        }
    })
    .await;
}
