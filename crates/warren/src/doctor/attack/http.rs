//! Requests by other clients: HTTP over TCP with a key, one connection each.

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    HeaderMap, Request,
    client::conn::http1,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, UPGRADE},
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};

use crate::error::CommandResult;

/// Longest answer that is kept.
const MAX_ANSWER: usize = 8 << 20;
/// How long to read a body that never ends, such as events.
const BODY_TIME: Duration = Duration::from_millis(700);
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// The path of our own tools, all of them.
pub(super) const NATIVE: &str = "/mcp?toolsets=all";
const MCP_VERSION: &str = "2026-07-28";

#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) address: SocketAddr,
}

impl Caller {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// The status, and the part of the body that arrived in time.
    pub(super) async fn ask(
        &self,
        key: Option<&str>,
        method: &str,
        target: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> CommandResult<(u16, Vec<u8>)> {
        let key = key.map(|key| (AUTHORIZATION.as_str(), format!("Bearer {key}")));
        self.ask_with(key.as_slice(), method, target, body).await
    }

    /// The same with any headers, such as those of a browser. Without a host among them, it is the daemon's own.
    pub(super) async fn ask_with(
        &self,
        headers: &[(&str, String)],
        method: &str,
        target: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> CommandResult<(u16, Vec<u8>)> {
        let mut request = Request::builder().method(method).uri(target);
        if !headers.iter().any(|(name, _)| *name == HOST.as_str()) {
            request = request.header(HOST, self.address.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        // A route that becomes a byte stream checks nothing else unless it is asked to upgrade.
        let path = target.split('?').next().unwrap_or(target);
        if path.ends_with("/connect") {
            request = request.header(CONNECTION, "upgrade").header(UPGRADE, "warren-stream");
        }
        if path.ends_with("/terminal") {
            request = request.header(CONNECTION, "upgrade").header(UPGRADE, "websocket");
            request = request.header("sec-websocket-version", "13");
            request = request.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        }
        let (kind, bytes) = body.unwrap_or_default();
        if !kind.is_empty() {
            request = request.header(CONTENT_TYPE, kind);
        }
        self.send(request.body(Full::new(Bytes::from(bytes))).map_err(io::Error::other)?).await
    }

    /// A request as anybody could send it, and the headers of its answer.
    pub(super) async fn exchange(
        &self,
        method: &str,
        target: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> CommandResult<(u16, Vec<u8>, HeaderMap)> {
        let (kind, bytes) = body.unwrap_or_default();
        let request = Request::builder().method(method).uri(target).header(HOST, self.address.to_string());
        let request = request.header(CONTENT_TYPE, kind).body(Full::new(Bytes::from(bytes)));
        self.send_for_all(request.map_err(io::Error::other)?).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> CommandResult<(u16, Vec<u8>)> {
        self.send_for_all(request).await.map(|(status, bytes, _)| (status, bytes))
    }

    async fn send_for_all(&self, request: Request<Full<Bytes>>) -> CommandResult<(u16, Vec<u8>, HeaderMap)> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let connection = tokio::spawn(connection);
        let answer = timeout(ANSWER_TIME, sender.send_request(request)).await;
        let answer = answer.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut));
        let answer = match answer {
            Ok(answer) => answer.map_err(io::Error::other)?,
            Err(error) => {
                connection.abort();
                return Err(error.into());
            }
        };
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let mut bytes = Vec::new();
        let mut body = Limited::new(answer.into_body(), MAX_ANSWER);
        while let Ok(Some(Ok(frame))) = timeout(BODY_TIME, body.frame()).await {
            if let Ok(data) = frame.into_data() {
                bytes.extend_from_slice(&data);
            }
        }
        connection.abort();
        Ok((status, bytes, headers))
    }

    /// One stand-alone MCP request to the surface at `path`. The answer has both forms of text that servers send.
    pub(super) async fn mcp(
        &self,
        key: &str,
        path: &str,
        method: &str,
        mut params: Value,
    ) -> CommandResult<(Value, Vec<u8>)> {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MCP_VERSION,
            "io.modelcontextprotocol/clientInfo": { "name": "warren doctor", "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = Request::post(path)
            .header(HOST, self.address.to_string())
            .header(AUTHORIZATION, format!("Bearer {key}"))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", MCP_VERSION)
            .header("mcp-method", method);
        if let Some(name) = message.pointer("/params/name").and_then(Value::as_str) {
            request = request.header("mcp-name", name);
        }
        let body = Full::new(Bytes::from(message.to_string()));
        let (_, bytes) = self.send(request.body(body).map_err(io::Error::other)?).await?;
        let text = String::from_utf8_lossy(&bytes);
        let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let answers = std::iter::once(text.as_ref()).chain(events);
        let mut answer = answers.filter_map(|text| serde_json::from_str::<Value>(text.trim()).ok());
        let answer = answer.rfind(|answer| answer.get("id").is_some()).unwrap_or_default();
        Ok((answer, bytes))
    }
}
