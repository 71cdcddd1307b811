//! One connection: HTTP/1.1 on any stream.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::Request,
};
use hyper::{body::Incoming, server::conn::http1, upgrade::Upgraded};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::linger::{Linger, Unread};
use crate::http::auth::Peer;

/// How long a new connection has to send its first request when the daemon stops.
const FIRST_REQUEST_TIME: Duration = Duration::from_millis(500);
/// A reader of one response holds at most about this much in the daemon.
const MAX_CONNECTION_BUFFER_BYTES: usize = 256 * 1024;

/// The address that the connection came to, on TCP. A `Host` header may name it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalAddress(pub(crate) SocketAddr);

/// The two ends of a connection, as the kernel reports them. Every request on it carries this.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) peer: Peer,
    pub(super) local: Option<LocalAddress>,
}

/// Answers requests until the other end leaves, or `stop`. `head_time` is what a whole request head may take, and how
/// long a connection may idle: who sends a byte now and then holds no place for long.
pub(super) async fn converse<S>(
    stream: S,
    ends: Ends,
    head_time: Duration,
    app: Router,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = Arc::new(Notify::new());
    let has_begun = Arc::clone(&begun);
    let unread = Unread::default();
    let (watching, announcing) = (unread.clone(), unread.clone());
    let service = app.map_request(move |mut request: Request<Incoming>| {
        has_begun.notify_one();
        request.extensions_mut().insert(ends.peer);
        if let Some(local) = ends.local {
            request.extensions_mut().insert(local);
        }
        request.map(|body| Body::new(watching.watch(body)))
    });
    let service =
        ServiceExt::<Request<Incoming>>::map_response(service, move |response| announcing.announce(response));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_time)
        .max_buf_size(MAX_CONNECTION_BUFFER_BYTES)
        .serve_connection(
            TokioIo::new(Linger::new(stream, unread.clone())),
            TowerToHyperService::new(service),
        )
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
            unread.forget();
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    log_end(ended);
}

/// The stream itself of a connection that was upgraded, with what was read of it already; none where it is of another
/// kind.
pub(crate) fn stream_of<S>(upgraded: Upgraded) -> Option<(S, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let parts = upgraded.downcast::<TokioIo<Linger<S>>>().ok()?;
    Some((parts.io.into_inner().into_inner(), parts.read_buf))
}

fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}
