//! An API to ask, without a socket.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode, header, request::Parts},
};
use bytes::Bytes;
use engine::{Engine, EngineConfig, Principal};
use frontends::{
    http::{self, Activity, Authenticate, Gate, Peer, PeerCredentials},
    rest::{self, Rest},
};
use futures_util::{FutureExt, Stream, StreamExt, future::BoxFuture};
use http_body_util::BodyExt;
use sandbox::Capability;
use serde_json::{Value, json};
use store::Store;
use test_backend::TestBackend;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::conformance;

/// The user that owns the daemon in these tests.
pub(crate) const OWNER: u32 = 1000;
/// A test that waits longer than this has found a bug.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) router: Router,
    pub(crate) engine: Engine,
    pub(crate) backend: TestBackend,
    pub(crate) activity: Activity,
    pub(crate) stop: CancellationToken,
    pub(crate) peer: Peer,
    _home: Arc<tempfile::TempDir>,
}

/// A door that knows everyone as the same principal.
#[derive(Debug)]
struct Known(Principal);

impl Authenticate for Known {
    fn authenticate<'a>(&'a self, _request: &'a Parts) -> BoxFuture<'a, sandbox::Result<Principal>> {
        let who = self.0.clone();
        async move { Ok(who) }.boxed()
    }
}

fn router(
    engine: &Engine,
    auth: Arc<dyn Authenticate>,
    activity: &Activity,
    stop: &CancellationToken,
) -> Router {
    let routes = rest::router(Rest::new(engine.clone(), activity.clone(), stop.clone()));
    http::app(routes, Gate::unix(engine.clone(), auth))
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{:?}", self.bytes);
        self
    }

    /// A failure of this kind, in the one shape of failures.
    #[track_caller]
    pub(crate) fn expect_error(self, status: u16, kind: &str) -> Value {
        let body = self.expect(status).json();
        let error = &body["error"];
        assert_eq!(error["kind"], kind, "{body}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        assert!(error["requestId"].as_str().is_some_and(|id| !id.is_empty()), "{body}");
        error.clone()
    }
}

