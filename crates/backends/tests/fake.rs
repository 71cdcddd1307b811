//! The simulated guest follows the protocol like a real one; the engine's tests rely on that.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use std::{collections::BTreeMap, time::Duration};

use backends::fake::{FakeBackend, Hostility};
use bytes::{Bytes, BytesMut};
use guest_protocol::{
    Decoder, ExecEvent, ExecStart, ExecStatus, ExitReport, Failure, FailureKind, Frame, FrameKind, Hello,
    Request, Response, SignalScope, StartFailure, Target, TerminalSize, WatchEvent, WatchKind, WriteMode,
    encode,
};
use sandbox::{
    Backend, BackendError, Capability, Defaults, Enforcement, GuestStream, Instance, SandboxId, SandboxPlan,
    SandboxSpec, plan,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn new_plan() -> SandboxPlan {
    let (id, name) = (SandboxId::from_random([1; 8]), "box".parse().unwrap());
    plan(
        &id,
        &name,
        &SandboxSpec::default(),
        &Defaults::default(),
        &sandbox::Base::host(),
        &[sandbox::Capabilities::all(sandbox::BackendKind::Fake)],
    )
    .unwrap()
}

/// A sandbox for one test.
struct Sandbox {
    backend: FakeBackend,
    instance: Box<dyn Instance>,
    plan: SandboxPlan,
}

impl Sandbox {
    async fn new() -> Self {
        let backend = FakeBackend::new();
        let plan = new_plan();
        let instance = backend.create(&plan).await.unwrap();
        Self { backend, instance, plan }
    }

    async fn connect(&self) -> Client {
        Client::new(self.instance.connect().await.unwrap())
    }

    async fn ask(&self, request: Request) -> Result<Response, Failure> {
        self.connect().await.ask(request).await
    }

    /// Starts a command under `id`.
    async fn start(&self, id: &str, script: &str) -> Response {
        self.ask(Request::ExecStart(shell(id, script))).await.unwrap()
    }

    async fn attach(&self, id: &str, from: u64) -> Client {
        let mut client = self.connect().await;
        let attached = client.ask(Request::ExecAttach { id: id.into(), from }).await.unwrap();
        assert!(matches!(attached, Response::Attached { .. }), "{attached:?}");
        client
    }

    /// Runs a script to its end; returns stdout, stderr and the report.
    async fn run(&self, script: &str) -> (String, String, ExitReport) {
        let id = format!("run-{script}").chars().take(100).collect::<String>();
        self.start(&id, script).await;
        self.attach(&id, 1).await.follow().await
    }
}

fn shell(id: &str, script: &str) -> ExecStart {
    ExecStart {
        id: id.into(),
        command: vec!["/bin/sh".into(), "-c".into(), script.into()],
        env: BTreeMap::from([("HOME".into(), "/root".into())]),
        cwd: "/root".into(),
        user: "0:0".into(),
        ..ExecStart::default()
    }
}

/// A host's side of one connection.
struct Client {
    io: GuestStream,
    buffer: BytesMut,
    is_greeted: bool,
}

impl Client {
    fn new(io: GuestStream) -> Self {
        Self { io, buffer: BytesMut::new(), is_greeted: false }
    }

    async fn send(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        encode(frame, &mut bytes).unwrap();
        self.io.write_all(&bytes).await.unwrap();
    }

    /// `None` if the guest closed; an error if it sent something that is not a frame.
    async fn receive(&mut self) -> Result<Option<Frame>, guest_protocol::ProtocolError> {
        loop {
            if let Some(frame) = Decoder::default().decode(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            if !matches!(self.io.read_buf(&mut self.buffer).await, Ok(1..)) {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(guest_protocol::ProtocolError::Truncated)
                };
            }
        }
    }

    async fn frame(&mut self) -> Frame {
        self.receive().await.unwrap().unwrap()
    }

    async fn answer(&mut self) -> Result<Response, Failure> {
        if !self.is_greeted {
            self.is_greeted = true;
            let hello: Hello = self.frame().await.parse().unwrap();
            assert_eq!(hello.version, guest_protocol::PROTOCOL_VERSION);
        }
        let frame = self.frame().await;
        match frame.kind {
            FrameKind::Response => Ok(frame.parse().unwrap()),
            FrameKind::Failure => Err(frame.parse().unwrap()),
            kind => panic!("a {kind:?} frame where an answer belongs"),
        }
    }

    async fn ask(&mut self, request: Request) -> Result<Response, Failure> {
        self.send(&Frame::request(&request).unwrap()).await;
        self.answer().await
    }

    async fn ask_with_body(&mut self, request: Request, body: &[u8]) -> Result<Response, Failure> {
        self.send(&Frame::request(&request).unwrap()).await;
        for part in body.chunks(100_000) {
            self.send(&Frame::new(FrameKind::Data, part.to_vec())).await;
        }
        self.send(&Frame::new(FrameKind::End, Bytes::new())).await;
        self.answer().await
    }

    async fn body(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            match self.frame().await {
                Frame { kind: FrameKind::Data, payload } => bytes.extend_from_slice(&payload),
                Frame { kind: FrameKind::End, .. } => return bytes,
                other => panic!("{other:?}"),
            }
        }
    }

    async fn event(&mut self) -> (u64, ExecEvent) {
        ExecEvent::from_frame(&self.frame().await).unwrap()
    }

    /// Reads and acknowledges events up to `Closed`, checking that their numbers have no gap.
    async fn follow(mut self) -> (String, String, ExitReport) {
        let (mut stdout, mut stderr, mut report) = (Vec::new(), Vec::new(), None);
        let mut expected = None;
        loop {
            let (number, event) = self.event().await;
            assert_eq!(expected.unwrap_or(number), number);
            expected = Some(number + 1);
            match event {
                ExecEvent::Started { .. } => {}
                ExecEvent::Stdout(bytes) => stdout.extend_from_slice(&bytes),
                ExecEvent::Stderr(bytes) | ExecEvent::Rich(bytes) => stderr.extend_from_slice(&bytes),
                ExecEvent::Exited(exited) => report = Some(exited),
                ExecEvent::Closed => {
                    self.send(&Frame::ack(number)).await;
                    let text = |bytes| String::from_utf8(bytes).unwrap();
                    return (text(stdout), text(stderr), report.unwrap());
                }
            }
            self.send(&Frame::ack(number)).await;
        }
    }
}

