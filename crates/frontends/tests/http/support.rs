//! A daemon's app on a real TCP socket, and a client that sends what it likes.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use engine::{Clock, Engine, EngineConfig, Follow, ManualClock, Principal, SystemClock};
pub(crate) use frontends::http::LimitSettings;
use frontends::{
    dialects,
    http::{self, Activity, Authenticate, DevAuth, Gate, Hosts, KeyAuth, Limits, TcpPlaces, Tls, serve_tcp},
    mcp::{Mcp, Settings},
    rest::{self, Rest},
    web::{self, Page},
};
use futures_util::StreamExt;
use sandbox::{ExecSpec, KeySpec, Preset};
use serde_json::Value;
use store::Store;
use test_backend::TestBackend;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// A test that waits longer than this has found a bug.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// How a server of a test differs from the usual one.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) has_keys: bool,
    pub(crate) hosts: Hosts,
    pub(crate) limits: LimitSettings,
    pub(crate) tls: Option<Tls>,
    /// Sandboxes have a network that nobody serves, on every host.
    pub(crate) stands_in_for_network: bool,
    /// The most that sandboxes of keys may reach.
    pub(crate) network_ceiling: Preset,
    /// The engine's clock, for tests that move it.
    pub(crate) clock: Option<ManualClock>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    pub(crate) activity: Activity,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
    _backend: TestBackend,
    _home: tempfile::TempDir,
}

impl Server {
    pub(crate) async fn start(setup: Setup) -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let backend = TestBackend::new();
        if setup.stands_in_for_network {
            backend.stand_in_for_network();
        }
        let mut config = EngineConfig::new(home.path());
        config.network_ceiling.preset = setup.network_ceiling;
        let clock: Arc<dyn Clock> = match setup.clock {
            Some(clock) => Arc::new(clock),
            None => Arc::new(SystemClock),
        };
        let engine = Engine::open_with_clock(config, store, backend.for_engine(), clock).await.unwrap();
        let (activity, stop) = (Activity::default(), CancellationToken::new());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let auth: Arc<dyn Authenticate> = if setup.has_keys {
            Arc::new(KeyAuth::new(engine.clone()))
        } else {
            Arc::new(DevAuth::for_address(address).unwrap())
        };
        let routes = rest::router(Rest::new(engine.clone(), activity.clone(), stop.clone()));
        let mcp = Mcp::new(engine.clone(), Settings::default());
        let routes = routes.merge(dialects::routes(&mcp, frontends::mcp::NATIVE, &activity, &stop));
        let routes = routes.merge(web::router(page()));
        let gate = Gate::tcp(engine.clone(), auth, setup.hosts, Arc::new(Limits::new(setup.limits)));
        let app = http::app(routes, gate.with_ports(&activity, &stop));
        let grace = Duration::from_secs(1);
        let places = TcpPlaces::default();
        let serving =
            tokio::spawn(serve_tcp(listener, app, setup.tls, places, activity.clone(), stop.clone(), grace));
        Self { address, engine, activity, stop, serving, _backend: backend, _home: home }
    }

    /// Everybody is the operator, unless the test says otherwise.
    pub(crate) async fn dev() -> Self {
        Self::start(Setup::default()).await
    }

    /// A key that may do what `spec` says.
    pub(crate) async fn key_with(&self, spec: KeySpec) -> String {
        self.engine.create_key(&Principal::operator("test"), spec).await.unwrap().secret
    }

    pub(crate) async fn new_key(&self, label: &str) -> String {
        let spec = KeySpec { label: Some(label.to_owned()), ..KeySpec::default() };
        self.engine.create_key(&Principal::operator("test"), spec).await.unwrap().secret
    }

    /// Has a program in a sandbox send back what comes to port 8080.
    pub(crate) async fn serve_echo(&self, sandbox: &str) {
        let (who, which) = (Principal::operator("test"), sandbox.parse().unwrap());
        let exec =
            self.engine.exec(&who, &which, ExecSpec::argv(test_backend::echo_server(8080))).await.unwrap();
        let mut entries = self.engine.exec_entries(&who, &which, &exec.id, 1, Follow::Yes).await.unwrap();
        let listens = async {
            while let Some(entry) = entries.next().await {
                if entry.unwrap().output().is_some() {
                    return;
                }
            }
            panic!("it has ended");
        };
        tokio::time::timeout(PATIENCE, listens).await.expect("a server in time");
    }

    pub(crate) async fn connect(&self) -> Client<TcpStream> {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    /// One request on a connection of its own. Lines of the head, without the last.
    pub(crate) async fn ask(&self, head: &[&str]) -> Answer {
        let mut client = self.connect().await;
        client.send(head).await;
        client.answer().await
    }

    /// A GET with a key.
    pub(crate) async fn get_with(&self, target: &str, key: &str) -> Answer {
        let (line, key) = (format!("GET {target} HTTP/1.1"), format!("authorization: Bearer {key}"));
        self.ask(&[&line, "host: localhost", &key]).await
    }

    /// A request with a JSON body and a key; `line` is method and target.
    pub(crate) async fn ask_json(&self, line: &str, key: &str, body: &str) -> Answer {
        let mut client = self.connect().await;
        let (line, key) = (format!("{line} HTTP/1.1"), format!("authorization: Bearer {key}"));
        let length = format!("content-length: {}", body.len());
        client.send(&[&line, "host: localhost", &key, "content-type: application/json", &length]).await;
        client.0.write_all(body.as_bytes()).await.unwrap();
        client.answer().await
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.ask(&[&format!("GET {target} HTTP/1.1"), "host: localhost"]).await
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.serving).await.unwrap().unwrap();
    }
}

