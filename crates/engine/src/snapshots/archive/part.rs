//! One end of a stream in parts, read by somebody who takes a reader.

use std::{
    collections::VecDeque,
    io::{self, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

/// The last parts of an image, held back until the whole archive is known to be what was saved: so that nothing of it
/// is recorded before. Two, as the last one may hold less than the end of a tar.
const HELD_PARTS: usize = 2;

type Part = io::Result<Vec<u8>>;

/// Takes parts; the newest wait until [`Parts::finish`].
#[derive(Debug)]
pub(super) struct Parts {
    send: SyncSender<Part>,
    held: VecDeque<Vec<u8>>,
}

pub(super) fn parts() -> (Parts, PartReader) {
    let (send, receive) = sync_channel(1);
    (Parts { send, held: VecDeque::new() }, PartReader { receive, part: Vec::new(), n_read: 0 })
}

impl Parts {
    /// False when nobody reads any more.
    pub(super) fn push(&mut self, part: Vec<u8>) -> bool {
        self.held.push_back(part);
        match self.held.len() > HELD_PARTS {
            true => self.held.pop_front().is_none_or(|part| self.send.send(Ok(part)).is_ok()),
            false => true,
        }
    }

    pub(super) fn finish(mut self) {
        for part in self.held.drain(..) {
            if self.send.send(Ok(part)).is_err() {
                return;
            }
        }
    }

    pub(super) fn fail(self) {
        let error = io::Error::new(io::ErrorKind::InvalidData, "the archive was changed after it was saved");
        // Nobody may read any more; then nobody needs to know.
        drop(self.send.send(Err(error)));
    }
}

#[derive(Debug)]
pub(super) struct PartReader {
    receive: Receiver<Part>,
    part: Vec<u8>,
    n_read: usize,
}

impl Read for PartReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.n_read == self.part.len() {
            match self.receive.recv() {
                Ok(part) => (self.part, self.n_read) = (part?, 0),
                Err(_ended) => return Ok(0),
            }
        }
        let n = buffer.len().min(self.part.len() - self.n_read);
        buffer[..n].copy_from_slice(&self.part[self.n_read..self.n_read + n]);
        self.n_read += n;
        Ok(n)
    }
}
