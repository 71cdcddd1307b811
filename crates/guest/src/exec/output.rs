//! From an exec's pipes into its window, in order, no faster than the host takes it.

use std::{cell::RefCell, os::fd::OwnedFd, rc::Rc};

use bytes::Bytes;
use guest_protocol::ExecEvent;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::Exec;
use crate::{
    Guest,
    files::changed::{self, Tracker},
    limits::OUTPUT_CHUNK_BYTES,
};

/// Most bytes read from a terminal after its first process ended: more than the kernel's buffers hold. It ends the
/// draining if a process that was left behind never stops writing.
const TERMINAL_DRAIN_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// One readable end.
#[derive(Debug)]
pub(crate) struct Output {
    fd: Rc<AsyncFd<OwnedFd>>,
    stream: Stream,
    is_terminal: bool,
}

#[derive(Debug)]
pub(crate) enum Chunk {
    Bytes(Bytes),
    /// Nothing available now.
    Empty,
    /// No writer is left.
    Closed,
}

thread_local! {
    /// Every read goes through here, so that an event owns exactly its bytes and idle execs own none.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Frees the buffer that all reads share; the next read makes another.
pub(crate) fn drop_scratch() {
    SCRATCH.with_borrow_mut(|scratch| *scratch = Vec::new());
}

impl Output {
    pub(crate) fn pipe(fd: Rc<AsyncFd<OwnedFd>>, stream: Stream) -> Self {
        Self { fd, stream, is_terminal: false }
    }

    pub(crate) fn terminal(fd: Rc<AsyncFd<OwnedFd>>) -> Self {
        Self { fd, stream: Stream::Stdout, is_terminal: true }
    }

    /// Waits for the next bytes or the end. Safe to cancel: reading and returning the bytes are one step.
    pub(crate) async fn next(&self) -> Chunk {
        loop {
            let Ok(mut ready) = self.fd.readable().await else { return Chunk::Closed };
            match read_chunk(&self.fd, OUTPUT_CHUNK_BYTES) {
                Chunk::Empty => ready.clear_ready(),
                chunk => return chunk,
            }
        }
    }

    /// The bytes available now, at most `limit`.
    pub(crate) fn take(&self, limit: usize) -> Chunk {
        read_chunk(&self.fd, limit)
    }

    pub(crate) fn event(&self, bytes: Bytes) -> ExecEvent {
        match self.stream {
            Stream::Stdout => ExecEvent::Stdout(bytes),
            Stream::Stderr => ExecEvent::Stderr(bytes),
        }
    }

    /// Bytes that were written before now and not read yet.
    pub(crate) fn pending(&self) -> u64 {
        if self.is_terminal {
            // A terminal's line discipline may hold some back from FIONREAD, so read until there is nothing.
            return TERMINAL_DRAIN_BYTES;
        }
        rustix::io::ioctl_fionread(self.fd.get_ref()).unwrap_or(0)
    }
}

pub(crate) fn read_chunk(fd: &AsyncFd<OwnedFd>, limit: usize) -> Chunk {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(OUTPUT_CHUNK_BYTES, 0);
        let limit = limit.min(scratch.len());
        loop {
            return match rustix::io::read(fd.get_ref(), &mut scratch[..limit]) {
                Ok(0) => Chunk::Closed,
                Ok(n) => Chunk::Bytes(Bytes::copy_from_slice(&scratch[..n])),
                Err(Errno::AGAIN) => Chunk::Empty,
                Err(Errno::INTR) => continue,
                // A terminal answers EIO after its last process ended; other outputs have no reason to fail.
                Err(_) => Chunk::Closed,
            };
        }
    })
}

/// Runs until all write ends are closed and the first process was reaped; then queues `Closed`.
pub(crate) async fn pump(guest: &Guest, exec: &Exec, mut outputs: Vec<Output>, mut tracker: Option<Tracker>) {
    let mut has_exited = false;
    while !has_exited || !outputs.is_empty() {
        let first = outputs.first();
        let second = outputs.get(1);
        let has_room = guest.execs.has_room(exec);
        let closed = tokio::select! {
            biased;
            () = exec.until(|inner| inner.ended.map(drop)), if !has_exited => {
                drain(guest, exec, &mut outputs).await;
                tell_files(guest, exec, tracker.take()).await;
                exec.change(|inner| inner.has_exited = true);
                guest.execs.push(exec, ExecEvent::Exited(exec.report()));
                has_exited = true;
                None
            }
            chunk = next_of(first), if has_room && first.is_some() => take(guest, exec, first, chunk, 0),
            chunk = next_of(second), if has_room && second.is_some() => take(guest, exec, second, chunk, 1),
            () = room(guest, exec), if !has_room => None,
        };
        if let Some(position) = closed {
            outputs.remove(position);
        } else if outputs.len() > 1 {
            // The other one goes first next time: a flood on one stream must not silence the other.
            outputs.swap(0, 1);
        }
    }
    exec.change(|inner| inner.is_closed = true);
    guest.execs.push(exec, ExecEvent::Closed);
}

/// Reports the files it changed, if requested.
pub(crate) async fn tell_files(guest: &Guest, exec: &Exec, tracker: Option<Tracker>) {
    match tracker {
        Some(tracker) if !guest.is_stopping.get() => {
            if let Some(line) = tracker.finish().await {
                room(guest, exec).await;
                guest.execs.push(exec, ExecEvent::Rich(line));
            }
        }
        _ => changed::touched(),
    }
}

async fn next_of(output: Option<&Output>) -> Chunk {
    match output {
        Some(output) => output.next().await,
        None => std::future::pending().await,
    }
}

/// Queues a chunk; returns the position of the output if it ended.
fn take(guest: &Guest, exec: &Exec, output: Option<&Output>, chunk: Chunk, position: usize) -> Option<usize> {
    match (output, chunk) {
        (Some(output), Chunk::Bytes(bytes)) => guest.execs.push(exec, output.event(bytes)),
        (_, Chunk::Closed) => return Some(position),
        _ => {}
    }
    None
}

pub(crate) async fn room(guest: &Guest, exec: &Exec) {
    loop {
        // Room may come from other execs too; freeing it wakes every exec.
        let changed = exec.changed.notified();
        if guest.execs.has_room_for_cell(exec) {
            return;
        }
        changed.await;
    }
}

/// Queues everything written before the first process ended, waiting for room as needed. Bounded: whatever others write
/// meanwhile comes after `Exited`.
pub(crate) async fn drain(guest: &Guest, exec: &Exec, outputs: &mut Vec<Output>) {
    let mut position = 0;
    while position < outputs.len() {
        let output = &outputs[position];
        let mut pending = output.pending();
        let mut is_closed = false;
        while pending > 0 {
            room(guest, exec).await;
            let limit = usize::try_from(pending).unwrap_or(OUTPUT_CHUNK_BYTES);
            match read_chunk(&output.fd, limit) {
                Chunk::Bytes(bytes) => {
                    pending = pending.saturating_sub(bytes.len() as u64);
                    guest.execs.push(exec, output.event(bytes));
                }
                Chunk::Empty => break,
                Chunk::Closed => {
                    is_closed = true;
                    break;
                }
            }
        }
        if is_closed {
            outputs.remove(position);
        } else {
            position += 1;
        }
    }
}
