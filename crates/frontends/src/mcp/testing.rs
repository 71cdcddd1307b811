//! Tools under test: an engine with real sandboxes, called as a client would, every answer held against its schema.

use std::{
    path::Path,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use engine::{Engine, EngineConfig, LedgerLimits, PackageGateway, Principal};
use futures_util::FutureExt;
use sandbox::Capability;
use serde_json::{Value, json};
use store::Store;
use test_backend::TestBackend;
use tokio_util::sync::CancellationToken;

use super::{
    Mcp, Settings, Toolsets, arguments,
    call::{Call, Person, Progress, Session},
    envelope::Envelope,
    surface::Surface,
    tools,
};

/// A test that waits longer than this has found a bug.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The surface that all tests share.
pub(crate) fn native() -> &'static Arc<Surface> {
    static NATIVE: LazyLock<Arc<Surface>> = LazyLock::new(|| Arc::new(Surface::native()));
    &NATIVE
}

/// Our tools as another system lists them: those that it has.
pub(crate) fn theirs() -> Surface {
    let facts: Vec<Value> =
        serde_json::from_str(include_str!("../../tests/data/microsandbox-mcp-tools.json")).unwrap();
    let names: Vec<_> = facts.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let tools = tools::all().into_iter().filter(|tool| names.contains(&tool.name)).collect();
    Surface::new(native().manner, Box::new(Envelope), tools)
}

/// One client of one daemon.
pub(crate) struct Client {
    pub(crate) call: Call,
    pub(crate) backend: TestBackend,
    home: tempfile::TempDir,
}

