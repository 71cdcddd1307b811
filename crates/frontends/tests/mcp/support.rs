//! A server to talk to, and the client's side of its transports.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, BodyDataStream},
    http::{HeaderMap, Request, StatusCode, request::Parts},
    response::Response,
};
use engine::{Engine, EngineConfig, PackageGateway, PortStream, Principal};
use frontends::{
    dialects::{self, ALL},
    http::{self, Activity, Authenticate, Gate, Peer},
    links::{LinkSettings, Links},
    mcp::{self, Dialect, Mcp, NATIVE, Settings},
    rest::{self, Rest},
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use http_body_util::BodyExt;
use sandbox::{PackageManager, SandboxId};
use serde_json::{Value, json};
use store::Store;
use test_backend::TestBackend;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// A test that waits longer than this has found a bug.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
pub(crate) const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
pub(crate) const STATELESS: &str = "2026-07-28";
const BOTH: &str = "application/json, text/event-stream";

pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) app: Router,
    pub(crate) stop: CancellationToken,
    pub(crate) activity: Activity,
    _backend: TestBackend,
    pub(crate) home: tempfile::TempDir,
}

/// Everybody is who they say in the header `who`, which may be a key.
#[derive(Debug)]
struct Believes {
    engine: Engine,
}

impl Authenticate for Believes {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, sandbox::Result<Principal>> {
        let who = request.headers.get("who").map_or("ana", |who| who.to_str().unwrap());
        async move {
            match who.starts_with("wrn_") || who.starts_with("msb_") {
                true => self.engine.authenticate_key(who).await,
                false => Ok(Principal::operator(who)),
            }
        }
        .boxed()
    }
}

/// The beginning of the links of a server that has some.
pub(crate) const PUBLIC_URL: &str = "http://warren.test";

/// Answers no request: the package managers of these tests ask for nothing.
#[derive(Debug)]
struct NoIndex;

impl PackageGateway for NoIndex {
    fn open(&self) -> sandbox::Result<()> {
        Ok(())
    }

    fn serve(&self, _: PortStream, _: Option<PackageManager>, _: &SandboxId) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    fn apt_sources(&self, _: &str) -> sandbox::Result<String> {
        Ok(String::new())
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

impl Server {
    pub(crate) async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        Self::configured(settings, |_| {}).await
    }

    pub(crate) async fn configured(settings: Settings, change: impl FnOnce(&mut EngineConfig)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let backend = TestBackend::new();
        let mut config = EngineConfig::new(home.path());
        change(&mut config);
        let engine = Engine::open(config, store, backend.for_engine()).await.unwrap();
        let (stop, activity) = (CancellationToken::new(), Activity::default());
        let mcp = Mcp::new(engine.clone(), settings);
        let routes = mcp::router(&mcp, NATIVE, ALL, &stop, &activity)
            .merge(dialects::routes(&mcp, NATIVE, &activity, &stop));
        let believes = Believes { engine: engine.clone() };
        let app = http::app(routes, Gate::unix(engine.clone(), Arc::new(believes)));
        Self { engine, app, stop, activity, _backend: backend, home }
    }

    /// With everything that a daemon serves which speaks this dialect: links and packages too.
    pub(crate) async fn speaking(plain: Dialect, settings: Settings) -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let backend = TestBackend::new();
        let config = EngineConfig { packages: Some(Arc::new(NoIndex)), ..EngineConfig::new(home.path()) };
        let engine = Engine::open(config, store, backend.for_engine()).await.unwrap();
        let (stop, activity) = (CancellationToken::new(), Activity::default());
        let public = Some(PUBLIC_URL.parse().unwrap());
        let links = Links::new(engine.clone(), LinkSettings { public, ..LinkSettings::default() });
        let mcp = Mcp::with_links(engine.clone(), settings, links);
        let routes = mcp::router(&mcp, plain, ALL, &stop, &activity)
            .merge(dialects::routes(&mcp, plain, &activity, &stop))
            .merge(rest::router(Rest::new(engine.clone(), activity.clone(), stop.clone())));
        let believes = Believes { engine: engine.clone() };
        let app = http::app(routes, Gate::unix(engine.clone(), Arc::new(believes)));
        Self { engine, app, stop, activity, _backend: backend, home }
    }

    pub(crate) async fn open(&self, mut request: Request<Body>) -> Response {
        request.extensions_mut().insert(Peer::Unix { uid: 0, pid: None });
        within(self.app.clone().oneshot(request)).await.unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.open(request).await.into_parts();
        let bytes = within(body.collect()).await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    /// Sends what `curl` would send: no session, and any answer will do.
    pub(crate) async fn ask(&self, target: &str, message: Value) -> Answer {
        self.send(posted(target, message, &[])).await
    }

    /// A session of the given revision, for `who`.
    pub(crate) async fn begin(&self, version: &str, who: &str) -> Session<'_> {
        self.begin_at("/mcp", version, who).await
    }

    pub(crate) async fn begin_at(&self, target: &str, version: &str, who: &str) -> Session<'_> {
        let answer = self.send(posted(target, hello(version), &[("accept", BOTH), ("who", who)])).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        let id = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let greeting = answer.messages().remove(0);
        let version = greeting["result"]["protocolVersion"].as_str().unwrap().to_owned();
        let path = target.split('?').next().unwrap_or(target).to_owned();
        let session = Session { server: self, path, id, version, who: who.to_owned(), greeting };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(session.post(ready).await.status, StatusCode::ACCEPTED);
        session
    }
}

