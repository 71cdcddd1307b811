//! Helpers that the stories share.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use engine::{
    ByteStream, Deadlines, Engine, EngineConfig, Entry, EntryBody, ExecView, ExitEntry, Follow, Force,
    ManualClock, Principal, SandboxRef, SandboxView, Store,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use sandbox::{Capability, Event, EventKind, ExecId, ExecSpec, Result, SandboxSpec, SandboxState};
use tempfile::TempDir;
use test_backend::TestBackend;

/// No story takes this long, unless something hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// Shell code that waits for [`World::go`].
pub(crate) const WAIT_FOR_GO: &str = "until [ -e /root/go ]; do sleep 0.02; done";

/// A daemon's engine with a home, a store and a back end that outlive it.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) store: Store,
    pub(crate) backend: TestBackend,
    pub(crate) clock: ManualClock,
    pub(crate) who: Principal,
    pub(crate) config: EngineConfig,
    pub(crate) home: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// One whose sandboxes have a network, which carries nothing.
    pub(crate) async fn with_network() -> Self {
        let world = Self::new().await;
        world.backend.stand_in_for_network();
        world.restart().await
    }

    /// A world that soon gives up on guests, for stories about those that do not answer.
    pub(crate) async fn impatient() -> Self {
        Self::with(be_impatient).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut EngineConfig)) -> Self {
        Self::at(tempfile::tempdir().unwrap(), change).await
    }

    pub(crate) async fn at(home: TempDir, change: impl FnOnce(&mut EngineConfig)) -> Self {
        let store = Store::open(home.path()).unwrap();
        let clock = ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap());
        let mut config = EngineConfig::new(home.path());
        config.stop_grace = Duration::from_secs(5);
        config.deadlines = Deadlines {
            hello: Duration::from_secs(30),
            answer: Duration::from_secs(30),
            long_answer: Duration::from_secs(30),
            last_words: Duration::from_secs(5),
            retry: Duration::from_millis(50),
        };
        change(&mut config);
        let backend = match &config.images {
            Some(_) => TestBackend::in_home(home.path()),
            None => TestBackend::new(),
        };
        let engine = open(&config, &store, &backend, &clock).await.unwrap();
        Self { engine, store, backend, clock, who: Principal::operator("tester"), config, home }
    }

    /// The daemon dies silently and another one starts over the same home and the same sandboxes.
    pub(crate) async fn crash(self) -> Self {
        let Self { engine, store, backend, clock, who, config, home } = self;
        drop(engine);
        let engine = open(&config, &store, &backend, &clock).await.unwrap();
        Self { engine, store, backend, clock, who, config, home }
    }

    /// The daemon closes cleanly and another one starts.
    pub(crate) async fn restart(self) -> Self {
        let Self { engine, backend, clock, who, config, home, .. } = self;
        in_time(engine.close()).await;
        drop(engine);
        let store = Store::open(home.path()).unwrap();
        let engine = open(&config, &store, &backend, &clock).await.unwrap();
        Self { engine, store, backend, clock, who, config, home }
    }

    /// Whether this host can do it. Says so where it cannot, since a test then proves less.
    pub(crate) fn has(&self, capability: Capability) -> bool {
        let has = self.engine.capabilities().has(capability);
        if !has {
            println!("skipped in part: this host has no {capability}");
        }
        has
    }

    pub(crate) async fn create(&self) -> SandboxRef {
        self.create_from(SandboxSpec::default()).await.id.into()
    }

    pub(crate) async fn create_named(&self, name: &str) -> SandboxView {
        self.create_from(SandboxSpec { name: Some(name.parse().unwrap()), ..SandboxSpec::default() }).await
    }

    pub(crate) async fn create_from(&self, spec: SandboxSpec) -> SandboxView {
        self.engine.create_sandbox(&self.who, spec).await.unwrap()
    }

    pub(crate) async fn view(&self, which: &SandboxRef) -> SandboxView {
        self.engine.sandbox(&self.who, which).await.unwrap()
    }

    pub(crate) async fn state(&self, which: &SandboxRef) -> SandboxState {
        self.view(which).await.state
    }

    pub(crate) async fn start_exec(&self, which: &SandboxRef, script: &str) -> ExecView {
        self.engine.exec(&self.who, which, ExecSpec::shell(script)).await.unwrap()
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, which: &SandboxRef, script: &str) -> ExecView {
        let exec = self.start_exec(which, script).await;
        self.wait(which, &exec.id).await
    }

    pub(crate) async fn wait(&self, which: &SandboxRef, exec: &ExecId) -> ExecView {
        let done = self.engine.wait_exec(&self.who, which, exec, Some(PATIENCE)).await.unwrap();
        assert!(done.outcome.is_some(), "still running: {done:?}");
        done
    }

    pub(crate) async fn entries(&self, which: &SandboxRef, exec: &ExecId, follow: Follow) -> Vec<Entry> {
        let entries = self.engine.exec_entries(&self.who, which, exec, 1, follow).await.unwrap();
        in_time(entries.try_collect()).await.unwrap()
    }

    /// Its stdout, up to its end.
    pub(crate) async fn output(&self, which: &SandboxRef, exec: &ExecId) -> String {
        text(&self.entries(which, exec, Follow::Yes).await, EntryKind::Stdout)
    }

    /// Waits until it has printed this.
    pub(crate) async fn printed(&self, which: &SandboxRef, exec: &ExecId, expected: &str) {
        let mut entries = self.engine.exec_entries(&self.who, which, exec, 1, Follow::Yes).await.unwrap();
        let mut seen = String::new();
        in_time(async {
            while !seen.contains(expected) {
                let entry = entries.next().await.expect("it still runs").unwrap();
                seen.push_str(&text(&[entry], EntryKind::Stdout));
            }
        })
        .await;
    }

    /// Lets a script go on that waits with [`WAIT_FOR_GO`].
    pub(crate) async fn go(&self, which: &SandboxRef) {
        self.write(which, "/root/go", "").await;
    }

    /// Has a program inside send back what comes to a port.
    pub(crate) async fn serve_echo(&self, which: &SandboxRef, port: u16) {
        let spec = ExecSpec::argv(test_backend::echo_server(port));
        let exec = self.engine.exec(&self.who, which, spec).await.unwrap();
        self.printed(which, &exec.id, "ready").await;
    }

    pub(crate) async fn stop(&self, which: &SandboxRef) -> SandboxView {
        self.engine.stop_sandbox(&self.who, which, None).await.unwrap()
    }

    pub(crate) async fn remove(&self, which: &SandboxRef) {
        self.engine.remove_sandbox(&self.who, which, Force::Yes).await.unwrap();
    }

    pub(crate) async fn write(&self, which: &SandboxRef, path: &str, text: &str) {
        self.engine.write_file(&self.who, which, path, Default::default(), bytes(text)).await.unwrap();
    }

    pub(crate) async fn read(&self, which: &SandboxRef, path: &str) -> String {
        let (_, bytes) = self.engine.read_file(&self.who, which, path, 0, None).await.unwrap();
        collect(bytes).await.unwrap()
    }

    /// Waits for an event of this kind.
    pub(crate) async fn event(&self, kind: EventKind) -> Event {
        let mut events = self.engine.events(&self.who, Some(0), Follow::Yes).await.unwrap();
        in_time(async {
            while let Some(event) = events.next().await {
                let event = event.unwrap();
                if event.kind == kind {
                    return event;
                }
            }
            panic!("no event {kind:?}");
        })
        .await
    }

    pub(crate) async fn wait_for(&self, which: &SandboxRef, state: SandboxState) -> SandboxView {
        self.engine.wait_sandbox(&self.who, which, state, Some(PATIENCE)).await.unwrap()
    }

    pub(crate) fn directory(&self, view: &SandboxView) -> PathBuf {
        self.home.path().join("sandboxes").join(view.id.as_str())
    }

    /// Nothing on the back end, in the store or on disk is left of any sandbox.
    pub(crate) async fn assert_nothing_left(&self) {
        assert_eq!(self.backend.live(), []);
        assert_eq!(self.backend.kept(), []);
        assert_eq!(self.store.sandboxes(None).await.unwrap().records, []);
        let left: Vec<_> = std::fs::read_dir(self.home.path().join("sandboxes"))
            .map(|all| all.map(|entry| entry.unwrap().file_name()).collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "{left:?}");
        assert!(in_time(async { self.engine.is_idle().await }).await);
    }
}