fn code(report: &ExitReport) -> Option<u8> {
    report.code
}

#[tokio::test]
async fn commands_print_and_exit() {
    let sandbox = Sandbox::new().await;
    for (script, stdout, stderr, exit) in [
        ("echo hello", "hello\n", "", 0),
        ("printf 'a\\nb'", "a\nb", "", 0),
        ("false", "", "", 1),
        ("true && echo yes || echo no", "yes\n", "", 0),
        ("false && echo yes || echo no", "no\n", "", 0),
        ("echo a; exit 3; echo b", "a\n", "", 3),
        ("seq 3", "1\n2\n3\n", "", 0),
        ("echo oops >&2; cd /tmp; pwd", "/tmp\n", "oops\n", 0),
        ("echo \"home is $HOME\" '$HOME'", "home is /root $HOME\n", "", 0),
        ("yes ok 2", "ok\nok\n", "", 0),
        ("env A=b sh -c 'echo $A'", "b\n", "", 0),
        ("no-such-thing", "", "there is no program no-such-thing\n", 127),
        ("echo one > f; echo two >> f; cat f; ls", "one\ntwo\nf\n", "", 0),
    ] {
        let (out, err, report) = sandbox.run(script).await;
        assert_eq!((out.as_str(), err.as_str(), code(&report)), (stdout, stderr, Some(exit)), "{script}");
        sandbox.run("rm f").await;
    }
    let (_, _, report) = sandbox.run("kill -11 $$").await;
    assert_eq!((report.code, report.signal), (None, Some(11)));
    let (_, _, report) = sandbox.run("oom").await;
    assert_eq!((report.signal, report.oom_kills), (Some(9), 1));
    let (_, _, report) = sandbox.run("oom-child").await;
    assert_eq!((report.code, report.oom_kills), (Some(1), 1));
    assert_eq!(sandbox.instance.usage().await.unwrap().oom_kills, Some(2));
}