pub(crate) fn hello(version: &str) -> Value {
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
    request(0, "initialize", params)
}

pub(crate) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) fn call(id: u64, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({ "name": tool, "arguments": arguments }))
}

/// A call whose progress the client wants to hear of.
pub(crate) fn call_with_progress(id: u64, tool: &str, arguments: Value) -> Value {
    let meta = json!({ "progressToken": format!("token-{id}") });
    request(id, "tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta }))
}

/// A request as the newest revision has it: everything it needs is in it.
pub(crate) fn stateless(mut message: Value) -> (Value, Vec<(&'static str, String)>) {
    let name = message["params"]["name"].as_str().map(str::to_owned);
    let mut headers = vec![
        ("accept", BOTH.to_owned()),
        ("mcp-protocol-version", STATELESS.to_owned()),
        ("mcp-method", message["method"].as_str().unwrap().to_owned()),
    ];
    headers.extend(name.map(|name| ("mcp-name", name)));
    let meta = &mut message["params"]["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!(STATELESS);
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
    (message, headers)
}

pub(crate) fn posted(target: &str, message: Value, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request =
        Request::post(target).header("content-type", "application/json").header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(message.to_string())).unwrap()
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Every message on a stream, or the only one.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if self.headers.get("content-type").is_some_and(|kind| kind == "application/json") {
            return vec![self.json()];
        }
        let mut events = VecDeque::new();
        let rest = take_events(&self.text, &mut events);
        assert_eq!(rest, "", "{self:?}");
        events.into_iter().filter_map(|event| event.message).collect()
    }
}

pub(crate) struct Session<'a> {
    server: &'a Server,
    path: String,
    pub(crate) id: String,
    version: String,
    who: String,
    pub(crate) greeting: Value,
}

impl Session<'_> {
    fn headers(&self) -> [(&str, &str); 4] {
        [
            ("accept", BOTH),
            ("mcp-session-id", &self.id),
            ("mcp-protocol-version", &self.version),
            ("who", &self.who),
        ]
    }

    pub(crate) async fn post(&self, message: Value) -> Answer {
        self.server.send(posted(&self.path, message, &self.headers())).await
    }

    /// The answer to a request.
    pub(crate) async fn ask(&self, message: Value) -> Value {
        let answer = self.post(message).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        answer.messages().pop().unwrap()
    }

    /// The data of a tool's answer.
    pub(crate) async fn data(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask(call(7, tool, arguments)).await;
        let envelope = &answer["result"]["structuredContent"];
        assert_eq!(envelope["ok"], true, "{tool}: {answer:#}");
        envelope["data"].clone()
    }

    /// The stream of a request, which goes on while it is read.
    pub(crate) async fn stream(&self, message: Value) -> Events {
        Events::new(self.server.open(posted(&self.path, message, &self.headers())).await)
    }

    /// The session's own stream, or one that goes on where another broke off.
    pub(crate) async fn listen(&self, last_event: Option<&str>) -> Events {
        let mut request = Request::get(&self.path).header("host", "localhost");
        for (name, value) in self.headers() {
            request = request.header(name, value);
        }
        if let Some(id) = last_event {
            request = request.header("last-event-id", id);
        }
        Events::new(self.server.open(request.body(Body::empty()).unwrap()).await)
    }

    pub(crate) async fn end(&self) -> Answer {
        let mut request = Request::delete(&self.path).header("host", "localhost");
        for (name, value) in self.headers() {
            request = request.header(name, value);
        }
        self.server.send(request.body(Body::empty()).unwrap()).await
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SseEvent {
    pub(crate) id: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) data: String,
    pub(crate) message: Option<Value>,
}

/// Whole events at the start of `text`; returns the rest.
fn take_events<'a>(mut text: &'a str, events: &mut VecDeque<SseEvent>) -> &'a str {
    while let Some((block, rest)) = text.split_once("\n\n") {
        text = rest;
        let mut event = SseEvent::default();
        for line in block.lines() {
            match line.split_once(':').map(|(name, value)| (name, value.trim_start())) {
                Some(("id", value)) => event.id = Some(value.to_owned()),
                Some(("event", value)) => event.event = Some(value.to_owned()),
                Some(("data", value)) => event.data.push_str(value),
                _ => {}
            }
        }
        event.message = serde_json::from_str(&event.data).ok();
        events.push_back(event);
    }
    text
}

/// Events as they come. Dropping it is a broken connection.
pub(crate) struct Events {
    pub(crate) status: StatusCode,
    body: BodyDataStream,
    buffer: String,
    events: VecDeque<SseEvent>,
}

impl Events {
    pub(crate) fn new(response: Response) -> Self {
        let status = response.status();
        let body = response.into_body().into_data_stream();
        Self { status, body, buffer: String::new(), events: VecDeque::new() }
    }

    /// The next event, or nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let piece = within(self.body.next()).await?.unwrap();
            self.buffer.push_str(std::str::from_utf8(&piece).unwrap());
            self.buffer = take_events(&self.buffer.clone(), &mut self.events).to_owned();
        }
    }

    /// The next event with a message that `is_it`.
    pub(crate) async fn find(&mut self, is_it: impl Fn(&Value) -> bool) -> SseEvent {
        loop {
            let event = self.next().await.expect("the stream ended");
            if event.message.as_ref().is_some_and(&is_it) {
                return event;
            }
        }
    }

    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        self.find(|message| message["id"] == id).await.message.unwrap()
    }

    pub(crate) async fn note(&mut self, method: &str) -> SseEvent {
        self.find(|message| message["method"] == method).await
    }
}