impl Api {
    pub(crate) async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = EngineConfig::new(home.path());
        Self::configured(home, config).await
    }

    /// Returns the API of a daemon that keeps images.
    pub(crate) async fn with_images() -> Self {
        let home = tempfile::tempdir().unwrap();
        let images = Some(images::Options::default());
        let config = EngineConfig { images, ..EngineConfig::new(home.path()) };
        Self::configured(home, config).await
    }

    /// Returns the API of a daemon whose sandboxes have a network, which carries nothing.
    pub(crate) async fn with_network() -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = EngineConfig::new(home.path());
        let backend = TestBackend::new();
        backend.stand_in_for_network();
        Self::over(home, config, backend).await
    }

    async fn configured(home: tempfile::TempDir, config: EngineConfig) -> Self {
        let backend = match &config.images {
            Some(_) => TestBackend::in_home(home.path()),
            None => TestBackend::new(),
        };
        Self::over(home, config, backend).await
    }

    async fn over(home: tempfile::TempDir, config: EngineConfig, backend: TestBackend) -> Self {
        let store = Store::open(home.path()).unwrap();
        let engine = Engine::open(config, store, backend.for_engine()).await.unwrap();
        let (activity, stop) = (Activity::default(), CancellationToken::new());
        let auth = Arc::new(PeerCredentials { owner: OWNER });
        let router = router(&engine, auth, &activity, &stop);
        let peer = Peer::Unix { uid: OWNER, pid: None };
        Self { router, engine, backend, activity, stop, peer, _home: Arc::new(home) }
    }

    /// The same daemon by another door.
    pub(crate) fn through(&self, auth: impl Authenticate + 'static) -> Self {
        let router = router(&self.engine, Arc::new(auth), &self.activity, &self.stop);
        Self { router, ..self.clone() }
    }

    /// The same daemon, asked by someone else.
    pub(crate) fn by(&self, who: Principal) -> Self {
        self.through(Known(who))
    }

    /// With a running sandbox called `box`.
    pub(crate) async fn with_box() -> Self {
        let api = Self::new().await;
        api.post("/v1/sandboxes", json!({ "name": "box" })).await.expect(201);
        api
    }

    /// A sandbox called `few` which has two shells, whatever else the host has.
    pub(crate) async fn make_few(&self) {
        let shell = |name: &str| json!({ "kind": "symlink", "target": format!("/bin/{name}"), "path": format!("/opt/few/{name}") });
        let patches = json!([{ "kind": "mkdir", "path": "/opt/few" }, shell("bash"), shell("sh")]);
        let few = json!({ "name": "few", "env": { "PATH": "/opt/few" }, "patches": patches });
        self.post("/v1/sandboxes", few).await.expect(201);
    }

    /// Whether this host can do it. Says so where it cannot, since the test then proves less.
    #[expect(clippy::print_stdout, reason = "what a test leaves out, it says")]
    pub(crate) fn has(&self, capability: Capability) -> bool {
        let has = self.engine.capabilities().has(capability);
        if !has {
            println!("skipped: this host has no {capability}");
        }
        has
    }

    /// The answer's head; its body streams.
    pub(crate) async fn open(&self, mut request: Request<Body>) -> axum::response::Response {
        request.extensions_mut().insert(self.peer);
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.router.clone().oneshot(request).await.unwrap();
        conformance::check(&method, &path, &response);
        response
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let asking = async {
            let response = self.open(request).await;
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            Answer { status: parts.status, headers: parts.headers, bytes }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("an answer in time")
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.send(Request::get(target).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn get_as(&self, target: &str, accept: &str) -> Answer {
        self.send(Request::get(target).header(header::ACCEPT, accept).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, target: &str, body: Value) -> Answer {
        let request = Request::post(target).header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    pub(crate) async fn put(&self, target: &str, body: Value) -> Answer {
        let request = Request::put(target).header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// A POST that has no body.
    pub(crate) async fn act(&self, target: &str) -> Answer {
        self.send(Request::post(target).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn send_bytes(&self, method: Method, target: &str, bytes: impl Into<Body>) -> Answer {
        self.send(Request::builder().method(method).uri(target).body(bytes.into()).unwrap()).await
    }

    pub(crate) async fn delete(&self, target: &str) -> Answer {
        self.send(Request::delete(target).body(Body::empty()).unwrap()).await
    }

    /// Starts a command in `box` and returns its id.
    pub(crate) async fn start(&self, spec: Value) -> String {
        let started = self.post("/v1/sandboxes/box/execs", spec).await.expect(201).json();
        started["id"].as_str().unwrap().to_owned()
    }

    /// Has a program in `box` send back what comes to port 8080.
    pub(crate) async fn serve_echo(&self) {
        let exec = self.start(json!({ "command": test_backend::echo_server(8080) })).await;
        let entries = Request::get(format!("/v1/sandboxes/box/execs/{exec}/entries?follow=true"));
        let mut stream = pieces(self.open(entries.body(Body::empty()).unwrap()).await);
        next_with(&mut stream, "ready").await;
    }

    /// Runs a command in `box` to its end.
    pub(crate) async fn run(&self, command: &[&str]) -> Value {
        self.post("/v1/sandboxes/box/execs?wait=true", json!({ "command": command })).await.expect(201).json()
    }
}

/// Pieces of a body as they come.
pub(crate) fn pieces(response: axum::response::Response) -> impl Stream<Item = Bytes> + Unpin {
    response.into_body().into_data_stream().map(Result::unwrap).boxed()
}

/// The next piece that contains `text`, or the test fails.
pub(crate) async fn next_with(stream: &mut (impl Stream<Item = Bytes> + Unpin), text: &str) -> String {
    let looking = async {
        loop {
            let piece = stream.next().await.unwrap_or_else(|| panic!("the stream ended before {text:?}"));
            let piece = String::from_utf8_lossy(&piece).into_owned();
            if piece.contains(text) {
                return piece;
            }
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("no {text:?} in time"))
}