#[tokio::test]
async fn what_cannot_start_says_why_and_says_it_again() {
    let sandbox = Sandbox::new().await;
    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let cases = [
        (ExecStart { command: command(&["not-found"]), ..shell("a", "") }, StartFailure::NotFound),
        (ExecStart { command: command(&["/etc/hostname"]), ..shell("b", "") }, StartFailure::NotExecutable),
        (ExecStart { command: command(&["/etc"]), ..shell("c", "") }, StartFailure::NotExecutable),
        (ExecStart { cwd: "/nowhere".into(), ..shell("d", "true") }, StartFailure::BadWorkingDirectory),
        (ExecStart { user: "somebody".into(), ..shell("e", "true") }, StartFailure::BadUser),
    ];
    for (start, expected) in cases {
        for _ in 0..2 {
            let answer = sandbox.ask(Request::ExecStart(start.clone())).await.unwrap();
            assert!(
                matches!(&answer, Response::NotStarted { reason, .. } if *reason == expected),
                "{answer:?}"
            );
        }
        let attach = sandbox.ask(Request::ExecAttach { id: start.id, from: 1 }).await.unwrap_err();
        assert_eq!(attach.kind, FailureKind::NotFound);
    }
    let failure =
        sandbox.ask(Request::ExecStart(ExecStart { command: vec![], ..shell("f", "") })).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidRequest);
}

#[tokio::test]
async fn the_same_start_again_starts_nothing() {
    let sandbox = Sandbox::new().await;
    let first = sandbox.start("x", "echo once > log; sleep 100").await;
    assert_eq!(sandbox.start("x", "echo twice > log").await, first);
    let Response::Execs { execs } = sandbox.ask(Request::ExecList).await.unwrap() else { panic!() };
    assert_eq!(execs.len(), 1);
    assert_eq!((execs[0].status, execs[0].acked), (ExecStatus::Running, 0));
}

#[tokio::test]
async fn what_was_not_acknowledged_comes_again_and_what_was_is_gone() {
    let sandbox = Sandbox::new().await;
    sandbox.start("x", "echo a; echo b; sleep 100").await;
    let mut first = sandbox.attach("x", 1).await;
    assert!(matches!(first.event().await, (1, ExecEvent::Started { .. })));
    assert_eq!(first.event().await, (2, ExecEvent::Stdout("a\n".into())));
    first.send(&Frame::ack(2)).await;
    assert_eq!(first.event().await, (3, ExecEvent::Stdout("b\n".into())));

    // A second attach takes over; the first is closed.
    let mut second = sandbox.connect().await;
    let attached = second.ask(Request::ExecAttach { id: "x".into(), from: 1 }).await.unwrap();
    assert_eq!(attached, Response::Attached { next: 3 });
    assert_eq!(first.receive().await.unwrap(), None);
    assert_eq!(second.event().await, (3, ExecEvent::Stdout("b\n".into())));
    for from in [0, 99] {
        let failure = sandbox.ask(Request::ExecAttach { id: "x".into(), from }).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::InvalidRequest);
    }
}

#[tokio::test]
async fn a_host_that_is_behind_makes_the_program_wait_and_loses_nothing() {
    let sandbox = Sandbox::new().await;
    sandbox.start("x", "seq 1000000").await;
    let mut slow = sandbox.attach("x", 1).await;
    let mut held = 0;
    let mut last = 0;
    while held < 900_000 {
        let (number, event) = slow.event().await;
        if let ExecEvent::Stdout(bytes) = event {
            held += bytes.len();
        }
        last = number;
    }
    let Response::Execs { execs } = sandbox.ask(Request::ExecList).await.unwrap() else { panic!() };
    assert_eq!(execs[0].status, ExecStatus::Running);
    assert!(execs[0].last_event < 2 * last, "{execs:?}");
    drop(slow);

    let (stdout, _, report) = sandbox.attach("x", 1).await.follow().await;
    assert_eq!(code(&report), Some(0));
    assert!(stdout.lines().map(|line| line.parse::<u32>().unwrap()).eq(1..=1_000_000));
    // Acknowledged to the end, it is forgotten.
    let mut client = sandbox.connect().await;
    let gone = client.ask(Request::ExecAttach { id: "x".into(), from: 1 }).await;
    assert_eq!(gone.unwrap_err().kind, FailureKind::NotFound);
    assert_eq!(client.ask(Request::Ping).await.unwrap(), Response::Done);
}

