//! One end of a connection, as hyper reads and writes it.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, PoisonError, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Instant,
};

use rustix::net::{Shutdown, shutdown};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use crate::{hosts::HostCounting, sandbox::Sandbox, tcp::connection::Pair};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Inside,
    Outside,
}

#[derive(Debug)]
pub(crate) struct Side {
    sandbox: Arc<Sandbox>,
    host: Arc<HostCounting>,
    pair: Arc<Pair>,
    which: Which,
    /// Bytes that were read before, and how many of them were given out again.
    said: Vec<u8>,
    given: usize,
    /// Until then nothing is read: the sandbox has used up its bytes of this second.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Side {
    pub(crate) fn new(
        sandbox: Arc<Sandbox>,
        host: Arc<HostCounting>,
        pair: Arc<Pair>,
        which: Which,
        said: Vec<u8>,
    ) -> Self {
        Self { sandbox, host, pair, which, said, given: 0, pause: None }
    }

    fn stream(&self) -> &TcpStream {
        match self.which {
            Which::Inside => &self.pair.inside,
            Which::Outside => &self.pair.outside,
        }
    }

    fn count(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let (counter, way) = match self.which {
            Which::Inside => {
                self.host.sent(bytes);
                (&self.sandbox.counting.sent_bytes, 0)
            }
            Which::Outside => {
                self.host.received(bytes);
                (&self.sandbox.counting.received_bytes, 1)
            }
        };
        counter.fetch_add(bytes, Ordering::Relaxed);
        let limit = self.sandbox.throughput.read().unwrap_or_else(PoisonError::into_inner).clone();
        let wait = limit.map(|rates| rates[way].take(bytes, Instant::now()));
        self.pause = wait.filter(|wait| !wait.is_zero()).map(|wait| Box::pin(sleep(wait)));
    }
}

impl AsyncRead for Side {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.given < self.said.len() {
            let length = buffer.remaining().min(self.said.len() - self.given);
            buffer.put_slice(&self.said[self.given..self.given + length]);
            self.given += length;
            return Poll::Ready(Ok(()));
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        loop {
            ready!(self.stream().poll_read_ready(context))?;
            match self.stream().try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    self.count(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Side {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream().poll_write_ready(context))?;
            match self.stream().try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(self.stream(), Shutdown::Write)?))
    }
}
