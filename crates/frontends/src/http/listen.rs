//! Connections: accepted, bounded in number, and at the end given a last while to finish.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, http::Request};
use futures_util::FutureExt;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Notify, Semaphore},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::auth::Peer;

/// Connections open at once; the next ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 1024;
/// Pause after an accept that failed for want of descriptors: they come back when something closes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What a connection that has just come gets to send its first request when the daemon stops.
const FIRST_REQUEST_TIME: Duration = Duration::from_millis(500);
/// A reader of one response holds at most about this much in the daemon.
const MAX_CONNECTION_BUFFER_BYTES: usize = 256 * 1024;

/// How much is going on: connections and upgraded streams that are open.
#[derive(Debug, Clone, Default)]
pub struct Activity {
    n_open: Arc<AtomicUsize>,
}

impl Activity {
    pub fn n_open(&self) -> usize {
        self.n_open.load(Ordering::Acquire)
    }

    /// Counts until the guard is dropped.
    pub(crate) fn enter(&self) -> ActivityGuard {
        self.n_open.fetch_add(1, Ordering::AcqRel);
        ActivityGuard(Arc::clone(&self.n_open))
    }
}

#[derive(Debug)]
pub(crate) struct ActivityGuard(Arc<AtomicUsize>);

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves `app` on a Unix socket until `stop`. Then calls `hide`, which takes the socket's path away so that nobody new
/// connects; accepts what had connected by then, lets requests in flight finish for at most `grace`, and cuts the rest.
pub async fn serve_unix(
    listener: UnixListener,
    app: Router,
    activity: Activity,
    stop: CancellationToken,
    grace: Duration,
    hide: impl FnOnce() + Send,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept(&listener, &places) => accepted,
        };
        if let Some((stream, place)) = accepted {
            let guard = activity.enter();
            let (app, stop) = (app.clone(), stop.clone());
            connections.spawn(async move {
                serve_connection(stream, app, stop).await;
                drop((guard, place));
            });
        }
    }
    hide();
    // Whoever connected before the socket went away gets an answer.
    while let Some(Ok((stream, _))) = listener.accept().now_or_never() {
        connections.spawn(serve_connection(stream, app.clone(), stop.clone()));
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if timeout(grace, all_ended).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "connections were cut at the end of the grace period"
        );
    }
}

async fn accept(
    listener: &UnixListener,
    places: &Arc<Semaphore>,
) -> Option<(UnixStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!("could not accept a connection: {error}");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

fn peer_of(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = stream.peer_cred()?;
    Ok(Peer::Unix { uid: credentials.uid(), pid: credentials.pid() })
}

async fn serve_connection(stream: UnixStream, app: Router, stop: CancellationToken) {
    let peer = match peer_of(&stream) {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!("could not tell who connected: {error}");
            return;
        }
    };
    let begun = Arc::new(Notify::new());
    let has_begun = Arc::clone(&begun);
    let service = app.map_request(move |mut request: Request<Incoming>| {
        has_begun.notify_one();
        request.extensions_mut().insert(peer);
        request.map(Body::new)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .max_buf_size(MAX_CONNECTION_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            // Who has just come has not been read yet, and would be closed as idle: wait for the first request.
            tokio::select! {
                ended = connection.as_mut() => return log_end(ended),
                () = begun.notified() => {}
                () = tokio::time::sleep(FIRST_REQUEST_TIME) => {}
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    log_end(ended);
}

fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}