#[tokio::test]
async fn stdin_is_streamed_closed_and_refused_when_it_is_not_open() {
    let sandbox = Sandbox::new().await;
    let start = ExecStart { stdin: true, command: vec!["cat".into()], ..shell("x", "") };
    sandbox.ask(Request::ExecStart(start)).await.unwrap();
    let mut client = sandbox.connect().await;
    let stdin = |close| Request::ExecStdin { id: "x".into(), close };
    assert_eq!(client.ask_with_body(stdin(false), b"hello ").await.unwrap(), Response::Written { bytes: 6 });
    assert_eq!(client.ask_with_body(stdin(true), b"world").await.unwrap(), Response::Written { bytes: 5 });
    let failure = client.ask_with_body(stdin(false), &[0; 300_000]).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::WrongState);
    assert_eq!(client.ask(Request::Ping).await.unwrap(), Response::Done);
    let (stdout, _, report) = sandbox.attach("x", 1).await.follow().await;
    assert_eq!((stdout.as_str(), code(&report)), ("hello world", Some(0)));
    let failure = client.ask_with_body(stdin(true), b"late").await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotFound);
}

#[tokio::test]
async fn signals_time_limits_and_children() {
    let sandbox = Sandbox::new().await;
    let signal = |signal, scope| Request::ExecSignal { id: "x".into(), signal, scope };
    sandbox.start("x", "trap '' TERM; echo ready; sleep 100").await;
    let mut events = sandbox.attach("x", 2).await;
    assert_eq!(events.event().await.1, ExecEvent::Stdout("ready\n".into()));
    sandbox.ask(signal(15, SignalScope::Group)).await.unwrap();
    sandbox.ask(signal(28, SignalScope::Process)).await.unwrap();
    assert_eq!(
        sandbox.ask(signal(0, SignalScope::Process)).await.unwrap_err().kind,
        FailureKind::InvalidRequest
    );
    sandbox.ask(signal(2, SignalScope::Process)).await.unwrap();
    let (_, _, report) = events.follow().await;
    assert_eq!(report.signal, Some(2));

    // A process left behind holds the output open until the group is killed.
    sandbox.start("y", "sleep 100 & echo now").await;
    let mut events = sandbox.attach("y", 2).await;
    assert_eq!(events.event().await.1, ExecEvent::Stdout("now\n".into()));
    assert!(matches!(events.event().await.1, ExecEvent::Exited(report) if report.code == Some(0)));
    let Response::Execs { execs } = sandbox.ask(Request::ExecList).await.unwrap() else { panic!() };
    assert_eq!(execs[0].status, ExecStatus::Exited);
    let signal = |scope| Request::ExecSignal { id: "y".into(), signal: 9, scope };
    assert_eq!(sandbox.ask(signal(SignalScope::Process)).await.unwrap_err().kind, FailureKind::WrongState);
    sandbox.ask(signal(SignalScope::Group)).await.unwrap();
    assert_eq!(events.event().await.1, ExecEvent::Closed);

    let late = sandbox.run("late 0.01 afterwards & echo first").await;
    assert_eq!(late.0, "first\nafterwards\n");

    let start = ExecStart { timeout_ms: Some(20), ..shell("z", "echo before; sleep 100") };
    sandbox.ask(Request::ExecStart(start)).await.unwrap();
    let (stdout, _, report) = sandbox.attach("z", 1).await.follow().await;
    assert_eq!((stdout.as_str(), report.signal, report.timed_out), ("before\n", Some(9), true));
}

