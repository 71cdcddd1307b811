//! A client that runs commands as OpenSandbox's SDK does: one POST, and events until the end.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request,
    client::conn::http1::{self, SendRequest},
    header::{ACCEPT, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

pub(super) struct Client {
    address: SocketAddr,
    path: String,
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr, sandbox: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let path = format!("/opensandbox/v1/sandboxes/{sandbox}/proxy/44772/command");
        Ok(Self { address, path, sender })
    }

    /// Runs a line that must succeed.
    pub(super) async fn run(&mut self, line: &str) -> Result<()> {
        let request = Request::post(&self.path)
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream")
            .body(Full::new(Bytes::from(json!({ "command": line }).to_string())))?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let (status, body) = (answer.status(), answer.into_body().collect().await?.to_bytes());
        let text = String::from_utf8_lossy(&body);
        if !text.contains("\"execution_complete\"") {
            bail!("{line:?} was answered with {status}: {text:.400}");
        }
        Ok(())
    }
}
