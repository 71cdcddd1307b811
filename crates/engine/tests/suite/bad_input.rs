use std::collections::BTreeMap;

use engine::{ContextSpec, Force, SandboxRef, SignalScope, Target, WriteOptions};
use sandbox::{
    ByteSize, CpuCount, ErrorKind, ExecId, ExecSpec, Language, Limits, MAX_VARIABLES, Next, Rlimit,
    SandboxName, SandboxSpec, TerminalSize,
};

use super::support::{World, bytes};

#[tokio::test]
async fn names_that_are_no_names_never_reach_a_record() {
    let long = "x".repeat(10_000);
    for name in ["", ".", "..", "../x", "a/b", "/etc", "名前", "a b", "a\0b", "sbx-abc", long.as_str()] {
        assert!(name.parse::<SandboxName>().is_err(), "{name:?}");
        let error = match name.parse::<SandboxRef>() {
            Err(error) => error,
            Ok(which) => panic!("{which:?}"),
        };
        assert!(matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::NotFound), "{error}");
    }
    let world = World::new().await;
    let error = world.engine.sandbox(&world.who, &"nobody".parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("nobody") && error.next().is_some());
}

#[tokio::test]
async fn absurd_limits_are_refused_by_name_and_leave_nothing() {
    let world = World::new().await;
    let none = Limits::default;
    for (limits, named) in [
        (Limits { memory: Some(ByteSize(1)), ..none() }, "memory"),
        (Limits { memory: Some(ByteSize(u64::MAX)), ..none() }, "memory"),
        (Limits { pids: Some(0), ..none() }, "pids"),
        (Limits { open_files: Some(1), ..none() }, "openFiles"),
        (Limits { disk: Some(ByteSize(0)), ..none() }, "disk"),
        (Limits { cpus: Some(CpuCount { millis: 1 }), ..none() }, "cpus"),
    ] {
        let spec = SandboxSpec { limits, ..SandboxSpec::default() };
        let error = world.engine.create_sandbox(&world.who, spec).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().contains(named), "{error}");
    }
    let spec = SandboxSpec { image: "alpine".parse().unwrap(), ..SandboxSpec::default() };
    let error = world.engine.create_sandbox(&world.who, spec).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let spec = SandboxSpec { cwd: Some("relative".into()), ..SandboxSpec::default() };
    assert_eq!(
        world.engine.create_sandbox(&world.who, spec).await.unwrap_err().kind(),
        ErrorKind::InvalidRequest
    );
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn commands_that_no_kernel_takes_are_refused_before_anything_is_recorded() {
    let world = World::new().await;
    let which = world.create().await;
    let env = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let huge: BTreeMap<_, _> = (0..64).map(|n| (format!("V{n}"), "x".repeat(100_000))).collect();
    let spec = || ExecSpec::shell("true");
    for (spec, named) in [
        (ExecSpec::default(), "empty"),
        (ExecSpec::argv([""]), "empty"),
        (ExecSpec::argv(["a\0b"]), "NUL"),
        (ExecSpec::argv(["true", "a\0b"]), "argument 1"),
        (ExecSpec::argv(["true".to_owned(), "x".repeat(200_000)]), "argument 1"),
        (ExecSpec { env: huge, ..spec() }, "environment"),
        (ExecSpec { env: env("A=B", "1"), ..spec() }, "A=B"),
        (ExecSpec { env: env("", "1"), ..spec() }, "environment"),
        (ExecSpec { env: env("A", "1\0"), ..spec() }, "A"),
        (ExecSpec { cwd: Some(String::new()), ..spec() }, "working directory"),
        (ExecSpec { terminal: Some(TerminalSize { rows: 0, cols: 80 }), ..spec() }, "terminal"),
        (ExecSpec { user: Some(String::new()), ..spec() }, "the user is empty"),
        (ExecSpec { user: Some("u".repeat(4096)), ..spec() }, "the user has 4096 bytes"),
        (ExecSpec { cwd: Some("/d".repeat(2048)), ..spec() }, "the working directory has 4096 bytes"),
        (ExecSpec { timeout: Some(std::time::Duration::ZERO), ..spec() }, "time"),
    ] {
        let error = world.engine.exec(&world.who, &which, spec).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
    // Text that grows when it is written as JSON is refused too, instead of breaking the stream.
    let swelling = ExecSpec::argv((0..9).map(|_| "\u{1}".repeat(110_000)));
    let error = world.engine.exec(&world.who, &which, swelling).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert_eq!(world.run(&which, "echo fine").await.exit_code, Some(0));
}

#[tokio::test]
async fn paths_that_are_no_paths_are_refused_by_every_call() {
    let world = World::new().await;
    let which = world.create().await;
    let (engine, who) = (&world.engine, &world.who);
    let long = format!("/{}", "x".repeat(5000));
    for path in ["", "nul\0", "/nul\0", long.as_str(), &long[1..]] {
        let kinds = [
            engine.stat(who, &which, path, true).await.err(),
            engine.list(who, &which, path, true, 1).await.err(),
            engine.read_file(who, &which, path, 0, None).await.err(),
            engine.write_file(who, &which, path, WriteOptions::default(), bytes("x")).await.err(),
            engine.mkdir(who, &which, path, true, None).await.err(),
            engine.remove_path(who, &which, path, true).await.err(),
            engine.copy_path(who, &which, "/a", path, true).await.err(),
            engine.rename_path(who, &which, path, "/a", true).await.err(),
            engine.symlink(who, &which, "x", path).await.err(),
            engine.read_link(who, &which, path).await.err(),
            engine.chmod(who, &which, path, 0o644, false).await.err(),
            engine.chown(who, &which, path, None, None, false).await.err(),
            engine.pack(who, &which, path).await.err(),
            engine.unpack(who, &which, path, false, bytes("")).await.err(),
            engine.watch(who, &which, path, false).await.err(),
            engine.glob(who, &which, path, "*", 1).await.err(),
            engine.connect(who, &which, Target::Unix(path.to_owned())).await.err(),
        ];
        for (call, error) in kinds.iter().enumerate() {
            let error = error.as_ref().unwrap_or_else(|| panic!("call {call} took {path:?}"));
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "call {call}, {path:?}: {error}");
        }
    }
    assert_eq!(
        engine.chmod(who, &which, "/root", 0o77777, false).await.unwrap_err().kind(),
        ErrorKind::InvalidRequest
    );
    assert_eq!(
        engine.connect(who, &which, Target::Tcp(0)).await.err().unwrap().kind(),
        ErrorKind::InvalidRequest
    );
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let world = World::new().await;
    let which = world.create().await;
    let (engine, who) = (&world.engine, &world.who);
    let error = engine.stat(who, &which, "/no/such", true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("/no/such"), "{error}");
    let exec = ExecId::from_random([3; 8]);
    for error in [
        engine.exec_view(who, &which, &exec).await.err(),
        engine.wait_exec(who, &which, &exec, None).await.err(),
        engine.exec_signal(who, &which, &exec, 15, SignalScope::Group).await.err(),
        engine.exec_stdin(who, &which, &exec, bytes("x"), false).await.err(),
    ] {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(exec.as_str()), "{error}");
    }
    let running = world.start_exec(&which, "sleep 1000").await;
    for signal in [0, -1, 65, i32::MAX] {
        let error =
            engine.exec_signal(who, &which, &running.id, signal, SignalScope::Group).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
    let error = engine.remove_sandbox(who, &which, Force::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongState);
    assert!(matches!(error.next(), Some(Next::StopOrForce(_))), "{error:?}");
}

