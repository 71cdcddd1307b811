//! Threads that hash pieces of files. None is started for a tree of small files.

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::Scope,
};

use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::content::{self, PIECE_BYTES};

/// Most threads.
const MAX_THREADS: usize = 8;
/// Pieces that wait for a thread; each holds its file open.
const MAX_WAITING: usize = 32;

#[derive(Debug)]
pub(super) enum Piece {
    Zero,
    Digest([u8; 32]),
    /// The file is shorter than it was.
    Missing,
}

/// Hashes the piece at `at`, with a reused buffer.
pub(super) fn hash_piece(
    file: BorrowedFd<'_>,
    at: u64,
    length: u64,
    memory: &mut Vec<u8>,
) -> Result<Piece, Errno> {
    let length = usize::try_from(length.min(PIECE_BYTES)).unwrap_or_default();
    if memory.len() < length {
        memory.resize(length, 0);
    }
    let piece = &mut memory[..length];
    if content::read_piece(file, at, piece)? < length {
        return Ok(Piece::Missing);
    }
    if archive::is_zero(piece) {
        return Ok(Piece::Zero);
    }
    Ok(Piece::Digest(Sha256::digest(piece).into()))
}

/// A piece that a thread is to hash, or has hashed.
pub(super) struct Pending(Receiver<Result<Piece, Errno>>);

impl Pending {
    pub(super) fn wait(self) -> Result<Piece, Errno> {
        // The thread is gone: nothing is known of the piece.
        self.0.recv().unwrap_or(Err(Errno::IO))
    }
}

struct Job {
    file: Arc<OwnedFd>,
    at: u64,
    length: u64,
    answer: SyncSender<Result<Piece, Errno>>,
}

impl Job {
    fn run(self, memory: &mut Vec<u8>) {
        // Nobody waits any more after a failure.
        let _unheard = self.answer.send(hash_piece(self.file.as_fd(), self.at, self.length, memory));
    }
}

pub(super) struct Hashers<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    queue: Option<SyncSender<Job>>,
    memory: Vec<u8>,
}

impl<'scope, 'env> Hashers<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>) -> Self {
        Self { scope, queue: None, memory: Vec::new() }
    }

    pub(super) fn hash(&mut self, file: &Arc<OwnedFd>, at: u64, length: u64) -> Pending {
        let (answer, pending) = sync_channel(1);
        let job = Job { file: Arc::clone(file), at, length, answer };
        match self.queue() {
            Some(queue) => {
                if let Err(unsent) = queue.send(job) {
                    unsent.0.run(&mut self.memory);
                }
            }
            None => job.run(&mut self.memory),
        }
        Pending(pending)
    }

    fn queue(&mut self) -> Option<SyncSender<Job>> {
        if self.queue.is_none() {
            let threads =
                std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MAX_THREADS);
            if threads == 1 {
                return None;
            }
            let (send, receive) = sync_channel(MAX_WAITING);
            let receive = Arc::new(Mutex::new(receive));
            for _thread in 0..threads {
                let receive = Arc::clone(&receive);
                self.scope.spawn(move || work(&receive));
            }
            self.queue = Some(send);
        }
        self.queue.clone()
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    let mut memory = Vec::new();
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(job) => job.run(&mut memory),
            Err(_ended) => return,
        }
    }
}
