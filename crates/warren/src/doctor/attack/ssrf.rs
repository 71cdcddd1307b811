//! Server-side request forgery: the daemon may contact the registry that its configuration names, but no connection may
//! reach another service on loopback.

use std::{
    fs, io,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sandbox::{Error, ErrorKind};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{Seen, archives, http::NATIVE, secrets::contains, stage::Stage};
use crate::error::CommandResult;

/// How long an answer may take. Connections count even if the answer is late.
const TIME: Duration = Duration::from_secs(4);
const JSON: &str = "application/json";
/// How many names of loopback are taken from `/etc/hosts`.
const MAX_NAMES: usize = 3;

/// Two servers on loopback: a registry that redirects pulls, and the service that it redirects them to.
pub(crate) struct Decoys {
    /// Address of the registry, which the daemon's configuration names.
    pub(super) registry: String,
    n_asked: Arc<AtomicUsize>,
    hidden_port: u16,
    n_heard: Arc<AtomicUsize>,
    /// The servers stop when this is dropped.
    _servers: JoinSet<()>,
}

impl Decoys {
    pub(super) async fn listen() -> io::Result<Self> {
        let mut servers = JoinSet::new();
        let hidden = TcpListener::bind("127.0.0.1:0").await?;
        let hidden_port = hidden.local_addr()?.port();
        let n_heard = Arc::new(AtomicUsize::new(0));
        servers.spawn(count(hidden, Arc::clone(&n_heard)));
        // A host without IPv6 has fewer addresses to try.
        if let Ok(hidden) = TcpListener::bind((Ipv6Addr::LOCALHOST, hidden_port)).await {
            servers.spawn(count(hidden, Arc::clone(&n_heard)));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let registry = listener.local_addr()?.to_string();
        let n_asked = Arc::new(AtomicUsize::new(0));
        servers.spawn(mislead(listener, inside(hidden_port), Arc::clone(&n_asked)));
        Ok(Self { registry, n_asked, hidden_port, n_heard, _servers: servers })
    }

    /// An image that the registry does not have.
    pub(super) fn missing_image(&self) -> String {
        format!("{}/attack/none:1", self.registry)
    }
}

/// Counts connections.
async fn count(listener: TcpListener, n_heard: Arc<AtomicUsize>) {
    while listener.accept().await.is_ok() {
        n_heard.fetch_add(1, Ordering::SeqCst);
    }
}

/// Spellings of loopback and of the host's own network, as hosts with a port.
fn inside(port: u16) -> Vec<String> {
    let loopback = [
        "127.0.0.1",
        "127.1",
        "127.255.255.254",
        "0.0.0.0",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "localhost",
        "LOCALHOST",
        "attack.localhost",
    ];
    let network = [
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00::1]",
        "metadata.google.internal",
    ];
    let hosts = loopback.into_iter().chain(network).map(str::to_owned).chain(names_of_loopback());
    hosts.map(|host| format!("{host}:{port}")).collect()
}

/// Names that only a DNS lookup shows to be this machine: they pass every check of the text.
fn names_of_loopback() -> Vec<String> {
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let lines = hosts.lines().filter_map(|line| line.split('#').next()?.split_once(char::is_whitespace));
    let own = lines.filter(|(address, _)| address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()));
    let names = own.flat_map(|(_, names)| names.split_whitespace());
    names.filter(|name| !name.contains("localhost")).take(MAX_NAMES).map(str::to_owned).collect()
}

/// Ways in which the registry directs a pull to the address with this number.
const REDIRECTS: &[&str] = &["manifest", "blob"];
const REALM: &str = "realm";

/// Serves `/v2/attack/<way>/<number of an address>/…`.
async fn mislead(listener: TcpListener, addresses: Vec<String>, n_asked: Arc<AtomicUsize>) {
    while let Ok((connection, _)) = listener.accept().await {
        n_asked.fetch_add(1, Ordering::SeqCst);
        // A client may disconnect.
        tokio::time::timeout(TIME, answer(connection, &addresses)).await.ok();
    }
}

async fn answer(connection: TcpStream, addresses: &[String]) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    let mut request = String::new();
    while connection.read_line(&mut request).await? > 2 {}
    let path = request.split(' ').nth(1).unwrap_or_default();
    let (head, body) = misleading(path, addresses).unwrap_or(("404 Not Found".to_owned(), String::new()));
    let length = body.len();
    let text = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    connection.write_all(text.as_bytes()).await?;
    connection.flush().await
}

/// The status with additional headers, and the body.
fn misleading(path: &str, addresses: &[String]) -> Option<(String, String)> {
    let mut words = path.strip_prefix("/v2/attack/")?.split('/');
    let (way, number, kind) = (words.next()?, words.next()?.parse::<usize>().ok()?, words.next()?);
    let address = addresses.get(number)?;
    Some(match (way, kind) {
        (REALM, _) => {
            let challenge = format!("Bearer realm=\"http://{address}/token\",service=\"attack\"");
            (format!("401 Unauthorized\r\nWWW-Authenticate: {challenge}"), String::new())
        }
        ("blob", "manifests") => ("200 OK".to_owned(), manifest().to_string()),
        _ => (format!("307 Temporary Redirect\r\nLocation: http://{address}/redirected"), String::new()),
    })
}

