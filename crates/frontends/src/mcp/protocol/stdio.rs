//! For `warren mcp`: a connection to the Unix socket becomes a pipe of messages, one on each line, as on stdio.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CONNECTION, UPGRADE},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::upgrade::{OnUpgrade, Upgraded};
use rmcp::{ServiceExt as _, transport::async_rw::AsyncRwTransport};
use rustix::event::{PollFd, PollFlags, Timespec};
use sandbox::{Error, ErrorKind, Namespace, Result};
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncReadExt as _, net::UnixStream};
use tokio_util::sync::CancellationToken;

use super::{
    MAX_MESSAGE_BYTES, Profile,
    client::{Client, Way},
    patient::Patient,
};
use crate::{
    http::{Activity, ActivityGuard, ApiResult, Peer, stream_of},
    mcp::Settings,
};

const PATH: &str = "/mcp/stdio";

/// Returns the path of a surface for `warren mcp`; without a dialect, of what the daemon serves plainly.
pub fn stdio_path(dialect: Option<&str>) -> String {
    dialect.map_or_else(|| PATH.to_owned(), |name| format!("{PATH}/{name}"))
}

/// The time between two looks whether a client that says no more still listens.
const HANGUP_LOOK: Duration = Duration::from_millis(200);
/// The value that `Upgrade` must have.
pub const UPGRADE_PROTOCOL: &str = "warren-mcp";
/// Carries a [`Greeting`], as JSON in base64.
pub const SETTINGS_HEADER: &str = "x-warren-mcp";

/// The settings and the namespace that a client on stdio brings along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Greeting {
    pub settings: Settings,
    pub namespace: Option<Namespace>,
}

impl Greeting {
    /// The header's value.
    pub fn encode(&self) -> String {
        // A structure of texts and numbers is always JSON.
        STANDARD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn of(headers: &HeaderMap) -> Result<Option<Self>> {
        let Some(value) = headers.get(SETTINGS_HEADER) else { return Ok(None) };
        let bytes = STANDARD.decode(value.as_bytes());
        let bytes =
            bytes.map_err(|error| Error::invalid(format!("{SETTINGS_HEADER} is not base64: {error}")))?;
        let greeting = serde_json::from_slice(&bytes);
        greeting.map(Some).map_err(|error| Error::invalid(format!("invalid {SETTINGS_HEADER}: {error}")))
    }
}

#[derive(Debug, Clone)]
struct Front<P> {
    profile: P,
    stop: CancellationToken,
    activity: Activity,
}

pub(super) fn routes<P: Profile>(
    profile: P,
    at: &str,
    stop: CancellationToken,
    activity: Activity,
) -> Router {
    let front = Front { profile, stop, activity };
    Router::new().route(&format!("{PATH}{at}"), get(connect::<P>)).with_state(front)
}

async fn connect<P: Profile>(State(front): State<Front<P>>, request: Request) -> ApiResult<Response> {
    let (parts, body) = request.into_parts();
    // Its settings open the host's files: only for those who have them anyway.
    if !matches!(parts.extensions.get::<Peer>(), Some(Peer::Unix { .. })) {
        return Err(Error::new(ErrorKind::Denied, "this route is for the Unix socket only")
            .with_hint("Use Streamable HTTP at /mcp.")
            .into());
    }
    let asked = parts.headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    if !asked.is_some_and(|value| value.eq_ignore_ascii_case(UPGRADE_PROTOCOL)) {
        return Err(Error::invalid("this route needs a connection upgrade, which was not requested")
            .with_hint(format!("Send the headers Connection: Upgrade and Upgrade: {UPGRADE_PROTOCOL}."))
            .into());
    }
    let mut client = Client::of(&parts, front.profile.settings(), Way::Connection)?;
    if let Some(greeting) = Greeting::of(&parts.headers)? {
        client.settings = Arc::new(greeting.settings);
        client.namespace = greeting.namespace;
    }
    client.ended = front.stop.child_token();
    let (ended, gone) = (client.ended.clone(), client.gone.clone());
    let handler = front.profile.handler(client);
    let outside = hyper::upgrade::on(Request::from_parts(parts, body));
    tokio::spawn(serve(outside, handler, ended, gone, front.activity.enter()));
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(UPGRADE_PROTOCOL));
    Ok(response)
}

async fn serve(
    outside: OnUpgrade,
    handler: impl rmcp::ServerHandler,
    ended: CancellationToken,
    gone: CancellationToken,
    guard: ActivityGuard,
) {
    let (stream, begun, hangup) = match outside.await.map_err(io::Error::other).and_then(taken_over) {
        Ok(parts) => parts,
        Err(error) => {
            tracing::debug!("an MCP pipe was not taken up: {error}");
            return;
        }
    };
    let (read, write) = stream.into_split();
    // Bytes that came right behind the request have been read with it.
    let read = io::Cursor::new(begun).chain(read);
    let lines = AsyncRwTransport::new_server(read, write).with_max_line_length(MAX_MESSAGE_BYTES);
    let patient = Patient::new(lines, gone, async move { hangup.noticed().await }.boxed());
    // The library cancels what it is given when it ends.
    match handler.serve_with_ct(patient, ended).await {
        Ok(service) => drop(service.waiting().await),
        Err(error) => tracing::debug!("an MCP client on stdio did not begin: {error}"),
    }
    drop(guard);
}

/// The socket itself, which can tell a client that has said everything from one that is gone.
fn taken_over(upgraded: Upgraded) -> io::Result<(UnixStream, Bytes, Hangup)> {
    let (stream, read) = stream_of::<UnixStream>(upgraded).ok_or(io::ErrorKind::Unsupported)?;
    let hangup = Hangup(stream.as_fd().try_clone_to_owned()?);
    Ok((stream, read, hangup))
}

/// Notices when both directions of a socket are closed.
#[derive(Debug)]
struct Hangup(OwnedFd);

impl Hangup {
    async fn noticed(&self) {
        loop {
            let mut poll = [PollFd::new(&self.0, PollFlags::empty())];
            let looked = rustix::event::poll(&mut poll, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            if looked.is_ok() && poll[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                return;
            }
            tokio::time::sleep(HANGUP_LOOK).await;
        }
    }
}