#[tokio::test]
async fn a_terminal_has_one_stream_and_a_size() {
    let sandbox = Sandbox::new().await;
    let size = TerminalSize { rows: 10, cols: 20 };
    let start = ExecStart { terminal: Some(size), ..shell("x", "stty size; echo oops >&2; cat; stty size") };
    sandbox.ask(Request::ExecStart(start)).await.unwrap();
    let mut client = sandbox.connect().await;
    let resize = |size| Request::ExecResize { id: "x".into(), size };
    client.ask(resize(TerminalSize { rows: 30, cols: 40 })).await.unwrap();
    let bad = client.ask(resize(TerminalSize { rows: 0, cols: 40 })).await.unwrap_err();
    assert_eq!(bad.kind, FailureKind::InvalidRequest);
    client.ask_with_body(Request::ExecStdin { id: "x".into(), close: true }, b"typed\n").await.unwrap();
    let (stdout, stderr, _) = sandbox.attach("x", 1).await.follow().await;
    assert!(stdout.ends_with("oops\r\ntyped\r\n30 40\r\n"), "{stdout:?}");
    assert_eq!(stderr, "");
}

#[tokio::test]
async fn a_person_at_a_terminal_gets_a_prompt() {
    let sandbox = Sandbox::new().await;
    let size = TerminalSize { rows: 24, cols: 80 };
    let start = ExecStart { terminal: Some(size), command: vec!["sh".into()], ..shell("x", "") };
    sandbox.ask(Request::ExecStart(start)).await.unwrap();
    let mut client = sandbox.connect().await;
    let typed = b"cd /tmp\rpwdd\x7f\rexit 4\r";
    client.ask_with_body(Request::ExecStdin { id: "x".into(), close: false }, typed).await.unwrap();
    let (stdout, _, report) = sandbox.attach("x", 1).await.follow().await;
    assert_eq!(stdout, "# cd /tmp\r\n# pwdd\x08 \x08\r\n/tmp\r\n# exit 4\r\n");
    assert_eq!(code(&report), Some(4));
}

#[tokio::test]
async fn files_are_written_read_and_changed() {
    let sandbox = Sandbox::new().await;
    let mut client = sandbox.connect().await;
    let write =
        |path: &str, write, parents| Request::Write { path: path.into(), write, mode: Some(0o600), parents };
    let body = vec![7; 700_000];
    let refused = client.ask_with_body(write("/a/b/c", WriteMode::Replace, false), &body).await.unwrap_err();
    assert_eq!(refused.kind, FailureKind::NotFound);
    let written = client.ask_with_body(write("/a/b/c", WriteMode::Replace, true), &body).await.unwrap();
    assert_eq!(written, Response::Written { bytes: 700_000 });
    let refused = client.ask_with_body(write("/a/b/c", WriteMode::CreateNew, true), &body).await.unwrap_err();
    assert_eq!(refused.kind, FailureKind::AlreadyExists);
    client.ask_with_body(write("/a/b/c", WriteMode::Append, false), b"end").await.unwrap();

    let read = |offset, length| Request::Read { path: "/a/b/../b/c".into(), offset, length };
    let Response::Reading { entry } = client.ask(read(699_999, None)).await.unwrap() else { panic!() };
    assert_eq!((entry.size, entry.mode, entry.path.as_str()), (700_003, 0o600, "/a/b/c"));
    assert_eq!(client.body().await, b"\x07end");
    client.ask(read(1_000_000, Some(5))).await.unwrap();
    assert_eq!(client.body().await, b"");
    client.ask(read(0, Some(600_000))).await.unwrap();
    assert_eq!(client.body().await.len(), 600_000);

    let path = |path: &str| path.to_owned();
    for (request, expected) in [
        (Request::Symlink { target: "b/c".into(), path: path("/a/link") }, None),
        (Request::Chmod { path: path("/a"), mode: 0o700, recursive: true }, None),
        (
            Request::Copy { from: path("/a"), to: path("/copy"), recursive: false },
            Some(FailureKind::WrongState),
        ),
        (Request::Copy { from: path("/a"), to: path("/copy"), recursive: true }, None),
        (
            Request::Copy { from: path("/a"), to: path("/a/b/a"), recursive: true },
            Some(FailureKind::InvalidRequest),
        ),
        (
            Request::Rename { from: path("/copy"), to: path("/tmp"), replace: false },
            Some(FailureKind::AlreadyExists),
        ),
        (Request::Rename { from: path("/copy"), to: path("/moved"), replace: false }, None),
        (
            Request::Mkdir { path: path("/moved"), parents: false, mode: None },
            Some(FailureKind::AlreadyExists),
        ),
        (Request::Mkdir { path: path("/moved/x/y"), parents: true, mode: None }, None),
        (Request::Remove { path: path("/a"), recursive: false }, Some(FailureKind::WrongState)),
        (Request::Remove { path: path("/a"), recursive: true }, None),
        (Request::Remove { path: path("/"), recursive: true }, Some(FailureKind::Denied)),
        (Request::Stat { path: path("relative"), follow: true }, Some(FailureKind::InvalidRequest)),
        (Request::Readlink { path: path("/moved/b") }, Some(FailureKind::WrongState)),
    ] {
        let answer = client.ask(request.clone()).await;
        assert_eq!(answer.as_ref().err().map(|failure| failure.kind), expected, "{request:?} {answer:?}");
    }
    let link = client.ask(Request::Readlink { path: path("/moved/link") }).await.unwrap();
    assert_eq!(link, Response::Link { target: "b/c".into() });
    let listing =
        client.ask(Request::List { path: path("/moved"), recursive: true, limit: 100 }).await.unwrap();
    let Response::Entries { entries, truncated: false } = listing else { panic!() };
    let paths: Vec<_> = entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["/moved/b", "/moved/b/c", "/moved/link", "/moved/x", "/moved/x/y"]);
    let stat = client.ask(Request::Stat { path: path("/moved/link"), follow: true }).await.unwrap();
    assert!(matches!(stat, Response::Entry { entry } if entry.size == 700_003 && entry.path == "/moved/b/c"));
}