/// Short, but not too short for a good guest on a busy machine.
pub(crate) fn be_impatient(config: &mut EngineConfig) {
    let soon = Duration::from_secs(2);
    config.deadlines =
        Deadlines { hello: soon, answer: soon, long_answer: soon, last_words: soon, ..config.deadlines };
}

pub(crate) async fn open(
    config: &EngineConfig,
    store: &Store,
    backend: &TestBackend,
    clock: &ManualClock,
) -> Result<Engine> {
    let (backend, clock) = (backend.for_engine(), Arc::new(clock.clone()));
    let engine = in_time(Engine::open_with_clock(config.clone(), store.clone(), backend, clock)).await?;
    in_time(engine.settled()).await;
    Ok(engine)
}

/// Fails instead of hanging.
pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("took too long")
}

pub(crate) fn bytes(text: &str) -> ByteStream {
    stream::iter([Ok(Bytes::from(text.to_owned()))]).boxed()
}

pub(crate) async fn collect(bytes: ByteStream) -> Result<String> {
    let parts: Vec<Bytes> = in_time(bytes.try_collect()).await?;
    Ok(String::from_utf8(parts.concat()).unwrap())
}

/// The kinds of entries that tests look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Started,
    Stdin,
    Stdout,
    Stderr,
    Rich,
    Exited,
    Closed,
    Trimmed,
}

