//! A bare MCP client over HTTP: one connection, one request at a time.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, StatusCode,
    client::conn::http1::{self, SendRequest},
    header::{ACCEPT, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{initialize, unexpected};

const SESSION_HEADER: &str = "mcp-session-id";
const VERSION_HEADER: &str = "mcp-protocol-version";

/// The MCP version to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// 2025-11-25: a handshake, then a session.
    Session,
    /// 2026-07-28: every request stands alone.
    Stateless,
}

impl Dialect {
    fn version(self) -> &'static str {
        match self {
            Self::Session => "2025-11-25",
            Self::Stateless => "2026-07-28",
        }
    }
}

pub(super) struct Caller {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
    dialect: Dialect,
    path: String,
    session: Option<String>,
    n_asked: u64,
    /// How long the last answer took, until its last byte. To read it as JSON is the client's own affair.
    pub(super) took: Duration,
}

impl Caller {
    pub(super) async fn connect(address: SocketAddr, dialect: Dialect) -> Result<Self> {
        Self::connect_to(address, "/mcp", dialect).await
    }

    /// To a surface at a path of its own.
    pub(super) async fn connect_to(address: SocketAddr, path: &str, dialect: Dialect) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let path = path.to_owned();
        let mut caller =
            Self { sender, address, dialect, path, session: None, n_asked: 0, took: Duration::ZERO };
        if dialect == Dialect::Session {
            let (session, answer) = caller.post(&initialize(0)).await?;
            caller.session = session;
            if caller.session.is_none() {
                return Err(unexpected(&answer));
            }
            caller.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        }
        Ok(caller)
    }

    pub(super) async fn ask(&mut self, method: &str, mut params: Value) -> Result<Value> {
        self.n_asked += 1;
        if self.dialect == Dialect::Stateless {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.dialect.version(),
                "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": env!("CARGO_PKG_VERSION") },
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message = json!({ "jsonrpc": "2.0", "id": self.n_asked, "method": method, "params": params });
        Ok(self.post(&message).await?.1)
    }

    /// Ends the session.
    pub(super) async fn end(&mut self) -> Result<()> {
        let request = self.request(Method::DELETE).body(Full::default())?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        answer.into_body().collect().await?;
        Ok(())
    }

    fn request(&self, method: Method) -> hyper::http::request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(&self.path)
            .header(HOST, self.address.to_string())
            .header(VERSION_HEADER, self.dialect.version());
        match &self.session {
            Some(session) => request.header(SESSION_HEADER, session),
            None => request,
        }
    }

    /// The session that an answer names, and its message.
    async fn post(&mut self, message: &Value) -> Result<(Option<String>, Value)> {
        let mut request = self
            .request(Method::POST)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        if self.dialect == Dialect::Stateless {
            request = request.header("mcp-method", message["method"].as_str().unwrap_or_default());
            if let Some(name) = message.pointer("/params/name").and_then(Value::as_str) {
                request = request.header("mcp-name", name);
            }
        }
        let body = Full::new(Bytes::from(message.to_string()));
        let request = request.body(body)?;
        self.sender.ready().await?;
        let start = Instant::now();
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let session = answer.headers().get(SESSION_HEADER).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let bytes = answer.into_body().collect().await?.to_bytes();
        self.took = start.elapsed();
        if status == StatusCode::ACCEPTED {
            return Ok((session, Value::Null));
        }
        let text = String::from_utf8_lossy(&bytes);
        match answer_in(&text, message.get("id")) {
            Some(answer) => Ok((session, answer)),
            None => Err(unexpected(&json!({ "status": status.as_u16(), "body": text }))),
        }
    }
}

/// The answer to request `id`: the whole text, or one event of a stream.
fn answer_in(text: &str, id: Option<&Value>) -> Option<Value> {
    let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
    std::iter::once(text)
        .chain(events)
        .filter_map(|text| serde_json::from_str::<Value>(text.trim()).ok())
        .find(|answer| answer.get("id") == id)
}
