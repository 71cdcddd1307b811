//! The front ends over the engine, asked without a socket.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode, request::Parts},
};
use engine::{Engine, EngineConfig, Principal};
use frontends::{
    dialects,
    http::{self, Activity, Authenticate, Gate, Peer},
    mcp::{self, Mcp, NATIVE, Settings},
    rest::{self, Rest},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use http_body_util::BodyExt as _;
use store::Store;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::backend::RefusingBackend;

/// Answers that never end (events, followed logs) are read for this long.
const PATIENCE: Duration = Duration::from_millis(200);

/// Everybody is the operator, so that every request reaches the code behind the gate.
#[derive(Debug)]
struct Operator;

impl Authenticate for Operator {
    fn authenticate<'a>(&'a self, _request: &'a Parts) -> BoxFuture<'a, sandbox::Result<Principal>> {
        async { Ok(Principal::operator("fuzzer")) }.boxed()
    }
}

pub struct Daemon {
    pub engine: Engine,
    pub runtime: Runtime,
    app: Router,
    _home: tempfile::TempDir,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Daemon")
    }
}

impl Daemon {
    /// One for the whole run: what earlier inputs left behind is a part of the test.
    pub fn get() -> &'static Self {
        static DAEMON: OnceLock<Daemon> = OnceLock::new();
        DAEMON.get_or_init(Self::start)
    }

    fn start() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let home = tempfile::tempdir().expect("a temporary directory");
        let (engine, app) = runtime.block_on(async {
            let store = Store::open(home.path()).expect("a database");
            let images = Some(images::Options::default());
            let config = EngineConfig { images, ..EngineConfig::new(home.path()) };
            let engine = Engine::open(config, store, Arc::new(RefusingBackend)).await.expect("an engine");
            let (stop, activity) = (CancellationToken::new(), Activity::default());
            let api = rest::router(Rest::new(engine.clone(), activity.clone(), stop.clone()));
            let mcp = Mcp::new(engine.clone(), Settings::default());
            let tools = mcp::router(&mcp, NATIVE, dialects::ALL, &stop, &activity);
            let tools = tools.merge(dialects::routes(&mcp, NATIVE, &activity, &stop));
            let app = http::app(api.merge(tools), Gate::unix(engine.clone(), Arc::new(Operator)));
            (engine, app)
        });
        Self { engine, runtime, app, _home: home }
    }

    /// Asks, reads the answer, and fails the run if it is the daemon's own fault.
    pub fn ask(&self, method: Method, target: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let Ok(mut request) = request.body(Body::from(body.to_vec())) else { return };
        request.extensions_mut().insert(Peer::Unix { uid: 0, pid: None });
        self.runtime.block_on(async {
            let asked = tokio::time::timeout(PATIENCE, self.app.clone().oneshot(request)).await;
            let Ok(Ok(answer)) = asked else { return };
            let status = answer.status();
            let read = tokio::time::timeout(PATIENCE, answer.into_body().collect()).await;
            if status == StatusCode::INTERNAL_SERVER_ERROR {
                let text = read.ok().and_then(Result::ok).map(|read| read.to_bytes());
                panic!("{target} answered {status}: {text:?}");
            }
        });
    }
}
