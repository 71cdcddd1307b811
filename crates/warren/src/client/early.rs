//! A stream whose other end may answer before it has read everything.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// How long to wait for an answer once nothing more can be sent. An answer that was sent is there already, and a closed
/// connection is noticed at once; so this only ends connections that neither answer nor close.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Holds back a failed write while there may be something to read. A daemon that refuses an upload answers and closes
/// while the rest is still being sent; the failed write must not hide the answer that says why. After it, nothing more
/// is written, and nothing more of the upload is read from its source.
#[derive(Debug)]
pub(super) struct Early<S> {
    stream: S,
    answer_time: Duration,
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    kind: io::ErrorKind,
    patience: Pin<Box<Sleep>>,
}

impl<S> Early<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, answer_time: ANSWER_TIME, failed: None }
    }
}

impl<S: AsyncWrite + Unpin> Early<S> {
    fn hold_back<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.failed.is_none() {
            match ready!(write(Pin::new(&mut self.stream), context)) {
                Err(error) if is_closed(error.kind()) => {
                    let patience = Box::pin(sleep(self.answer_time));
                    self.failed = Some(Failed { kind: error.kind(), patience });
                }
                other => return Poll::Ready(other),
            }
        }
        let Some(Failed { kind, patience }) = &mut self.failed else { return Poll::Pending };
        if !patience.is_elapsed() {
            ready!(patience.as_mut().poll(context));
        }
        Poll::Ready(Err((*kind).into()))
    }
}

/// Whether an error means that the other end accepts no more data.
fn is_closed(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl<S: AsyncRead + Unpin> AsyncRead for Early<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Early<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.hold_back(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.hold_back(context, |stream, context| stream.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.hold_back(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::StreamExt as _;
    use http_body_util::{BodyExt as _, StreamBody};
    use hyper::{Request, body::Frame, client::conn::http1};
    use hyper_util::rt::TokioIo;
    use tokio::{io::AsyncWriteExt as _, net::UnixStream};

    use super::*;

    /// An upload that never ends by itself.
    fn endless() -> Request<StreamBody<impl futures_util::Stream<Item = io::Result<Frame<Bytes>>>>> {
        let piece = || Ok(Frame::data(Bytes::from_static(&[0; 65_536])));
        let body = StreamBody::new(futures_util::stream::repeat_with(piece).boxed());
        Request::post("/").header("host", "warren").body(body).unwrap()
    }

    /// Accepts a little, then nothing; its answer can be read only once a write has failed.
    #[derive(Debug, Default)]
    struct Refusing {
        n_writes: usize,
        answer: Option<&'static [u8]>,
        reader: Option<std::task::Waker>,
    }

    impl AsyncRead for Refusing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Some(answer) = self.answer.as_mut() else {
                self.reader = Some(context.waker().clone());
                return Poll::Pending;
            };
            buffer.put_slice(std::mem::take(answer));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Refusing {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.n_writes += 1;
            if self.n_writes < 4 {
                return Poll::Ready(Ok(bytes.len()));
            }
            self.answer =
                Some(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 3\r\n\r\nwhy");
            self.reader.take().into_iter().for_each(std::task::Waker::wake);
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn an_answer_is_read_though_a_write_failed_before_it_was_seen() {
        let stream = TokioIo::new(Early::new(Refusing::default()));
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let answer = sender.send_request(endless()).await.unwrap();
        assert_eq!(answer.status(), 400);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "why");
    }

    #[tokio::test]
    async fn who_takes_nothing_and_says_nothing_is_not_waited_for_for_ever() {
        let (near, far) = UnixStream::pair().unwrap();
        // It accepts no more data, but does not close.
        rustix::net::shutdown(&far, rustix::net::Shutdown::Read).unwrap();
        let mut near = Early { answer_time: Duration::from_millis(1), ..Early::new(near) };
        for _ in 0..2 {
            let error = near.write_all(b"bytes").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
        drop(far);
    }

    #[tokio::test]
    async fn who_closes_without_an_answer_is_noticed() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(Early::new(near))).await.unwrap();
        tokio::spawn(connection);
        drop(far);
        assert!(sender.send_request(endless()).await.is_err());
    }
}
