//! The connection to the daemon: one upgraded request, then lines both ways.

use std::io;

use frontends::mcp::{Dialect, Greeting, SETTINGS_HEADER, UPGRADE_PROTOCOL, stdio_path};
use hyper::{
    Request, StatusCode,
    header::{AUTHORIZATION, CONNECTION, HOST, UPGRADE},
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use sandbox::{Error, ErrorKind, Result};
use tokio::{
    io::{AsyncWriteExt, BufReader, WriteHalf},
    sync::mpsc,
};

use super::{
    line::{self, Line},
    opensandbox::Secret,
};
use crate::{
    client::{Client, ClientOptions, empty_body},
    error::CommandError,
};

/// Longest answer that is passed on. Results of tools are limited to far less.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// How to reach the daemon.
#[derive(Debug)]
pub(crate) struct Link {
    options: ClientOptions,
    greeting: String,
    path: String,
    /// With whose rights; the daemon's owner's when absent.
    key: Option<Secret>,
}

impl Link {
    /// `dialect`: the surface that the client speaks, if it is not the daemon's own choice.
    pub(crate) fn new(options: ClientOptions, greeting: &Greeting, dialect: Option<Dialect>) -> Self {
        let path = stdio_path(dialect.map(|dialect| dialect.name));
        Self { options, greeting: greeting.encode(), path, key: None }
    }

    /// Acts with the rights of a key.
    #[must_use]
    pub(crate) fn with_key(mut self, key: Option<Secret>) -> Self {
        self.key = key;
        self
    }

    /// Starts a daemon if none is running.
    pub(super) async fn connect(&self) -> Result<Connection> {
        let client = Client::connect(self.options.clone()).await?;
        let mut request = Request::get(&self.path);
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.bearer());
        }
        let request = request
            .header(HOST, "warren")
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, UPGRADE_PROTOCOL)
            .header(SETTINGS_HEADER, &self.greeting)
            .body(empty_body())
            .map_err(|error| Error::new(ErrorKind::Internal, "no request").with_source(error))?;
        let response = client.send(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refusal(response).await);
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "lost the connection to the daemon").with_source(error)
        })?;
        let (read, write) = tokio::io::split(TokioIo::new(upgraded));
        let lines = line::queue(BufReader::new(read), MAX_ANSWER_BYTES);
        Ok(Connection { lines, write, was_reset: false })
    }
}

async fn refusal(response: hyper::Response<hyper::body::Incoming>) -> Error {
    let status = response.status();
    if status == StatusCode::NOT_FOUND {
        return Error::new(ErrorKind::Unsupported, "this version of the daemon does not support MCP")
            .with_hint(
                "Stop it, and the next command starts a new one; `warren version` shows its process id.",
            );
    }
    match crate::client::checked(response).await {
        Err(CommandError::Failed { error, .. }) => error,
        _ => Error::new(ErrorKind::Internal, format!("the daemon answered {status}")),
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    lines: mpsc::Receiver<Line>,
    write: WriteHalf<TokioIo<Upgraded>>,
    was_reset: bool,
}

impl Connection {
    pub(super) async fn send(&mut self, line: &[u8]) -> io::Result<()> {
        self.write.write_all(line).await?;
        self.write.flush().await
    }

    /// Closes our side; answers can still come.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        self.write.shutdown().await
    }

    /// The daemon's next line, or none if it is gone.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        match self.lines.recv().await {
            Some(Line::Whole(line)) => Some(line),
            Some(Line::Reset) => {
                self.was_reset = true;
                None
            }
            Some(Line::TooLong) | None => None,
        }
    }

    /// Whether the daemon stopped before it had read everything. The unread part is the end of what was sent, so it has
    /// not seen the whole last line.
    pub(super) fn is_last_unread(&self) -> bool {
        self.was_reset
    }
}
