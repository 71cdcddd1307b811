//! Tools under test: an engine over the fake back end, called as a client would, every answer held against its schema.

use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use backends::fake::FakeBackend;
use engine::{Engine, EngineConfig, LedgerLimits, PackageGateway, Principal};
use serde_json::Value;
use store::Store;
use tokio_util::sync::CancellationToken;

use super::{
    Mcp, Settings, arguments,
    call::{Call, Progress, Session},
    surface::Surface,
};

/// The surface that all tests share.
pub(crate) fn native() -> &'static Arc<Surface> {
    static NATIVE: LazyLock<Arc<Surface>> = LazyLock::new(|| Arc::new(Surface::native()));
    &NATIVE
}

/// One client of one daemon.
pub(crate) struct Client {
    pub(crate) call: Call,
    pub(crate) backend: FakeBackend,
    home: tempfile::TempDir,
}

impl Client {
    pub(crate) async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        Self::over(FakeBackend::new(), settings).await
    }

    pub(crate) async fn over(backend: FakeBackend, settings: Settings) -> Self {
        Self::at(tempfile::tempdir().unwrap(), backend, settings).await
    }

    /// The same client of the next daemon, after something was done to the files of the first.
    pub(crate) async fn restarted(self, meddle: impl FnOnce(&Path)) -> Self {
        self.call.engine().close().await;
        meddle(self.home.path());
        Self::at(self.home, self.backend, Settings::clone(&self.call.settings)).await
    }

    /// Of a daemon that reaches package indexes.
    pub(crate) async fn with_packages(gateway: Arc<dyn PackageGateway>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = EngineConfig { packages: Some(gateway), ..EngineConfig::new(home.path()) };
        Self::configured(home, config, FakeBackend::new(), Settings::default()).await
    }

    /// Of a daemon that keeps images.
    pub(crate) async fn with_images(settings: Settings) -> Self {
        let home = tempfile::tempdir().unwrap();
        let images = Some(images::Options::default());
        let config = EngineConfig { images, ..EngineConfig::new(home.path()) };
        Self::configured(home, config, FakeBackend::new(), settings).await
    }

    /// One whose sandboxes keep little of what they print.
    pub(crate) async fn with_ledger(limits: LedgerLimits) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = EngineConfig { ledger: limits, ..EngineConfig::new(home.path()) };
        Self::configured(home, config, FakeBackend::new(), Settings::default()).await
    }

    async fn at(home: tempfile::TempDir, backend: FakeBackend, settings: Settings) -> Self {
        let config = EngineConfig::new(home.path());
        Self::configured(home, config, backend, settings).await
    }

    async fn configured(
        home: tempfile::TempDir,
        config: EngineConfig,
        backend: FakeBackend,
        settings: Settings,
    ) -> Self {
        let store = Store::open(home.path()).unwrap();
        let engine = Engine::open(config, store, Arc::new(backend.clone())).await.unwrap();
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
        };
        Self { call, backend, home }
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
    if let Some(output) = surface.output_of(tool) {
        for schema in [&output.full, &output.brief] {
            let problems = arguments::problems(schema, &envelope);
            assert!(problems.is_empty(), "{tool}: {problems:?} in {envelope:#}");
        }
    }
    envelope
}
