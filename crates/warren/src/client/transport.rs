//! Connections to the daemon.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::SERVER,
};
use hyper_util::rt::TokioIo;
use sandbox::{Error, ErrorKind, Namespace, Result};
use tokio::net::UnixStream;

use super::{Body, early::Early, start::ClientOptions};
use crate::output;

/// Connections kept for the next request.
const MAX_KEPT: usize = 4;

/// The daemon at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DaemonIdentity {
    pub(crate) pid: Option<i32>,
    pub(crate) uid: u32,
}

/// A client of one daemon. Clones share their connections.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: ClientOptions,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    senders: Vec<SendRequest<Body>>,
    daemon: Option<DaemonIdentity>,
    is_version_checked: bool,
}

impl Client {
    /// Connects to the daemon; starts one if none answers and the options allow it.
    pub(crate) async fn connect(options: ClientOptions) -> Result<Self> {
        let client = Self { shared: Arc::new(Shared { options, kept: Mutex::default() }) };
        let sender = client.open().await?;
        client.keep(sender);
        Ok(client)
    }

    pub(crate) fn namespace(&self) -> Option<&Namespace> {
        self.shared.options.namespace.as_ref()
    }

    pub(crate) fn daemon(&self) -> Option<DaemonIdentity> {
        self.kept().daemon
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, sender: SendRequest<Body>) {
        let mut kept = self.kept();
        kept.senders.retain(|sender| !sender.is_closed());
        if kept.senders.len() < MAX_KEPT {
            kept.senders.push(sender);
        }
    }

    /// A kept connection whose last answer was read to its end, if there is one.
    fn free(&self) -> Option<SendRequest<Body>> {
        let mut kept = self.kept();
        let position = kept.senders.iter().position(|sender| sender.is_ready() && !sender.is_closed())?;
        Some(kept.senders.swap_remove(position))
    }

    async fn open(&self) -> Result<SendRequest<Body>> {
        let (stream, socket) = super::start::reach(&self.shared.options).await?;
        let daemon = identify(&stream, &socket)?;
        self.kept().daemon = Some(daemon);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(Early::new(stream))).await.map_err(broken)?;
        tokio::spawn(async move {
            // Its requests report what went wrong.
            connection.with_upgrades().await.ok();
        });
        // The connection's task must run once before it counts as free.
        sender.ready().await.map_err(broken)?;
        Ok(sender)
    }

    /// Sends a request and returns the head of the answer, from which the body is read. If a kept connection turns out
    /// to be dead before the request was sent, it is replaced once.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>> {
        let mut request = request;
        // A connection whose answer was just read to its end becomes free once its task notices.
        tokio::task::yield_now().await;
        if let Some(mut sender) = self.free() {
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(self.received(sender, response)),
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(broken(failed.into_error())),
                },
            }
        }
        let mut sender = self.open().await?;
        let response = sender.send_request(request).await.map_err(broken)?;
        Ok(self.received(sender, response))
    }

    fn received(&self, sender: SendRequest<Body>, response: Response<Incoming>) -> Response<Incoming> {
        self.keep(sender);
        self.check_version(&response);
        response
    }

    fn check_version(&self, response: &Response<Incoming>) {
        let daemon = {
            let mut kept = self.kept();
            if std::mem::replace(&mut kept.is_version_checked, true) {
                return;
            }
            kept.daemon
        };
        let theirs =
            response.headers().get(SERVER).and_then(|value| value.to_str().ok()).unwrap_or("unknown");
        if theirs != frontends::http::SERVER_NAME {
            let ours = frontends::http::SERVER_NAME;
            let pid = daemon.and_then(|daemon| daemon.pid).map_or("<pid>".to_owned(), |pid| pid.to_string());
            output::warn(&format!(
                "the daemon has version {theirs}, this command {ours}; `kill {pid}` lets the next command start a new one"
            ));
        }
    }
}

/// The process that listens on the socket. A socket in a shared directory could be anyone's.
fn identify(stream: &UnixStream, socket: &Path) -> Result<DaemonIdentity> {
    let peer = stream.peer_cred().map_err(|error| unreachable(socket, error))?;
    let own = rustix::process::geteuid().as_raw();
    if own != 0 && peer.uid() != own && peer.uid() != 0 {
        let message = format!("the daemon at {} belongs to user id {}", socket.display(), peer.uid());
        return Err(Error::new(ErrorKind::Denied, message)
            .with_hint("Choose another run directory with --run-dir or WARREN_RUN."));
    }
    Ok(DaemonIdentity { pid: peer.pid(), uid: peer.uid() })
}

pub(super) fn unreachable(socket: &Path, error: io::Error) -> Error {
    let message = format!("could not reach the daemon at {}: {error}", socket.display());
    Error::new(ErrorKind::Unavailable, message).with_hint("`warren doctor` shows what is wrong.")
}

pub(super) fn broken(error: hyper::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "lost the connection to the daemon")
        .with_source(error)
        .with_hint("If the daemon was stopped, the next command starts it again.")
}
