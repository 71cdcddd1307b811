//! Connections: accepted, bounded in number, and at the end given a last while to finish.

mod connection;
mod linger;
mod peers;
mod tcp;
mod tls;
mod unix;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::Router;
use futures_util::FutureExt;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

pub(super) use self::connection::LocalAddress;
pub(crate) use self::connection::stream_of;
pub use self::{
    tcp::{TcpPlaces, serve_tcp},
    tls::Tls,
    unix::serve_unix,
};

/// Pause after an accept that failed for want of descriptors: they come back when something closes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    pub fn enter(&self) -> ActivityGuard {
        self.n_open.fetch_add(1, Ordering::AcqRel);
        ActivityGuard(Arc::clone(&self.n_open))
    }
}

/// Counts as something that is going on, until it is dropped.
#[derive(Debug)]
pub struct ActivityGuard(Arc<AtomicUsize>);

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A kind of socket that connections come from.
trait Door {
    type Stream: Send + 'static;

    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Everything that one connection asks, in a task of its own.
    fn converse(
        &self,
        stream: Self::Stream,
        app: Router,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static;
}

/// The settings of a listener besides its socket.
struct Terms {
    app: Router,
    activity: Activity,
    stop: CancellationToken,
    grace: Duration,
    /// One for each open connection; the next ones wait in the kernel's queue. Listeners may share them.
    places: Arc<Semaphore>,
}

/// Serves until `stop`. Then calls `hide`, accepts what had connected by then, lets requests in flight finish for at
/// most the grace, and cuts the rest.
async fn serve(door: impl Door, terms: Terms, hide: impl FnOnce() + Send) {
    let Terms { app, activity, stop, grace, places } = terms;
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept(&door, &places) => accepted,
        };
        if let Some((stream, place)) = accepted {
            let guard = activity.enter();
            let conversation = door.converse(stream, app.clone(), stop.clone());
            connections.spawn(async move {
                conversation.await;
                drop((guard, place));
            });
        }
    }
    hide();
    // Whoever connected before the socket went away gets an answer.
    while let Some(Ok(stream)) = door.accept().now_or_never() {
        connections.spawn(door.converse(stream, app.clone(), stop.clone()));
    }
    drop(door);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if timeout(grace, all_ended).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "connections were cut at the end of the grace period"
        );
    }
}

async fn accept<D: Door>(door: &D, places: &Arc<Semaphore>) -> Option<(D::Stream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match door.accept().await {
        Ok(stream) => Some((stream, place)),
        Err(error) => {
            tracing::warn!("could not accept a connection: {error}");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
