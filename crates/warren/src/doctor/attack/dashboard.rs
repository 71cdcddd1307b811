//! Attacks on sessions of the dashboard: by whoever got a part of one, by pages of others, by servers in sandboxes.

use std::io;

use serde_json::{Value, json};

use super::{
    Seen, Stage,
    secrets::contains,
    stage::{OURS, THEIRS},
};
use crate::{client::Target, error::CommandResult};

/// A server that listens inside and repeats everything that it is sent.
const MIRROR: &str = "import http.server as s
class H(s.BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(self.headers).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
print('ready', flush=True)
s.HTTPServer(('127.0.0.1', 8000), H).serve_forever()";
const PORT: u16 = 8000;

type Headers = Vec<(&'static str, String)>;

/// A session, in both halves.
pub(super) struct Session {
    cookie: String,
    proof: String,
}

impl Session {
    /// Signs in as the dashboard's page does.
    async fn begin(stage: &Stage, body: &Value) -> CommandResult<Self> {
        let body = Some(("application/json", body.to_string().into_bytes()));
        let (status, answer, headers) = stage.caller.exchange("POST", "/v1/session", body).await?;
        let cookie = headers
            .get("set-cookie")
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.split(';').next()?.split_once('=').map(|(_, value)| value.to_owned()));
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        match (cookie, answer["proof"].as_str()) {
            (Some(cookie), Some(proof)) => Ok(Self { cookie, proof: proof.to_owned() }),
            _ => Err(io::Error::other(format!("signing in was answered with {status}")).into()),
        }
    }

    pub(super) async fn with_key(stage: &Stage, key: &str) -> CommandResult<Self> {
        Self::begin(stage, &json!({ "key": key })).await
    }

    /// As whoever a sandbox was shared with.
    pub(super) async fn with_share(stage: &Stage, sandbox: &str) -> CommandResult<Self> {
        Self::begin(stage, &json!({ "share": share_of(stage, sandbox).await? })).await
    }

    fn cookie(&self) -> (&'static str, String) {
        ("cookie", format!("warren_session={}", self.cookie))
    }

    /// Returns the headers that a browser sends with a request of our own page.
    pub(super) fn headers(&self) -> Headers {
        vec![self.cookie(), ("x-warren-dashboard", self.proof.clone())]
    }

    /// The same with a WebSocket.
    fn websocket(&self) -> Headers {
        let protocols = format!("warren.terminal.v1, warren.proof.{}", self.proof);
        vec![self.cookie(), ("sec-websocket-protocol", protocols)]
    }
}

async fn share_of(stage: &Stage, sandbox: &str) -> CommandResult<String> {
    let request = json!({ "sandbox": sandbox, "expires": 600 });
    let made: Value = stage.operator.post_json(Target::new(&["shares"]), &request).await?;
    let address = made["address"].as_str().unwrap_or_default();
    Ok(address.split_once("#share=").map(|(_, token)| token.to_owned()).unwrap_or_default())
}

/// An owner's session, by a one-time address.
async fn owner(stage: &Stage) -> CommandResult<Session> {
    Session::begin(stage, &json!({ "once": once(stage).await? })).await
}

async fn once(stage: &Stage) -> CommandResult<String> {
    let made: Value = stage.operator.post(Target::new(&["session", "once"])).await?;
    let address = made["address"].as_str().unwrap_or_default();
    Ok(address.split_once("#once=").map(|(_, token)| token.to_owned()).unwrap_or_default())
}

/// A server on another port of the same host name gets the cookie; whatever it adds to it, it is nobody.
pub(super) async fn stolen_cookie(stage: &Stage) -> CommandResult<Seen> {
    let (victim, own) = (owner(stage).await?, Session::with_key(stage, &stage.other_key).await?);
    let mut breaches = Vec::new();
    let keys = stage.ask_with(&victim.headers(), "GET", "/v1/keys", None).await?.0;
    if keys != 200 {
        return Ok(Seen::untried(format!("the session itself is answered with {keys}")));
    }
    let proofs = [None, Some("1".to_owned()), Some(victim.cookie.clone()), Some(own.proof.clone())];
    for proof in proofs {
        let mut headers = vec![victim.cookie()];
        headers.extend(proof.map(|proof| ("x-warren-dashboard", proof)));
        for target in ["/v1/keys", "/v1/session", "/v1/sandboxes", "/v1/live", "/v1/doctor"] {
            if let Ok((status @ 200..300, _)) = stage.ask_with(&headers, "GET", target, None).await {
                breaches.push(format!("GET {target} answered {status} to a cookie alone"));
            }
        }
    }
    // The thief's own proof with its own cookie beside the stolen one is the thief's session.
    let both = format!("warren_session={}; warren_session={}", victim.cookie, own.cookie);
    let headers = [("cookie", both), ("x-warren-dashboard", own.proof.clone())];
    if let Ok((status @ 200..300, _)) = stage.ask_with(&headers, "GET", "/v1/keys", None).await {
        breaches.push(format!("two cookies answered {status} with the rights of the first"));
    }
    Ok(Seen::unless(&breaches, "a cookie without its page's half is nobody"))
}

/// A page of another origin that somehow has both halves.
pub(super) async fn foreign_page(stage: &Stage) -> CommandResult<Seen> {
    let victim = owner(stage).await?;
    let exec = stage.operator.exec(&stage.sandbox, &sandbox::ExecSpec::shell("sleep 300")).await?;
    let terminal = format!("/v1/sandboxes/{}/execs/{}/terminal?namespace={OURS}", stage.sandbox, exec.id);
    let own = format!("http://{}", stage.caller.address);
    let mut breaches = Vec::new();
    let mut try_as = async |from: Vec<(&'static str, String)>| {
        let page = [victim.headers(), from.clone()].concat();
        let body = || Some(("application/json", b"{\"label\":\"attack\"}".to_vec()));
        let asked = stage.ask_with(&page, "POST", "/v1/keys", body()).await;
        if let Ok((status @ 200..300, _)) = asked {
            breaches.push(format!("POST /v1/keys answered {status} to {from:?}"));
        }
        let socket = [victim.websocket(), from.clone()].concat();
        if let Ok((status @ 101, _)) = stage.ask_with(&socket, "GET", &terminal, None).await {
            breaches.push(format!("a terminal answered {status} to {from:?}"));
        }
    };
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "http://8000-attacked.localhost"] {
        try_as(vec![("origin", origin.to_owned())]).await;
    }
    for site in ["cross-site", "same-site"] {
        try_as(vec![("sec-fetch-site", site.to_owned())]).await;
        try_as(vec![("origin", own.clone()), ("sec-fetch-site", site.to_owned())]).await;
    }
    // No page at all can open a WebSocket without telling its origin.
    if let Ok((101, _)) = stage.ask_with(&victim.websocket(), "GET", &terminal, None).await {
        breaches.push("a terminal was opened without an origin".to_owned());
    }
    // Our own page can: otherwise the refusals would prove nothing.
    let socket = [victim.websocket(), vec![("origin", own)]].concat();
    match stage.ask_with(&socket, "GET", &terminal, None).await {
        Ok((101, _)) => {}
        Ok((status, _)) => return Ok(Seen::untried(format!("our own page is answered with {status}"))),
        Err(error) => return Err(error),
    }
    Ok(Seen::unless(&breaches, "only a page of the daemon itself uses a session"))
}