fn parts(entry: &Entry) -> (EntryKind, &[u8]) {
    match &entry.body {
        EntryBody::Started { .. } => (EntryKind::Started, &[]),
        EntryBody::Stdin(bytes) => (EntryKind::Stdin, bytes),
        EntryBody::Stdout(bytes) => (EntryKind::Stdout, bytes),
        EntryBody::Stderr(bytes) => (EntryKind::Stderr, bytes),
        EntryBody::Rich(bytes) => (EntryKind::Rich, bytes),
        EntryBody::Exited(_) => (EntryKind::Exited, &[]),
        EntryBody::Closed => (EntryKind::Closed, &[]),
        EntryBody::Trimmed { .. } => (EntryKind::Trimmed, &[]),
    }
}

pub(crate) fn text(entries: &[Entry], kind: EntryKind) -> String {
    let parts = entries.iter().map(parts).filter(|(of, _)| *of == kind).map(|(_, bytes)| bytes);
    String::from_utf8(parts.collect::<Vec<_>>().concat()).unwrap()
}

/// Kinds of existing entries; trimmed ones have none.
pub(crate) fn kinds(entries: &[Entry]) -> Vec<EntryKind> {
    entries.iter().map(|entry| parts(entry).0).filter(|kind| *kind != EntryKind::Trimmed).collect()
}

pub(crate) fn exit_entry(entries: &[Entry]) -> ExitEntry {
    let exit = entries.iter().find_map(|entry| match &entry.body {
        EntryBody::Exited(exit) => exit.clone(),
        _ => None,
    });
    exit.expect("an end")
}

/// Entries are numbered from 1 without gaps.
pub(crate) fn assert_numbered(entries: &[Entry]) {
    for (expected, entry) in (1..).zip(entries) {
        assert!(entry.number == expected && parts(entry).0 != EntryKind::Trimmed, "{expected}: {entry:?}");
    }
}

/// `1\n2\n…n\n`, as `seq n` prints.
pub(crate) fn seq(n: u64) -> String {
    (1..=n).map(|n| format!("{n}\n")).collect()
}

/// The advice of an error, if it reads the same everywhere.
pub(crate) fn advice(error: &sandbox::Error) -> &str {
    match error.next() {
        Some(sandbox::Next::Advice(advice)) => advice,
        other => panic!("{error:?} advises {other:?}"),
    }
}