#[tokio::test]
async fn files_are_searched_packed_and_watched() {
    let sandbox = Sandbox::new().await;
    sandbox
        .run(
            "mkdir -p src/deep; echo 'fn main' > src/a.rs; echo 'Main fn' > src/deep/b.rs; echo x > src/c.md",
        )
        .await;
    let mut client = sandbox.connect().await;
    let glob = Request::Glob { root: "/root".into(), pattern: "**/*.rs".into(), limit: 10 };
    let expected = vec!["/root/src/a.rs".to_owned(), "/root/src/deep/b.rs".to_owned()];
    assert_eq!(client.ask(glob).await.unwrap(), Response::Paths { paths: expected, truncated: false });
    let grep = |pattern: &str, limit| Request::Grep {
        root: "/root".into(),
        pattern: pattern.into(),
        include: Some("*.rs".into()),
        ignore_case: true,
        literal: false,
        limit,
    };
    let Response::Matches { matches, truncated } = client.ask(grep("^MAIN", 10)).await.unwrap() else {
        panic!()
    };
    assert_eq!(
        (matches.len(), matches[0].line, matches[0].text.as_str(), truncated),
        (1, 1, "Main fn", false)
    );
    assert!(matches!(client.ask(grep("fn", 1)).await, Ok(Response::Matches { truncated: true, .. })));
    assert_eq!(client.ask(grep("(", 1)).await.unwrap_err().kind, FailureKind::InvalidRequest);

    assert_eq!(client.ask(Request::TarOut { path: "/root/src".into() }).await.unwrap(), Response::Packing);
    let archive = client.body().await;
    client.ask(Request::Mkdir { path: "/in".into(), parents: false, mode: None }).await.unwrap();
    client.ask_with_body(Request::TarIn { path: "/in".into(), keep_ids: false }, &archive).await.unwrap();
    assert_eq!(sandbox.run("cat /in/src/deep/b.rs").await.0, "Main fn\n");
    let mut evil = tar::Header::new_gnu();
    evil.set_size(1);
    evil.as_gnu_mut().unwrap().name[..9].copy_from_slice(b"../../etc");
    evil.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&evil, &b"x"[..]).unwrap();
    let evil = builder.into_inner().unwrap();
    let refused = client.ask_with_body(Request::TarIn { path: "/in".into(), keep_ids: false }, &evil).await;
    assert_eq!(refused.unwrap_err().kind, FailureKind::InvalidRequest);

    let mut watcher = sandbox.connect().await;
    let watching = watcher.ask(Request::Watch { path: "/root".into(), recursive: true }).await.unwrap();
    assert_eq!(watching, Response::Watching);
    sandbox.run("touch /elsewhere; touch src/new").await;
    let event: WatchEvent = watcher.frame().await.parse().unwrap();
    assert_eq!((event.kind, event.path.as_str()), (WatchKind::Created, "/root/src/new"));
}