/// A hostile server inside, by its own host name and below a path of ours.
pub(super) async fn ports(stage: &Stage) -> CommandResult<Seen> {
    let victim = owner(stage).await?;
    let server = sandbox::ExecSpec::argv(["python3", "-c", MIRROR]);
    stage.operator.exec(&stage.neighbour, &server).await?;
    let expose = json!({ "port": PORT, "public": true });
    let ports = Target::new(&["sandboxes", &stage.neighbour, "ports"]);
    stage.operator.post_json::<Value>(ports, &expose).await?;
    let host = format!("{PORT}-{}.localhost:{}", stage.neighbour, stage.caller.address.port());
    let mut breaches = Vec::new();
    let mut seen = false;
    for _ in 0..50 {
        let headers = [vec![("host", host.clone())], victim.headers()].concat();
        let (status, answer) = stage.ask_with(&headers, "GET", "/", None).await?;
        seen = status == 200;
        if seen {
            for (half, name) in [(&victim.cookie, "cookie"), (&victim.proof, "proof")] {
                if contains(&answer, half.as_bytes()) {
                    breaches.push(format!("the server inside was sent the {name}"));
                }
            }
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let path = format!("/v1/sandboxes/{}/ports/{PORT}/?namespace={THEIRS}", stage.neighbour);
    for target in [path.clone(), path.replace("8000/", "8000.0/")] {
        if let Ok((status @ 200..300, _)) = stage.ask_with(&victim.headers(), "GET", &target, None).await {
            breaches.push(format!("a session reached a server in our own origin ({status})"));
        }
    }
    if !seen && breaches.is_empty() {
        return Ok(Seen::untried("no server could be started inside"));
    }
    Ok(Seen::unless(&breaches, "servers inside get nothing of a session, and answer none in our origin"))
}

pub(super) async fn used_token(stage: &Stage) -> CommandResult<Seen> {
    let mut breaches = Vec::new();
    let token = once(stage).await?;
    Session::begin(stage, &json!({ "once": token })).await?;
    if Session::begin(stage, &json!({ "once": token })).await.is_ok() {
        breaches.push("a one-time token was good twice".to_owned());
    }
    let share = share_of(stage, &stage.sandbox).await?;
    let watcher = Session::with_share(stage, &stage.sandbox).await?;
    for forged in [share.to_uppercase(), format!("{share}A"), share.chars().rev().collect(), String::new()] {
        if Session::begin(stage, &json!({ "share": forged })).await.is_ok() {
            breaches.push("a forged share was good".to_owned());
        }
    }
    for (sort, token) in [("once", &share), ("key", &share), ("share", &watcher.cookie)] {
        if Session::begin(stage, &json!({ sort: token })).await.is_ok() {
            breaches.push(format!("a token of another sort was good as {sort}"));
        }
    }
    let body = || Some(("application/json", json!({ "sandbox": stage.sandbox }).to_string().into_bytes()));
    for target in ["/v1/shares", "/v1/session/once"] {
        if let Ok((status @ 200..300, _)) = stage.ask_with(&watcher.headers(), "POST", target, body()).await {
            breaches.push(format!("a watcher's POST {target} answered {status}"));
        }
    }
    Ok(Seen::unless(&breaches, "one-time tokens are used up, and shares cannot be forged or passed on"))
}