pub(crate) struct Client<S>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) async fn send(&mut self, head: &[&str]) {
        let text = format!("{}\r\n\r\n", head.join("\r\n"));
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn read_until(&mut self, bytes: &mut Vec<u8>, is_enough: impl Fn(&[u8]) -> bool) {
        let reading = async {
            while !is_enough(bytes) {
                let n = self.0.read_buf(bytes).await.unwrap();
                assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(bytes));
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("an answer in time");
    }

    /// Reads a head, and the body where its length is said.
    pub(crate) async fn answer(&mut self) -> Answer {
        let end_of_head = |bytes: &[u8]| bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let mut bytes = Vec::new();
        self.read_until(&mut bytes, |bytes| end_of_head(bytes).is_some()).await;
        let n_head = end_of_head(&bytes).unwrap();
        let head = String::from_utf8_lossy(&bytes[..n_head]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let n_body: usize = length.map_or(0, |text| text.parse().unwrap());
        self.read_until(&mut bytes, |bytes| bytes.len() >= n_head + 4 + n_body).await;
        let body = bytes.split_off(n_head + 4);
        Answer { head, sent: String::from_utf8_lossy(&bytes).into_owned(), body }
    }

    /// Sends all of a large body to a route that does not want it, looks for the answer only then, and returns it. No
    /// write fails, and the connection ends as it should.
    pub(crate) async fn refused_upload(mut self, n_bytes: usize) -> Answer {
        let length = format!("content-length: {n_bytes}");
        self.send(&["POST /v1/images/build?wrong=1 HTTP/1.1", "host: localhost", &length]).await;
        let piece = vec![0; 64 * 1024];
        for _ in 0..n_bytes / piece.len() {
            tokio::time::timeout(PATIENCE, self.0.write_all(&piece)).await.expect("room in time").unwrap();
        }
        let answer = self.answer().await;
        assert_eq!(self.0.read_to_end(&mut Vec::new()).await.unwrap(), 0);
        answer
    }

    /// Returns whatever still comes until the other end closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut bytes)).await.expect("an end in time").ok();
        bytes
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    /// In lower case.
    pub(crate) head: String,
    /// The head as it was sent.
    sent: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The value as it was sent; `name` is in lower case.
    pub(crate) fn header_as_sent(&self, name: &str) -> Option<&str> {
        let lines = self.sent.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status(), status, "{} {}", self.head, String::from_utf8_lossy(&self.body));
        self
    }

    /// A failure of this kind, in the one shape of failures.
    #[track_caller]
    pub(crate) fn expect_error(self, status: u16, kind: &str) -> Value {
        let body = self.expect(status).json();
        assert_eq!(body["error"]["kind"], kind, "{body}");
        assert!(body["error"]["requestId"].is_string(), "{body}");
        body["error"].clone()
    }
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A page of two files.
fn page() -> Page {
    let compressed = |text: &str| -> &'static [u8] {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap().leak()
    };
    let files = vec![
        ("index.html", compressed("<!doctype html><title>Warren</title>")),
        ("assets/app-1.js", compressed("let warren = 1;")),
    ];
    Page::new(files.leak())
}