#[tokio::test]
async fn a_port_echoes_until_both_sides_are_done() {
    let sandbox = Sandbox::new().await;
    let mut client = sandbox.connect().await;
    let refused = client.ask(Request::Connect { target: Target::Tcp(81) }).await.unwrap_err();
    assert_eq!(refused.kind, FailureKind::WrongState);
    let refused = client.ask(Request::Connect { target: Target::Unix("/none".into()) }).await.unwrap_err();
    assert_eq!(refused.kind, FailureKind::NotFound);
    assert_eq!(client.ask(Request::Connect { target: Target::Tcp(7) }).await.unwrap(), Response::Connected);
    client.send(&Frame::new(FrameKind::Data, "ping")).await;
    assert_eq!(client.frame().await, Frame::new(FrameKind::Data, "ping"));
    client.send(&Frame::new(FrameKind::End, "")).await;
    assert_eq!(client.frame().await.kind, FrameKind::End);
    assert_eq!(client.receive().await.unwrap(), None);

    sandbox.start("x", "listen 81").await;
    sandbox.attach("x", 2).await.event().await;
    assert_eq!(sandbox.ask(Request::Connect { target: Target::Tcp(81) }).await.unwrap(), Response::Connected);
    let Response::Processes { processes } = sandbox.ask(Request::Processes).await.unwrap() else { panic!() };
    assert_eq!((processes.len(), processes[0].exec.as_deref()), (1, Some("x")));
}

#[tokio::test]
async fn kill_all_leaves_the_guest_and_shutdown_does_not() {
    let sandbox = Sandbox::new().await;
    sandbox.start("x", "sleep 100 & sleep 100").await;
    sandbox.ask(Request::KillAll { disk: true }).await.unwrap();
    let (_, _, report) = sandbox.attach("x", 1).await.follow().await;
    assert!(report.disk_limit && report.signal == Some(9), "{report:?}");

    sandbox.start("polite", "sleep 100").await;
    sandbox.start("stubborn", "trap '' TERM; echo ready; sleep 100").await;
    let mut stubborn = sandbox.attach("stubborn", 2).await;
    assert_eq!(stubborn.event().await.1, ExecEvent::Stdout("ready\n".into()));
    let polite = sandbox.attach("polite", 1).await;
    let (ended, polite, stubborn) = tokio::join!(
        sandbox.ask(Request::Shutdown { grace_ms: 20, signal: None }),
        polite.follow(),
        stubborn.follow()
    );
    assert_eq!(ended.unwrap(), Response::Done);
    assert!(polite.2.shutdown && polite.2.signal == Some(15), "{polite:?}");
    assert!(stubborn.2.shutdown && stubborn.2.signal == Some(9), "{stubborn:?}");
    sandbox.instance.ended().await;
    assert!(matches!(sandbox.instance.connect().await, Err(BackendError::Gone(_))));
}

