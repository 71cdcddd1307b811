//! Preparations of a sandbox before anything runs in it: patches, scripts, a first program, limits for its commands.

use std::collections::BTreeMap;

use engine::{CreateRequest, Follow, PatchSource, SandboxRef};
use futures_util::{StreamExt, stream};
use sandbox::{Error, ErrorKind, ExecState, InitSpec, KillReason, Next, Patch, SandboxSpec, SandboxState};

use super::support::{World, bytes, exit_entry, in_time};

fn text(path: &str, content: &str) -> Patch {
    Patch::Text { path: path.into(), content: content.into(), mode: None, replace: false }
}

fn patched(patches: Vec<Patch>) -> SandboxSpec {
    SandboxSpec { patches, ..SandboxSpec::default() }
}

async fn refused(world: &World, request: impl Into<CreateRequest>) -> Error {
    let error = world.engine.create_sandbox(&world.who, request).await.unwrap_err();
    world.assert_nothing_left().await;
    error
}

#[tokio::test]
async fn patches_are_applied_in_their_order_and_no_record_holds_them() {
    let world = World::new().await;
    let (file, link) = ("/srv/a".to_owned(), "/srv/deep/link".to_owned());
    let spec = SandboxSpec {
        scripts: BTreeMap::from([("build".to_owned(), "#!/bin/sh\necho built".to_owned())]),
        ..patched(vec![
            text("/srv/a", "one"),
            Patch::Append { path: file.clone(), content: " two".into(), mode: None },
            Patch::File { path: "/srv/b".into(), content: vec![0, 159], mode: Some(0o600), replace: false },
            Patch::Mkdir { path: "/srv/dir".into(), mode: None },
            Patch::Symlink { target: "/nowhere".into(), path: link.clone(), replace: false },
            Patch::Symlink { target: file, path: link.clone(), replace: true },
            text("/srv/gone", ""),
            Patch::Remove { path: "/srv/gone".into() },
            Patch::Remove { path: "/srv/never".into() },
        ])
    };
    let view = world.create_from(spec).await;
    let which = SandboxRef::from(&view.id);
    assert_eq!(world.read(&which, &link).await, "one two");
    let stat = async |path: &str| world.engine.stat(&world.who, &which, path, false).await;
    assert_eq!((stat("/srv/b").await.unwrap().size, stat("/srv/b").await.unwrap().mode), (2, 0o600));
    assert_eq!(stat("/usr/local/bin/build").await.unwrap().mode, 0o755);
    assert_eq!(stat("/srv/gone").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(view.spec.patches.is_empty() && view.spec.scripts.is_empty());
    // They are applied once: later changes stay.
    world.write(&which, "/srv/a", "mine").await;
    world.stop(&which).await;
    world.engine.start_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(world.read(&which, "/srv/a").await, "mine");
}

#[tokio::test]
async fn a_patch_that_fails_is_named_and_leaves_nothing() {
    let world = World::new().await;
    for (patch, kind) in [
        (text("/srv/a", "again"), ErrorKind::AlreadyExists),
        (text("/srv", "a directory is there"), ErrorKind::AlreadyExists),
        (text("/srv/a/b", "beneath a file"), ErrorKind::WrongState),
        (Patch::Mkdir { path: "/srv/a".into(), mode: None }, ErrorKind::WrongState),
        (
            Patch::Symlink { target: "x".into(), path: "/srv/a".into(), replace: false },
            ErrorKind::AlreadyExists,
        ),
        (
            Patch::CopyFile {
                host_path: "/etc/passwd".into(),
                path: "/p".into(),
                mode: None,
                replace: false,
            },
            ErrorKind::Denied,
        ),
        (text("relative", ""), ErrorKind::InvalidRequest),
        (text("/big", &"x".repeat(sandbox::MAX_PATCH_BYTES)), ErrorKind::InvalidRequest),
    ] {
        let named = patch.kind();
        let error = refused(&world, patched(vec![text("/srv/a", "first"), patch])).await;
        assert_eq!(error.kind(), kind, "{named}: {error}");
        let is_total = error.to_string().contains("bytes of content");
        assert!(error.to_string().starts_with("patches[1]") || is_total, "{error}");
    }
    let script =
        SandboxSpec { scripts: BTreeMap::from([("a/b".into(), String::new())]), ..Default::default() };
    assert_eq!(refused(&world, script).await.kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn what_is_copied_comes_as_a_stream_and_one_that_breaks_off_leaves_nothing() {
    let world = World::new().await;
    let copy =
        || Patch::CopyFile { host_path: "/host/a".into(), path: "/srv/a".into(), mode: None, replace: false };
    let request = |bytes| CreateRequest {
        spec: patched(vec![text("/first", ""), copy()]),
        sources: BTreeMap::from([(1, PatchSource::File { mode: 0o640, bytes })]),
        ..CreateRequest::default()
    };
    let broken = || Error::new(ErrorKind::Unavailable, "the host's disk is away");
    let breaks = stream::iter([Ok("half".into()), Err(broken())]).boxed();
    let error = refused(&world, request(breaks)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("patches[1]") && error.to_string().contains("is away"), "{error}");
    let view = world.engine.create_sandbox(&world.who, request(bytes("whole"))).await.unwrap();
    let which = SandboxRef::from(&view.id);
    assert_eq!(world.read(&which, "/srv/a").await, "whole");
    assert_eq!(world.engine.stat(&world.who, &which, "/srv/a", false).await.unwrap().mode, 0o640);
}

fn begins_with(path: &str, args: &[&str]) -> SandboxSpec {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let init = InitSpec { path: path.into(), args, env: BTreeMap::from([("WHO".into(), "init".into())]) };
    SandboxSpec { init: Some(init), ..SandboxSpec::default() }
}

#[tokio::test]
async fn the_first_program_runs_at_every_start_and_ends_with_the_sandbox() {
    let world = World::new().await;
    let mut spec = begins_with("/bin/sh", &["-c", "cat /etc/greeting; echo $WHO; sleep 1000"]);
    spec.patches = vec![text("/etc/greeting", "hello ")];
    let view = world.create_from(spec).await;
    let which = SandboxRef::from(&view.id);
    let first = world.engine.execs(&world.who, &which).await.unwrap();
    assert_eq!((first.len(), first[0].state), (1, ExecState::Running));
    world.printed(&which, &first[0].id, "init").await;
    world.stop(&which).await;
    let items = world.entries(&which, &first[0].id, Follow::Yes).await;
    assert_eq!(super::support::text(&items, super::support::EntryKind::Stdout), "hello init\n");
    let ended = sandbox::ExecOutcome::Killed { reason: KillReason::SandboxStopped };
    assert_eq!(exit_entry(&items).outcome, ended);
    world.engine.start_sandbox(&world.who, &which).await.unwrap();
    let execs = world.engine.execs(&world.who, &which).await.unwrap();
    assert_eq!((execs.len(), execs[1].state), (2, ExecState::Running));
    // Nobody waits for it: a drain ends when the others have ended.
    in_time(world.engine.drain_sandbox(&world.who, &which, None)).await.unwrap();
    assert_eq!(world.state(&which).await, SandboxState::Stopped);
}

#[tokio::test]
async fn a_first_program_that_is_not_there_makes_no_sandbox() {
    let world = World::new().await;
    let error = refused(&world, begins_with("/no/such", &[])).await;
    assert!(error.to_string().starts_with("could not start init: "), "{error}");
    assert!(error.to_string().contains("/no/such"), "{error}");
    let advice = Next::Advice("Give the full path of a program inside the sandbox.".to_owned());
    assert_eq!(error.next(), Some(&advice));
    // The program is there, so advice about its path would mislead.
    let spec = SandboxSpec { cwd: Some("/etc/passwd".to_owned()), ..begins_with("/bin/true", &[]) };
    let error = refused(&world, spec).await;
    assert!(error.to_string().contains("could not enter the working directory"), "{error}");
    assert_eq!(error.next(), None);
    let error = refused(&world, begins_with("", &[])).await;
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn a_working_directory_that_is_missing_is_made_at_every_start() {
    let world = World::new().await;
    for cwd in ["/workspace/deep", "/tmp/work"] {
        let spec = SandboxSpec { cwd: Some(cwd.to_owned()), ..begins_with("/bin/sh", &["-c", "pwd"]) };
        let which = SandboxRef::from(&world.create_from(spec).await.id);
        world.stop(&which).await;
        world.engine.start_sandbox(&world.who, &which).await.unwrap();
        for exec in world.engine.execs(&world.who, &which).await.unwrap() {
            let items = world.entries(&which, &exec.id, Follow::Yes).await;
            assert_eq!(super::support::text(&items, super::support::EntryKind::Stdout), format!("{cwd}\n"));
        }
    }
}