fn manifest() -> Value {
    let content = |kind: &str| {
        let media_type = format!("application/vnd.oci.image.{kind}");
        json!({ "mediaType": media_type, "digest": format!("sha256:{}", "a".repeat(64)), "size": 2 })
    };
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": content("config.v1+json"),
        "layers": [content("layer.v1.tar")],
    })
}

/// The requests that were sent, and their results.
struct Requests<'a> {
    stage: &'a Stage,
    n_heard_before: usize,
    n_asked_before: usize,
    n_sent: usize,
    /// Requests that were not refused: the only sign of an attempt on an address where nobody listens.
    tried: Vec<String>,
}

impl<'a> Requests<'a> {
    fn begin(stage: &'a Stage) -> Self {
        let decoys = &stage.decoys;
        Self {
            stage,
            n_heard_before: decoys.n_heard.load(Ordering::SeqCst),
            n_asked_before: decoys.n_asked.load(Ordering::SeqCst),
            n_sent: 0,
            tried: Vec::new(),
        }
    }

    async fn post(&mut self, target: &str, kind: &str, body: Vec<u8>, about: &str) -> CommandResult<()> {
        let asked = self.stage.ask(&self.stage.key, "POST", target, Some((kind, body)));
        match tokio::time::timeout(TIME, asked).await {
            Ok(Ok((status @ (401 | 429), _))) => {
                let message = format!("the key was answered with {status}");
                Err(Error::new(ErrorKind::Unavailable, message).into())
            }
            Ok(Ok((_, answer))) => {
                self.note(about, &answer);
                Ok(())
            }
            Ok(Err(_)) | Err(_) => {
                self.note(about, b"");
                Ok(())
            }
        }
    }

    fn note(&mut self, about: &str, answer: &[u8]) {
        self.n_sent += 1;
        let is_refused = [&b"\"denied\""[..], b"\"invalid"].iter().any(|word| contains(answer, word));
        if !is_refused {
            self.tried.push(format!("{about} was not refused"));
        }
    }

    async fn pull(&mut self, reference: &str, insecure: bool) -> CommandResult<()> {
        let body = json!({ "reference": reference, "insecure": insecure });
        self.post("/v1/images/pull", JSON, json_bytes(body), reference).await
    }

    fn seen(mut self) -> Seen {
        match self.stage.decoys.n_heard.load(Ordering::SeqCst) - self.n_heard_before {
            0 => {}
            n => self.tried.insert(0, format!("{n} connections to a service on loopback")),
        }
        Seen::unless(&self.tried, format!("{} requests refused, no connection", self.n_sent))
    }

    /// The same where the registry redirects pulls: if it received no request, nothing was tried.
    fn seen_after_registry(self) -> Seen {
        let n_asked = self.stage.decoys.n_asked.load(Ordering::SeqCst) - self.n_asked_before;
        if n_asked < self.n_sent {
            return Seen::untried(format!("{} pulls, {n_asked} requests to the registry", self.n_sent));
        }
        self.seen()
    }
}

fn json_bytes(value: Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn references(stage: &Stage) -> Vec<String> {
    inside(stage.decoys.hidden_port).iter().map(|host| format!("{host}/attack/image:1")).collect()
}

pub(super) async fn pull(stage: &Stage) -> CommandResult<Seen> {
    let mut requests = Requests::begin(stage);
    for reference in &references(stage) {
        for insecure in [false, true] {
            requests.pull(reference, insecure).await?;
        }
    }
    Ok(requests.seen())
}

pub(super) async fn tool(stage: &Stage) -> CommandResult<Seen> {
    let mut requests = Requests::begin(stage);
    for reference in &references(stage) {
        let arguments = json!({ "reference": reference, "insecure": true });
        let params = json!({ "name": "image_pull", "arguments": arguments });
        let (_, answer) = stage.caller.mcp(&stage.key, NATIVE, "tools/call", params).await?;
        requests.note(reference, &answer);
    }
    Ok(requests.seen())
}

pub(super) async fn create(stage: &Stage) -> CommandResult<Seen> {
    let mut requests = Requests::begin(stage);
    for reference in &references(stage) {
        let body = json_bytes(json!({ "image": reference }));
        requests.post("/v1/sandboxes", JSON, body, reference).await?;
    }
    Ok(requests.seen())
}

pub(super) async fn build(stage: &Stage) -> CommandResult<Seen> {
    let mut requests = Requests::begin(stage);
    for reference in &references(stage) {
        let context = archives::Tar::default().file("Dockerfile", &format!("FROM {reference}\n")).end();
        requests.post("/v1/images/build", "application/x-tar", context, reference).await?;
    }
    Ok(requests.seen())
}

/// An allowed registry redirects the daemon to private addresses.
async fn astray(stage: &Stage, way: &str, requests: &mut Requests<'_>) -> CommandResult<()> {
    for number in 0..inside(stage.decoys.hidden_port).len() {
        let reference = format!("{}/attack/{way}/{number}:1", stage.decoys.registry);
        requests.pull(&reference, false).await?;
    }
    Ok(())
}

pub(super) async fn redirect(stage: &Stage) -> CommandResult<Seen> {
    let mut requests = Requests::begin(stage);
    for way in REDIRECTS {
        astray(stage, way, &mut requests).await?;
    }
    Ok(requests.seen_after_registry())
}

pub(super) async fn realm(stage: &Stage) -> CommandResult<Seen> {
    let mut requests = Requests::begin(stage);
    astray(stage, REALM, &mut requests).await?;
    Ok(requests.seen_after_registry())
}