#[tokio::test]
async fn a_pause_holds_programs_and_not_the_guest() {
    let sandbox = Sandbox::new().await;
    sandbox.instance.pause().await.unwrap();
    sandbox.start("x", "echo hi").await;
    let mut events = sandbox.attach("x", 2).await;
    assert_eq!(sandbox.ask(Request::Ping).await.unwrap(), Response::Done);
    let quiet = tokio::time::timeout(Duration::from_millis(30), events.event()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    sandbox.instance.resume().await.unwrap();
    assert_eq!(events.event().await.1, ExecEvent::Stdout("hi\n".into()));
}

#[tokio::test]
async fn files_outlive_the_place_and_a_place_outlives_its_engine() {
    let sandbox = Sandbox::new().await;
    sandbox.run("echo kept > note").await;
    sandbox.start("x", "sleep 100").await;
    let adopted = sandbox.backend.clone().adopt(&sandbox.plan).await.unwrap().unwrap();
    let mut client = Client::new(adopted.connect().await.unwrap());
    let Response::Execs { execs } = client.ask(Request::ExecList).await.unwrap() else { panic!() };
    assert_eq!(execs.last().unwrap().id, "x");

    adopted.stop().await.unwrap();
    adopted.stop().await.unwrap();
    assert_eq!(client.receive().await.unwrap(), None);
    assert!(sandbox.backend.adopt(&sandbox.plan).await.unwrap().is_none());
    let again = sandbox.backend.create(&sandbox.plan).await.unwrap();
    let restarted = Sandbox { instance: again, ..sandbox };
    assert_eq!(restarted.run("cat note").await.0, "kept\n");

    let id = restarted.plan.id.clone();
    let only = std::slice::from_ref(&id);
    assert_eq!(restarted.backend.sweep(&[], only).await.unwrap(), only);
    restarted.instance.ended().await;
    assert_eq!((restarted.backend.live(), restarted.backend.kept()), (vec![], vec![id.clone()]));
    restarted.backend.remove(&id).await.unwrap();
    assert!(restarted.backend.kept().is_empty());
}

#[tokio::test]
async fn it_says_that_it_is_only_simulated() {
    let sandbox = Sandbox::new().await;
    let isolation = sandbox.instance.isolation();
    assert!(isolation.limits.iter().all(|limit| limit.enforcement == Enforcement::Simulated));
    assert!(isolation.warnings[0].contains("simulated"));
    assert!(sandbox.backend.probe().await.unwrap().has(Capability::Pause));
}

#[tokio::test]
async fn failures_happen_when_they_are_asked_for() {
    let sandbox = Sandbox::new().await;
    sandbox.backend.fail_next_connects(1);
    assert!(sandbox.instance.connect().await.is_err());
    assert!(sandbox.instance.connect().await.is_ok());
    assert!(sandbox.backend.vanish(&sandbox.plan.id));
    sandbox.instance.ended().await;
    assert!(sandbox.backend.adopt(&sandbox.plan).await.unwrap().is_none());
    let full = BackendError::Exhausted { what: "no space".into(), next: None };
    sandbox.backend.fail_next_create(full);
    assert!(matches!(sandbox.backend.create(&sandbox.plan).await, Err(BackendError::Exhausted { .. })));
    assert!(sandbox.backend.create(&sandbox.plan).await.is_ok());
}

#[tokio::test]
async fn hostile_guests_break_the_protocol_once_and_then_no_more() {
    let sandbox = Sandbox::new().await;
    for hostility in [
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
    ] {
        sandbox.backend.be_hostile(hostility, 1);
        let mut client = sandbox.connect().await;
        let request = Request::ExecAttach { id: "x".into(), from: 1 };
        client.send(&Frame::request(&request).unwrap()).await;
        let mut seen = Vec::new();
        let expected = match hostility {
            Hostility::TooLong | Hostility::Garbage | Hostility::Truncated => "not frames",
            Hostility::Endless => "endless",
            Hostility::NoHello => "closed",
            _ => "silent",
        };
        let patience = Duration::from_millis(if expected == "silent" { 50 } else { 10_000 });
        let told = tokio::time::timeout(patience, async {
            loop {
                match client.receive().await {
                    Ok(Some(frame)) if seen.len() < 20 => seen.push(frame),
                    Ok(Some(_)) => return "endless",
                    Ok(None) => return "closed",
                    Err(_) => return "not frames",
                }
            }
        })
        .await
        .unwrap_or("silent");
        let numbers: Vec<_> = seen
            .iter()
            .filter_map(|frame| ExecEvent::from_frame(frame).ok())
            .map(|(number, _)| number)
            .collect();
        assert_eq!(told, expected, "{hostility:?} {seen:?}");
        match hostility {
            Hostility::EventGap => assert_eq!(numbers, [1, 2, 4]),
            Hostility::EventTwice => assert_eq!(numbers, [1, 2, 2]),
            Hostility::Silence => assert!(seen.is_empty()),
            _ => {}
        }
        assert_eq!(sandbox.ask(Request::Ping).await.unwrap(), Response::Done, "{hostility:?}");
    }
}
