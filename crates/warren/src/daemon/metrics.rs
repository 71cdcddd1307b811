//! A listener on which Prometheus reads metrics, and nothing else is served.

use std::net::SocketAddr;

use engine::Engine;
use frontends::{
    http::{Activity, TcpPlaces, serve_tcp},
    metrics,
};
use sandbox::{Error, ErrorKind, Result};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::STOP_GRACE;

pub(super) struct MetricsListener {
    socket: TcpListener,
    address: SocketAddr,
}

impl MetricsListener {
    /// A port that is taken ends the start.
    pub(super) async fn open(address: Option<SocketAddr>) -> Result<Option<Self>> {
        let Some(address) = address else { return Ok(None) };
        let failed = |error| {
            Error::new(ErrorKind::Unavailable, format!("could not serve metrics on {address}: {error}"))
                .with_hint("Choose another address as metrics.listen in the configuration, or remove it.")
        };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Some(Self { socket, address }))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the daemon stops. A scrape is no reason to keep an idle daemon.
    pub(super) async fn serve(self, engine: Engine, stop: CancellationToken) {
        let app = metrics::open_router(engine, self.address.ip().to_canonical().is_loopback());
        let (places, activity) = (TcpPlaces::default(), Activity::default());
        serve_tcp(self.socket, app, None, places, activity, stop, STOP_GRACE).await;
    }
}
