//! TCP, plain or with TLS.

use std::{io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use axum::Router;
use rustix::net::sockopt;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_io_timeout::TimeoutWriter;
use tokio_util::sync::CancellationToken;

use super::{
    Activity, Door, Terms, Tls,
    connection::{self, Ends, LocalAddress},
    peers::Peers,
    serve,
};
use crate::http::{auth::Peer, limits};

/// Connections on all listeners together: more than all streams together, so that streams leave room for requests.
const MAX_CONNECTIONS: usize = 2048;
/// Shorter than on the Unix socket: here anyone can take a place.
const HEAD_TIME: Duration = Duration::from_secs(15);
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// A peer that is silent for the first of these is asked so often, so many times, and is then gone.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_ALIVE_TRIES: u32 = 4;
/// A peer that takes nothing of an answer for so long is gone, whatever its kernel says.
const STALL_TIME: Duration = Duration::from_secs(30);

/// Limits of the number of connections, in all and of each address. Listeners of one daemon share them: another port
/// gives nobody more connections.
#[derive(Debug, Clone)]
pub struct TcpPlaces {
    places: Arc<Semaphore>,
    peers: Arc<Peers>,
}

impl Default for TcpPlaces {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(MAX_CONNECTIONS)), peers: Arc::default() }
    }
}

/// Serves `app` on TCP until `stop`; then lets requests in flight finish for at most `grace`, and cuts the rest.
pub async fn serve_tcp(
    listener: TcpListener,
    app: Router,
    tls: Option<Tls>,
    places: TcpPlaces,
    activity: Activity,
    stop: CancellationToken,
    grace: Duration,
) {
    let TcpPlaces { places, peers } = places;
    let terms = Terms { app, activity, stop, grace, places };
    serve(Tcp { peers, ..Tcp::new(listener, tls) }, terms, || {}).await;
}

/// Answers are small and streams are live: nothing waits for more to send. A silent stream whose other end lost its
/// network would hold its place for ever: the kernel asks now and then.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_TRIES)?;
    Ok(())
}

struct Tcp {
    listener: TcpListener,
    tls: Option<Tls>,
    peers: Arc<Peers>,
    stall_time: Duration,
}

impl Tcp {
    fn new(listener: TcpListener, tls: Option<Tls>) -> Self {
        Self { listener, tls, peers: Arc::default(), stall_time: STALL_TIME }
    }
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
        let (tls, stall_time) = (self.tls.clone(), self.stall_time);
        let place = self.peers.enter(limits::owner_of(peer.ip()));
        async move {
            let Some(_place) = place else {
                return tracing::debug!(%peer, "a connection was refused: its address has too many");
            };
            if let Err(error) = prepare(&stream) {
                tracing::debug!(%peer, "could not set up a connection: {error}");
            }
            let ends = Ends { peer: Peer::Tcp(peer), local: stream.local_addr().ok().map(LocalAddress) };
            let stream = read_within(stream, stall_time);
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

/// Writes that make no progress for as long as `limit` fail. An end that is there but takes nothing would otherwise
/// keep its place for ever: the kernel goes on asking it, and is content with the answer that there is no room.
///
/// Not the kernel's own limit for this: it would also count for keep-alive, where one lost packet would then be the
/// end.
fn read_within(stream: TcpStream, limit: Duration) -> Pin<Box<TimeoutWriter<TcpStream>>> {
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(limit));
    Box::pin(stream)
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn one_too_many_waits_until_another_leaves() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let terms = Terms {
            app: Router::new().route("/", get(|| async { "hello" })),
            activity: Activity::default(),
            stop: stop.clone(),
            grace: Duration::ZERO,
            places: Arc::new(Semaphore::new(1)),
        };
        let serving = tokio::spawn(serve(Tcp::new(listener, None), terms, || {}));
        let connect = async || {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            stream
        };
        let mut first = connect().await;
        assert!(first.read_u8().await.is_ok());
        let mut second = connect().await;
        let mut answer = second.read_u8().boxed();
        // The first is still served; the second is not.
        first.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut both = Vec::new();
        while String::from_utf8_lossy(&both).matches("hello").count() < 2 {
            first.read_buf(&mut both).await.unwrap();
            assert!(answer.as_mut().now_or_never().is_none());
        }
        drop(first);
        assert!(answer.await.is_ok());
        stop.cancel();
        serving.await.unwrap();
    }

    /// Far more than the buffers of two sockets hold.
    const LARGE: usize = 64 * 1024 * 1024;

    #[tokio::test]
    async fn a_peer_that_never_reads_loses_its_place() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let terms = Terms {
            app: Router::new().route("/", get(|| async { vec![0; LARGE] })),
            activity: Activity::default(),
            stop: stop.clone(),
            grace: Duration::ZERO,
            places: Arc::new(Semaphore::new(1)),
        };
        let door = Tcp { stall_time: Duration::from_millis(200), ..Tcp::new(listener, None) };
        let serving = tokio::spawn(serve(door, terms, || {}));
        let ask = async || {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            stream
        };
        let _silent = ask().await;
        let mut next = ask().await;
        assert!(next.read_u8().await.is_ok(), "the only place is free again");
        stop.cancel();
        serving.await.unwrap();
    }
}
