//! Kernel pipes that bytes pass through on their way from one socket to another, shared by all connections.
//!
//! A connection holds a pipe only while bytes are in it, so that idle connections cost none. The kernel bounds the
//! pages that one user's pipes may hold; our own bound keeps below it.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// How much one pipe holds.
pub(crate) const PIPE_BYTES: usize = 256 * 1024;
/// Most pipes at once: together they stay below the 64 MiB that an ordinary user's pipes may hold.
const MAX_PIPES: usize = 192;
/// Most pipes kept for later.
const MAX_IDLE: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Pipes {
    idle: Mutex<Vec<Pipe>>,
    live: AtomicUsize,
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// A pipe in use. It goes back to the pool only if it is empty; else it is closed with what is in it.
#[derive(Debug)]
pub(crate) struct Borrowed<'pool> {
    pipes: &'pool Pipes,
    pipe: Option<Pipe>,
    /// Bytes inside.
    pub(crate) held: usize,
}

impl Pipes {
    /// An empty pipe; `None` if there are too many or the kernel refuses one.
    pub(crate) fn borrow(&self) -> Option<Borrowed<'_>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let pipe = match idle {
            Some(pipe) => pipe,
            None => self.make()?,
        };
        Some(Borrowed { pipes: self, pipe: Some(pipe), held: 0 })
    }

    fn make(&self) -> Option<Pipe> {
        if self.live.fetch_add(1, Ordering::Relaxed) >= MAX_PIPES {
            self.live.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let made = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).and_then(|(read, write)| {
            fcntl_setpipe_size(&write, PIPE_BYTES).map(|_size| Pipe { read, write })
        });
        if made.is_err() {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
        made.ok()
    }

    fn give_back(&self, pipe: Pipe, is_empty: bool) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if is_empty && idle.len() < MAX_IDLE {
            idle.push(pipe);
        } else {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Borrowed<'_> {
    /// The ends to read from and to write to.
    pub(crate) fn ends(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        self.pipe.as_ref().map(|pipe| (pipe.read.as_fd(), pipe.write.as_fd()))
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.pipes.give_back(pipe, self.held == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_pipes_are_used_again_and_their_number_is_bounded() {
        let pipes = Pipes::default();
        drop(pipes.borrow().unwrap());
        assert_eq!(pipes.live.load(Ordering::Relaxed), 1);

        let mut all: Vec<_> = std::iter::from_fn(|| pipes.borrow()).take(MAX_PIPES + 1).collect();
        assert!(all.len() <= MAX_PIPES);
        for pipe in &mut all {
            pipe.held = 1;
        }
        drop(all);
        assert_eq!(pipes.live.load(Ordering::Relaxed), 0);
    }
}
