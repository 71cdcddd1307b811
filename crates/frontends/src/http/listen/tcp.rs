//! TCP, plain or with TLS.

use std::{io, net::SocketAddr, time::Duration};

use axum::Router;
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    Activity, Door, Terms, Tls,
    connection::{self, Ends, LocalAddress},
    serve,
};
use crate::http::auth::Peer;

/// More than all streams together, so that streams leave room for requests.
const MAX_CONNECTIONS: usize = 2048;
/// Shorter than on the Unix socket: here anyone can take a place.
const HEAD_TIME: Duration = Duration::from_secs(15);
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Serves `app` on TCP until `stop`; then lets requests in flight finish for at most `grace`, and cuts the rest.
pub async fn serve_tcp(
    listener: TcpListener,
    app: Router,
    tls: Option<Tls>,
    activity: Activity,
    stop: CancellationToken,
    grace: Duration,
) {
    let terms = Terms { app, activity, stop, grace, max_connections: MAX_CONNECTIONS };
    serve(Tcp { listener, tls }, terms, || {}).await;
}

struct Tcp {
    listener: TcpListener,
    tls: Option<Tls>,
}

impl Door for Tcp {
    type Stream = (TcpStream, SocketAddr);

    async fn accept(&self) -> io::Result<Self::Stream> {
        self.listener.accept().await
    }

    fn converse(
        &self,
        (stream, peer): Self::Stream,
        app: Router,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let tls = self.tls.clone();
        async move {
            // Answers are small and streams are live: nothing may wait for more to send. It fails for a closed one only.
            stream.set_nodelay(true).ok();
            let ends = Ends { peer: Peer::Tcp(peer), local: stream.local_addr().ok().map(LocalAddress) };
            let Some(tls) = tls else {
                return connection::converse(stream, ends, HEAD_TIME, app, stop).await;
            };
            match timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
                Ok(Ok(stream)) => connection::converse(stream, ends, HEAD_TIME, app, stop).await,
                Ok(Err(error)) => tracing::debug!(%peer, "a TLS handshake failed: {error}"),
                Err(_elapsed) => tracing::debug!(%peer, "a TLS handshake took too long"),
            }
        }
    }
}
