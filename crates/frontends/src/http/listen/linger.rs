//! The end of a connection whose last request was answered before all of it had come.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Bytes, HttpBody};
use hyper::{
    Response,
    body::{Frame, Incoming, SizeHint},
    header::{CONNECTION, HeaderValue},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// The longest that the rest of a request is taken and thrown away.
const LINGER_TIME: Duration = Duration::from_secs(30);
/// The same for an end that sends nothing: its answer has arrived.
const LINGER_IDLE_TIME: Duration = Duration::from_secs(5);
/// The most that is thrown away. Who sends more has to read while it sends.
const MAX_LINGER_BYTES: usize = 1 << 30;
/// Less than this is read and thrown away by the HTTP library when it is there already, and the connection goes on.
const LITTLE_BYTES: u64 = 8 * 1024;
const LINGER_BUFFER_BYTES: usize = 16 * 1024;

/// Whether part of the last request was never read.
#[derive(Debug, Clone, Default)]
pub(super) struct Unread {
    is_some: Arc<AtomicBool>,
    /// So much is unread that the connection cannot go on.
    is_much: Arc<AtomicBool>,
}

impl Unread {
    /// A request has begun: nothing of an earlier one is left before it.
    pub(super) fn watch(&self, body: Incoming) -> Watched {
        self.forget();
        Watched { body, is_ended: false, unread: self.clone() }
    }

    /// Says that the connection closes where the answer came before the end of its request: no further one can follow.
    pub(super) fn announce<B>(&self, mut response: Response<B>) -> Response<B> {
        if self.is_much.load(Ordering::Acquire) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Forgets the rest of what has been answered by now: nobody is to wait for it.
    pub(super) fn forget(&self) {
        self.is_some.store(false, Ordering::Release);
        self.is_much.store(false, Ordering::Release);
    }
}

/// A request's body that tells when it is given up before its end.
#[derive(Debug)]
pub(super) struct Watched {
    body: Incoming,
    /// The end of the body has come. A chunked body has no other sign of its end.
    is_ended: bool,
    unread: Unread,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.is_ended |= !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.is_ended && !self.body.is_end_stream() {
            let is_little = self.size_hint().exact().is_some_and(|left| left <= LITTLE_BYTES);
            self.unread.is_some.store(true, Ordering::Release);
            self.unread.is_much.store(!is_little, Ordering::Release);
        }
    }
}

/// A stream that is not closed in the face of who still sends. To close with bytes that were never read is to reset:
/// whoever writes a large request in one go would see its writes fail, and many a client then never looks for the
/// answer that was sent. So our side ends first, and what still comes is thrown away within the bounds above.
#[derive(Debug)]
pub(super) struct Linger<S> {
    stream: S,
    unread: Unread,
    rest: Option<Rest>,
}

impl<S> Linger<S> {
    pub(super) fn new(stream: S, unread: Unread) -> Self {
        Self { stream, unread, rest: None }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

/// The rest of a request that is still being thrown away.
#[derive(Debug)]
struct Rest {
    n_left: usize,
    end: Instant,
    /// Runs out at the end, or when nothing came for long.
    patience: Pin<Box<Sleep>>,
    buffer: Box<[u8]>,
}

impl Rest {
    fn new() -> Self {
        let buffer = vec![0; LINGER_BUFFER_BYTES].into_boxed_slice();
        let (end, patience) = (Instant::now() + LINGER_TIME, Box::pin(sleep(LINGER_IDLE_TIME)));
        Self { n_left: MAX_LINGER_BYTES, end, patience, buffer }
    }

    /// Ready when it is over, whatever ended it.
    fn poll_gone(&mut self, stream: &mut (impl AsyncRead + Unpin), context: &mut Context<'_>) -> Poll<()> {
        while self.patience.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut self.buffer);
            let is_read = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer)).is_ok();
            let n_read = buffer.filled().len();
            self.n_left = self.n_left.saturating_sub(n_read);
            if !is_read || n_read == 0 || self.n_left == 0 {
                break;
            }
            self.patience.as_mut().reset(self.end.min(Instant::now() + LINGER_IDLE_TIME));
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Linger<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.rest.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
        }
        if !this.unread.is_some.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        this.rest.get_or_insert_with(Rest::new).poll_gone(&mut this.stream, context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// The far end of a connection that is being closed; and the closing.
    fn closing(is_unread: bool) -> (DuplexStream, tokio::task::JoinHandle<Duration>) {
        let (near, far) = duplex(1 << 20);
        let unread = Unread::default();
        unread.is_some.store(is_unread, Ordering::Release);
        let mut near = Linger::new(near, unread);
        let closed = tokio::spawn(async move {
            let began = Instant::now();
            near.shutdown().await.unwrap();
            began.elapsed()
        });
        (far, closed)
    }

    #[tokio::test(start_paused = true)]
    async fn what_still_comes_is_taken_and_the_other_end_hears_the_end_first() {
        let (mut far, closed) = closing(true);
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
        for _ in 0..40 {
            far.write_all(&[0; 1 << 20]).await.unwrap();
        }
        drop(far);
        assert_eq!(closed.await.unwrap(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_was_read_nobody_is_waited_for() {
        let (far, closed) = closing(false);
        assert_eq!(closed.await.unwrap(), Duration::ZERO);
        drop(far);
    }

    #[tokio::test]
    async fn a_daemon_that_stops_does_not_wait_for_what_was_answered() {
        let (near, far) = duplex(1024);
        let unread = Unread::default();
        unread.is_some.store(true, Ordering::Release);
        let mut near = Linger::new(near, unread.clone());
        assert!(near.shutdown().now_or_never().is_none());
        unread.forget();
        assert!(near.shutdown().now_or_never().is_some());
        drop(far);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_slow_or_never_done_is_left() {
        let (silent, closed) = closing(true);
        assert_eq!(closed.await.unwrap(), LINGER_IDLE_TIME);
        drop(silent);

        let (mut slow, closed) = closing(true);
        while slow.write_u8(0).await.is_ok() {
            tokio::time::sleep(LINGER_IDLE_TIME * 4 / 5).await;
        }
        assert_eq!(closed.await.unwrap(), LINGER_TIME);

        let (mut endless, closed) = closing(true);
        let piece = vec![0; 1 << 20];
        let mut n_sent = 0;
        while endless.write_all(&piece).await.is_ok() {
            n_sent += piece.len();
        }
        assert!((MAX_LINGER_BYTES..MAX_LINGER_BYTES + (4 << 20)).contains(&n_sent), "{n_sent}");
        assert!(closed.await.unwrap() < LINGER_IDLE_TIME);
    }
}