#[tokio::test]
async fn environments_are_bounded_wherever_they_are_given() {
    let world = World::new().await;
    let which = world.create().await;
    let many: BTreeMap<_, _> = (0..=MAX_VARIABLES).map(|n| (format!("K{n}"), String::new())).collect();
    let long: BTreeMap<_, _> = (0..20).map(|n| (format!("K{n}"), "x".repeat(60_000))).collect();
    let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    for (env, told) in [
        (many, "variables; the limit is 4096"),
        (long, "bytes; the limit is 1048576"),
        (one("A", &"x".repeat(128 * 1024)), "131074 bytes; the limit is 131071"),
        (one(&"A".repeat(128 * 1024), "x"), "131074 bytes; the limit is 131071"),
        (one("", "x"), "is not a valid name"),
        (one("A=B", "x"), "is not a valid name"),
    ] {
        let spec = SandboxSpec { env: env.clone(), ..SandboxSpec::default() };
        let created = world.engine.create_sandbox(&world.who, spec).await.unwrap_err();
        let spec = ExecSpec { env: env.clone(), ..ExecSpec::argv(["true"]) };
        let run = world.engine.exec(&world.who, &which, spec).await.unwrap_err();
        let spec = ContextSpec { name: None, language: Language::Python, env, cwd: None, user: None };
        let kept = world.engine.create_context(&world.who, &which, spec).await.unwrap_err();
        for error in [created, run, kept] {
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
            assert!(error.to_string().contains(told) && error.to_string().len() < 300, "{error}");
        }
    }
    let rlimits = vec![Rlimit { resource: "core".to_owned(), soft: 0, hard: 0 }; 17];
    let spec = SandboxSpec { rlimits: rlimits.clone(), ..SandboxSpec::default() };
    let created = world.engine.create_sandbox(&world.who, spec).await.unwrap_err();
    let spec = ExecSpec { rlimits, ..ExecSpec::argv(["true"]) };
    let run = world.engine.exec(&world.who, &which, spec).await.unwrap_err();
    for error in [created, run] {
        assert_eq!(error.to_string(), "rlimits has 17 entries; the limit is 16");
    }
}
