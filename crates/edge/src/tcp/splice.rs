//! Bytes both ways between two sockets, by `splice` where there is a pipe to do it with, by copying where not.
//!
//! Each way reads only when everything read before has been written: a slow reader stops its own writer and nobody
//! else. The end of one way closes that way only; a reset on either side resets both.

use std::{
    future::Future,
    io,
    sync::{
        PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use rustix::{
    net::{Shutdown, shutdown},
    pipe::{SpliceFlags, splice},
};
use tokio::{io::Interest, net::TcpStream};

use super::pipes::{Borrowed, PIPE_BYTES, Pipes};
use crate::{hosts::HostCounting, sandbox::Sandbox};

/// How often one way goes round before it lets other connections of the same thread have a turn.
const TURNS: u32 = 16;
/// Bytes copied at a time when there is no pipe.
const COPY_BYTES: usize = 64 * 1024;

/// Counts the bytes of one way of a sandbox, and holds them to its limit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Meter<'a> {
    Sent(&'a Sandbox, &'a HostCounting),
    Received(&'a Sandbox, &'a HostCounting),
}

impl Meter<'_> {
    pub(crate) async fn passed(self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let (sandbox, counter, way) = match self {
            Self::Sent(sandbox, host) => {
                host.sent(bytes);
                (sandbox, &sandbox.counting.sent_bytes, 0)
            }
            Self::Received(sandbox, host) => {
                host.received(bytes);
                (sandbox, &sandbox.counting.received_bytes, 1)
            }
        };
        counter.fetch_add(bytes, Ordering::Relaxed);
        let limit = sandbox.throughput.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(rates) = limit {
            tokio::time::sleep(rates[way].take(bytes, Instant::now())).await;
        }
    }
}

/// Carries bytes both ways until both are at their end. The last end is told by closing the sockets, which is for
/// whoever has them.
pub(crate) async fn carry(
    sandbox: &Sandbox,
    host: &HostCounting,
    inside: &TcpStream,
    outside: &TcpStream,
) -> io::Result<()> {
    let pipes = &sandbox.shared.pipes;
    let has_ended = AtomicBool::new(false);
    let has_ended = &has_ended;
    tokio::try_join!(
        one_way(inside, outside, pipes, Meter::Sent(sandbox, host), has_ended),
        one_way(outside, inside, pipes, Meter::Received(sandbox, host), has_ended),
    )?;
    Ok(())
}

/// Carries bytes until `from` is at its end, then closes that way of `to`, unless the other way has ended before.
async fn one_way(
    from: &TcpStream,
    to: &TcpStream,
    pipes: &Pipes,
    meter: Meter<'_>,
    has_other_ended: &AtomicBool,
) -> io::Result<()> {
    let mut turns = 0;
    // What came before we began is read without waiting to be told of it.
    let mut is_first = true;
    loop {
        if !is_first {
            from.readable().await?;
        }
        let moved = match pipes.borrow() {
            Some(pipe) => by_pipe(from, to, pipe, meter, &mut turns, is_first).await?,
            None if is_first => Moved::Idle,
            None => by_copy(from, to, meter).await?,
        };
        is_first = false;
        if moved == Moved::End {
            if has_other_ended.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
            // A peer that is gone already needs no end.
            shutdown(to, Shutdown::Write).or_else(|error| match error {
                rustix::io::Errno::NOTCONN => Ok(()),
                error => Err(error),
            })?;
            return Ok(());
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Moved {
    /// Nothing to read at the moment.
    Idle,
    End,
}

/// Goes on until there is nothing to read. `is_untold`: whether there is anything was not told yet.
async fn by_pipe(
    from: &TcpStream,
    to: &TcpStream,
    mut pipe: Borrowed<'_>,
    meter: Meter<'_>,
    turns: &mut u32,
    mut is_untold: bool,
) -> io::Result<Moved> {
    loop {
        let filled = match std::mem::take(&mut is_untold) {
            true => fill(from, &pipe),
            false => from.try_io(Interest::READABLE, || fill(from, &pipe)),
        };
        match filled {
            Ok(0) => return Ok(Moved::End),
            Ok(read) => pipe.held = read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Moved::Idle),
            Err(error) => return Err(error),
        }
        meter.passed(pipe.held).await;
        pour(&mut pipe, to).await?;
        give_others_a_turn(turns).await;
    }
}

/// Writes what is in the pipe. A socket that was not heard of yet is tried all the same.
async fn pour(pipe: &mut Borrowed<'_>, to: &TcpStream) -> io::Result<()> {
    let mut poured = drain(pipe, to);
    loop {
        match poured {
            Ok(written) => pipe.held -= written.min(pipe.held),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
        if pipe.held == 0 {
            return Ok(());
        }
        poured = to.try_io(Interest::WRITABLE, || drain(pipe, to));
    }
}

fn fill(from: &TcpStream, pipe: &Borrowed<'_>) -> io::Result<usize> {
    let Some((_, write)) = pipe.ends() else { return Ok(0) };
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    Ok(rustix::io::retry_on_intr(|| splice(from, None, write, None, PIPE_BYTES, flags))?)
}

fn drain(pipe: &Borrowed<'_>, to: &TcpStream) -> io::Result<usize> {
    let Some((read, _)) = pipe.ends() else { return Ok(0) };
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    Ok(rustix::io::retry_on_intr(|| splice(read, None, to, None, pipe.held, flags))?)
}

async fn by_copy(from: &TcpStream, to: &TcpStream, meter: Meter<'_>) -> io::Result<Moved> {
    let mut buffer = vec![0; COPY_BYTES];
    let read = match from.try_read(&mut buffer) {
        Ok(0) => return Ok(Moved::End),
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Moved::Idle),
        Err(error) => return Err(error),
    };
    write_all(to, &buffer[..read]).await?;
    meter.passed(read).await;
    tokio::task::yield_now().await;
    Ok(Moved::Idle)
}

/// Writes bytes that were read ahead of the decision.
pub(crate) async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn give_others_a_turn(turns: &mut u32) -> impl Future<Output = ()> + use<> {
    *turns = (*turns + 1) % TURNS;
    let is_due = *turns == 0;
    async move {
        if is_due {
            tokio::task::yield_now().await;
        }
    }
}