impl Client {
    pub(crate) async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        Self::over(TestBackend::new(), settings).await
    }

    pub(crate) async fn over(backend: TestBackend, settings: Settings) -> Self {
        Self::at(tempfile::tempdir().unwrap(), backend, settings).await
    }

    /// The same client of the next daemon, after something was done to the files of the first.
    pub(crate) async fn restarted(self, meddle: impl FnOnce(&Path)) -> Self {
        self.call.engine().close().await;
        meddle(self.home.path());
        Self::at(self.home, self.backend, Settings::clone(&self.call.settings)).await
    }

    /// Returns a client of a daemon that reaches package indexes.
    pub(crate) async fn with_packages(gateway: Arc<dyn PackageGateway>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = EngineConfig { packages: Some(gateway), ..EngineConfig::new(home.path()) };
        Self::configured(home, config, TestBackend::new(), Settings::default()).await
    }

    /// Returns a client of a daemon that keeps images.
    pub(crate) async fn with_images(settings: Settings) -> Self {
        let home = tempfile::tempdir().unwrap();
        let images = Some(images::Options::default());
        let config = EngineConfig { images, ..EngineConfig::new(home.path()) };
        let backend = TestBackend::in_home(home.path());
        Self::configured(home, config, backend, settings).await
    }

    /// One whose sandboxes keep little of what they print.
    pub(crate) async fn with_ledger(limits: LedgerLimits) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = EngineConfig { ledger: limits, ..EngineConfig::new(home.path()) };
        Self::configured(home, config, TestBackend::new(), Settings::default()).await
    }

    async fn at(home: tempfile::TempDir, backend: TestBackend, settings: Settings) -> Self {
        let config = EngineConfig::new(home.path());
        Self::configured(home, config, backend, settings).await
    }

    async fn configured(
        home: tempfile::TempDir,
        config: EngineConfig,
        backend: TestBackend,
        settings: Settings,
    ) -> Self {
        let store = Store::open(home.path()).unwrap();
        let engine = Engine::open(config, store, backend.for_engine()).await.unwrap();
        let mcp = Mcp::new(engine, settings);
        let settings = Arc::clone(mcp.settings());
        let call = Call {
            mcp,
            surface: Arc::clone(native()),
            who: Principal::operator("test"),
            settings,
            namespace: None,
            base: None,
            session: Session::kept(),
            cancelled: CancellationToken::new(),
            progress: Progress::default(),
            person: Person::default(),
        };
        Self { call, backend, home }
    }

    /// Whether this host can do it. Says so where it cannot, since the test then proves less.
    pub(crate) fn has(&self, capability: Capability) -> bool {
        let has = self.call.engine().capabilities().has(capability);
        if !has {
            println!("skipped: this host has no {capability}");
        }
        has
    }

    /// A caller who goes away once progress tells of `word`, and everything that it was told.
    pub(crate) fn leaving_at(&self, word: &'static str) -> (Call, Arc<Mutex<Vec<String>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut call = self.call.clone();
        call.cancelled = call.cancelled.child_token();
        let (messages, token) = (Arc::clone(&told), call.cancelled.clone());
        call.progress = Progress::new(move |step| {
            if step.message.contains(word) {
                token.cancel();
            }
            messages.lock().unwrap().push(step.message);
            std::future::ready(()).boxed()
        });
        (call, told)
    }

    /// Waits until a session to which nothing was written says that it has started; returns the cursor behind that.
    pub(crate) async fn begun(&self, session: &str) -> u64 {
        let poll = json!({ "execSessionId": session, "limit": 1, "waitMs": 60_000 });
        let polled = self.data("sandbox_exec_poll", poll).await;
        assert_eq!(polled["events"][0]["event"]["kind"], "started", "{polled}");
        polled["nextCursor"].as_u64().unwrap()
    }

    /// Waits until an exec session has printed this.
    pub(crate) async fn printed(&self, session: &str, expected: &str) {
        let (mut text, mut cursor) = (String::new(), json!(0));
        while !text.contains(expected) {
            let poll = json!({ "execSessionId": session, "cursor": cursor, "waitMs": 60_000 });
            let polled = self.data("sandbox_exec_poll", poll).await;
            assert_eq!(polled["done"], false, "ended after {text:?}: {polled:#}");
            cursor = polled["nextCursor"].clone();
            let events = polled["events"].as_array().unwrap().iter();
            text.extend(events.filter_map(|event| event["event"]["data"].as_str()));
        }
    }

    /// Polls a session with these arguments until it ends, when it must have printed exactly this.
    pub(crate) async fn printed_to_the_end(&self, mut poll: Value, expected: &str) {
        let mut text = String::new();
        loop {
            let polled = self.data("sandbox_exec_poll", poll.clone()).await;
            let events = polled["events"].as_array().unwrap().iter();
            text.extend(events.filter_map(|event| event["event"]["data"].as_str()));
            poll["cursor"] = polled["nextCursor"].clone();
            if polled["done"] == true {
                return assert_eq!(text, expected, "{polled:#}");
            }
        }
    }

    /// The whole envelope.
    pub(crate) async fn ask(&self, tool: &str, arguments: Value) -> Value {
        ask(self.call.clone(), tool, arguments).await
    }

    /// The data of an answer; fails the test on a failure.
    pub(crate) async fn data(&self, tool: &str, arguments: Value) -> Value {
        let envelope = self.ask(tool, arguments).await;
        assert_eq!(envelope["ok"], true, "{tool}: {envelope:#}");
        envelope["data"].clone()
    }

    /// The error of a failure with this code; fails the test on anything else.
    pub(crate) async fn error(&self, tool: &str, arguments: Value, code: &str) -> Value {
        let envelope = self.ask(tool, arguments).await;
        assert_eq!(envelope["ok"], false, "{tool}: {envelope:#}");
        assert_eq!(envelope["error"]["code"], code, "{tool}: {envelope:#}");
        envelope["error"].clone()
    }
}

/// Calls a tool; what it answers must fit the schema that it promises.
pub(crate) async fn ask(call: Call, tool: &str, arguments: Value) -> Value {
    let surface = Arc::clone(&call.surface);
    let reply = surface.call(tool, call, arguments.as_object().cloned()).await;
    let envelope = reply.data.unwrap();
    assert_eq!(reply.error_code.is_some(), envelope["ok"] == false, "{tool}: {envelope:#}");
    let listed = surface.find(tool);
    for sets in [Toolsets::all(), Toolsets::default()] {
        let Some(schema) = listed.and_then(|listed| surface.output_of(listed, &sets)) else { continue };
        let problems = arguments::problems(&schema, &envelope);
        assert!(problems.is_empty(), "{tool}: {problems:?} in {envelope:#}");
    }
    envelope
}
