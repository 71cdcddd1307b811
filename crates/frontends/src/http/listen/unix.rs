//! The Unix socket.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Semaphore, watch},
};
use tokio_util::sync::CancellationToken;

use super::{
    Activity, Door, Terms,
    connection::{self, Ends},
    serve,
};
use crate::http::auth::Peer;

const MAX_CONNECTIONS: usize = 1024;
const HEAD_TIME: Duration = Duration::from_secs(30);

/// Serves `app` on a Unix socket until `stop`; the caller may replace the socket meanwhile. Then calls `hide`, which
/// takes the socket's path away so that nobody new connects; accepts what had connected by then, lets requests in
/// flight finish for at most `grace`, and cuts the rest.
pub async fn serve_unix(
    listener: watch::Receiver<Arc<UnixListener>>,
    app: Router,
    activity: Activity,
    stop: CancellationToken,
    grace: Duration,
    hide: impl FnOnce() + Send,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let terms = Terms { app, activity, stop, grace, places };
    serve(Unix(listener), terms, hide).await;
}

struct Unix(watch::Receiver<Arc<UnixListener>>);

impl Door for Unix {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        let mut current = self.0.clone();
        loop {
            let listener = Arc::clone(&current.borrow_and_update());
            tokio::select! {
                biased;
                accepted = listener.accept() => return Ok(accepted?.0),
                Ok(()) = current.changed() => {}
            }
        }
    }

    fn converse(
        &self,
        stream: UnixStream,
        app: Router,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let peer = peer_of(&stream);
        async move {
            match peer {
                Ok(peer) => {
                    connection::converse(stream, Ends { peer, local: None }, HEAD_TIME, app, stop).await;
                }
                Err(error) => tracing::warn!("could not tell who connected: {error}"),
            }
        }
    }
}

fn peer_of(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = stream.peer_cred()?;
    Ok(Peer::Unix { uid: credentials.uid(), pid: credentials.pid() })
}
