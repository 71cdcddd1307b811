use std::time::Duration;

use bytes::Bytes;
use engine::{GrepQuery, SandboxRef, Target, WatchKind, WriteOptions};
use futures_util::{StreamExt, stream};
use sandbox::{ErrorKind, ExecSpec, FileKind, SandboxSpec, WriteMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{World, bytes, collect, in_time};

#[tokio::test]
async fn files_are_written_read_listed_and_changed() {
    let world = World::new().await;
    let which = world.create().await;
    let (engine, who) = (&world.engine, &world.who);
    world.write(&which, "/root/a.txt", "0123456789").await;
    let (entry, part) = engine.read_file(who, &which, "/root/a.txt", 3, Some(4)).await.unwrap();
    assert_eq!((entry.size, entry.kind), (10, FileKind::File));
    assert_eq!(collect(part).await.unwrap(), "3456");

    let append = WriteOptions { mode: WriteMode::Append, ..WriteOptions::default() };
    assert_eq!(engine.write_file(who, &which, "/root/a.txt", append, bytes("ab")).await.unwrap(), 2);
    let new = WriteOptions { mode: WriteMode::CreateNew, ..WriteOptions::default() };
    let error = engine.write_file(who, &which, "/root/a.txt", new, bytes("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(world.read(&which, "/root/a.txt").await, "0123456789ab");

    engine.mkdir(who, &which, "/root/d/e", true, None).await.unwrap();
    engine.copy_path(who, &which, "/root/a.txt", "/root/d/e/b.txt", false).await.unwrap();
    engine.rename_path(who, &which, "/root/d/e/b.txt", "/root/d/e/c.txt", false).await.unwrap();
    engine.symlink(who, &which, "c.txt", "/root/d/e/link").await.unwrap();
    assert_eq!(engine.read_link(who, &which, "/root/d/e/link").await.unwrap(), "c.txt");
    engine.chmod(who, &which, "/root/d/e/c.txt", 0o600, false).await.unwrap();
    engine.chown(who, &which, "/root/d/e/c.txt", Some(1), Some(2), false).await.unwrap();
    let entry = engine.stat(who, &which, "/root/d/e/link", true).await.unwrap();
    assert_eq!((entry.mode & 0o777, entry.uid, entry.gid), (0o600, 1, 2));

    let listing = engine.list(who, &which, "/root", true, 100).await.unwrap();
    assert!(listing.entries.iter().any(|entry| entry.path == "/root/d/e/c.txt") && !listing.truncated);
    assert!(engine.list(who, &which, "/root", true, 1).await.unwrap().truncated);
    let found = engine.glob(who, &which, "/root", "**/*.txt", 100).await.unwrap();
    assert_eq!(found.paths, ["/root/a.txt", "/root/d/e/c.txt"]);
    let query = GrepQuery {
        root: "/root".into(),
        pattern: "789AB".into(),
        include: None,
        ignore_case: true,
        literal: true,
        limit: 10,
    };
    let found = engine.grep(who, &which, query).await.unwrap();
    assert_eq!(found.matches.len(), 2);
    engine.remove_path(who, &which, "/root/d", true).await.unwrap();
    assert_eq!(engine.stat(who, &which, "/root/d", true).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn relative_paths_start_at_the_working_directory() {
    let world = World::new().await;
    let spec = SandboxSpec { cwd: Some("/tmp/work".into()), ..SandboxSpec::default() };
    let which = SandboxRef::from(&world.engine.create_sandbox(&world.who, spec).await.unwrap().id);
    let (engine, who) = (&world.engine, &world.who);
    let parents = WriteOptions { parents: true, ..WriteOptions::default() };
    engine.write_file(who, &which, "a/b.txt", parents, bytes("here")).await.unwrap();
    assert_eq!(world.read(&which, "/tmp/work/a/b.txt").await, "here");
    engine.copy_path(who, &which, "a/b.txt", "../c.txt", false).await.unwrap();
    assert_eq!(world.read(&which, "/tmp/c.txt").await, "here");
    let listing = engine.list(who, &which, ".", true, 10).await.unwrap();
    let paths: Vec<_> = listing.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["/tmp/work/a", "/tmp/work/a/b.txt"]);
    let spec = ExecSpec { cwd: Some("a".into()), ..ExecSpec::argv(["cat", "b.txt"]) };
    let exec = world.engine.exec(who, &which, spec).await.unwrap();
    assert_eq!(world.output(&which, &exec.id).await, "here");
    // Above the root there is only the root.
    let root = engine.stat(who, &which, "../../../..", true).await.unwrap();
    assert_eq!(root.kind, FileKind::Directory);
}

#[tokio::test]
async fn command_lines_are_read_by_bash_where_there_is_one() {
    let world = World::new().await;
    let which = world.create().await;
    assert_eq!(world.engine.shell(&world.who, &which).await.unwrap(), "/bin/bash");
    let spec = SandboxSpec { shell: Some("dash".into()), ..SandboxSpec::default() };
    let own = SandboxRef::from(&world.engine.create_sandbox(&world.who, spec).await.unwrap().id);
    assert_eq!(world.engine.shell(&world.who, &own).await.unwrap(), "dash");
}

#[tokio::test]
async fn large_files_go_through_in_pieces_and_trees_as_tar() {
    let world = World::new().await;
    let which = world.create().await;
    let piece = Bytes::from(vec![b'x'; 700_000]);
    let pieces = stream::iter((0..10).map({
        let piece = piece.clone();
        move |_| Ok(piece.clone())
    }));
    let options = WriteOptions { parents: true, ..WriteOptions::default() };
    let n =
        world.engine.write_file(&world.who, &which, "/root/t/big", options, pieces.boxed()).await.unwrap();
    assert_eq!(n, 7_000_000);
    let packed = world.engine.pack(&world.who, &which, "/root/t").await.unwrap();
    let other = world.create().await;
    world.engine.unpack(&world.who, &other, "/root", false, packed).await.unwrap();
    assert_eq!(world.read(&other, "/root/t/big").await.len(), 7_000_000);
}

#[tokio::test]
async fn a_write_whose_bytes_end_early_changes_nothing() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/root/a", "old").await;
    let broken =
        stream::iter([Ok(Bytes::from("new")), Err(sandbox::Error::new(ErrorKind::Cancelled, "gone"))]);
    let write =
        world.engine.write_file(&world.who, &which, "/root/a", WriteOptions::default(), broken.boxed());
    assert_eq!(write.await.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(world.read(&which, "/root/a").await, "old");
}

#[tokio::test]
async fn a_reader_that_leaves_early_disturbs_nobody() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/root/big", &"x".repeat(3_000_000)).await;
    for _ in 0..20 {
        let (_, mut bytes) = world.engine.read_file(&world.who, &which, "/root/big", 0, None).await.unwrap();
        bytes.next().await.unwrap().unwrap();
    }
    assert_eq!(world.read(&which, "/root/big").await.len(), 3_000_000);
    assert!(world.view(&which).await.idle_since.is_some());
}

#[tokio::test]
async fn changes_are_watched() {
    let world = World::new().await;
    let which = world.create().await;
    let mut changes = world.engine.watch(&world.who, &which, "/root", true).await.unwrap();
    world.write(&which, "/root/new", "x").await;
    // What comes before is how a file is written whole: under another name.
    let change = in_time(async {
        loop {
            let change = changes.next().await.unwrap().unwrap();
            if change.path == "/root/new" {
                return change;
            }
        }
    })
    .await;
    assert!(!matches!(change.kind, WatchKind::Removed), "{change:?}");
    let missing = world.engine.watch(&world.who, &which, "/nowhere", true).await.err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    // The end of the sandbox ends the stream.
    world.stop(&which).await;
    in_time(async { while changes.next().await.is_some_and(|change| change.is_ok()) {} }).await;
}

#[tokio::test]
async fn a_port_carries_bytes_both_ways_and_half_closes() {
    let world = World::new().await;
    let which = world.create().await;
    world.serve_echo(&which, 7).await;
    let port = world.engine.connect(&world.who, &which, Target::Tcp(7)).await.unwrap();
    assert!(port.is_socket());
    let (mut from, mut to) = tokio::io::split(port);
    let sent: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 251) as u8).collect();
    let send = async {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let ((), n) = in_time(async { tokio::join!(send, from.read_to_end(&mut received)) }).await;
    assert_eq!(n.unwrap(), sent.len());
    assert!(received == sent);
    let error = world.engine.connect(&world.who, &which, Target::Tcp(4242)).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::WrongState);
    assert!(error.to_string().contains("4242"), "{error}");
}

#[tokio::test]
async fn a_port_is_reached_on_either_loopback_and_ends_with_the_sandbox() {
    let world = World::new().await;
    let which = world.create().await;
    for (port, address) in [(7001, "127.0.0.1"), (7002, "::1")] {
        let server = ExecSpec::argv(test_backend::echo_server_on(address, port));
        let exec = world.engine.exec(&world.who, &which, server).await.unwrap();
        world.printed(&which, &exec.id, "ready").await;
        let mut stream = world.engine.connect(&world.who, &which, Target::Tcp(port)).await.unwrap();
        assert!(stream.is_socket(), "{address}");
        stream.write_all(b"x").await.unwrap();
        assert_eq!(in_time(stream.read_u8()).await.unwrap(), b'x', "{address}");
    }
    let mut held = world.engine.connect(&world.who, &which, Target::Tcp(7001)).await.unwrap();
    world.stop(&which).await;
    // An end or a reset, but not a hang.
    in_time(held.read(&mut [0; 1])).await.unwrap_or(0);
}

#[tokio::test]
async fn usage_and_processes_are_told() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.engine.exec(&world.who, &which, ExecSpec::argv(["sleep", "1000"])).await.unwrap();
    let processes = world.engine.processes(&world.who, &which).await.unwrap();
    assert!(
        processes.iter().any(|process| process.exec.as_deref() == Some(exec.id.as_str())),
        "{processes:?}"
    );
    let usage = world.engine.usage(&world.who, &which).await.unwrap();
    assert!(usage.pids.is_some_and(|n| n >= 1), "{usage:?}");
}

#[tokio::test]
async fn a_guest_that_lost_its_idle_connections_is_reached_again() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/root/a", "1").await;
    // The kept connection is stale after a restart; the next request does not notice.
    world.engine.restart_sandbox(&world.who, &which, Some(Duration::ZERO)).await.unwrap();
    assert_eq!(world.read(&which, "/root/a").await, "1");
}
