//! The things that keep a stream to a port alive, and those that end it.

use std::{future::pending, time::Duration};

use engine::PortStream;
use futures_util::future::{BoxFuture, FutureExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::http::{ActivityGuard, StreamLease, StreamPlace};

/// How long an answer in flight may take after the daemon was told to stop.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Bytes that one direction of a stream holds at a time; as much as one read inside brings.
const COPY_BYTES: usize = 64 * 1024;

/// The things a byte stream is tied to: it ends with the daemon or the key, and is counted as long as it lasts.
pub(crate) struct Tie {
    stop: CancellationToken,
    key_ended: BoxFuture<'static, ()>,
    _activity: Option<ActivityGuard>,
    _place: Option<StreamPlace>,
}

impl Tie {
    /// For a stream that outlives its request.
    pub(crate) fn stream(
        stop: &CancellationToken,
        lease: Option<&StreamLease>,
        activity: ActivityGuard,
        place: Option<StreamPlace>,
    ) -> Self {
        Self { _activity: Some(activity), _place: place, ..Self::answer(stop, lease) }
    }

    /// For an answer, which the gate counts if it is a stream.
    pub(super) fn answer(stop: &CancellationToken, lease: Option<&StreamLease>) -> Self {
        let key_ended = lease.map_or_else(|| pending().boxed(), StreamLease::ended);
        Self { stop: stop.clone(), key_ended, _activity: None, _place: None }
    }

    /// Carries bytes both ways until either side, the daemon or the key ends.
    pub(crate) async fn join(
        mut self,
        mut outside: impl AsyncRead + AsyncWrite + Unpin,
        mut inside: impl AsyncRead + AsyncWrite + Unpin,
    ) {
        let copying =
            tokio::io::copy_bidirectional_with_sizes(&mut outside, &mut inside, COPY_BYTES, COPY_BYTES);
        tokio::select! {
            ended = copying => {
                if let Err(error) = ended {
                    tracing::debug!("a port stream ended: {error}");
                }
            }
            () = self.stop.cancelled() => {}
            () = &mut self.key_ended => {}
        }
    }

    /// Drives the connection of one answer.
    pub(super) async fn drive(mut self, connection: impl Future<Output = hyper::Result<()>>) {
        let stopped = async {
            self.stop.cancelled().await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        tokio::select! {
            ended = connection => {
                if let Err(error) = ended {
                    tracing::debug!("a connection to a server inside ended: {error}");
                }
            }
            () = stopped => {}
            () = &mut self.key_ended => {}
        }
    }
}

/// The bytes of both sides once each has switched protocols.
pub(super) async fn join_upgraded(
    outside: impl Future<Output = hyper::Result<Upgraded>>,
    inside: impl Future<Output = hyper::Result<Upgraded>>,
    tie: Tie,
) {
    match tokio::try_join!(outside, inside) {
        Ok((outside, inside)) => tie.join(TokioIo::new(outside), TokioIo::new(inside)).await,
        Err(error) => tracing::debug!("an upgraded connection was not taken up: {error}"),
    }
}

/// The stream that [`hyper`] speaks over.
pub(super) fn io(stream: PortStream) -> TokioIo<PortStream> {
    TokioIo::new(stream)
}
