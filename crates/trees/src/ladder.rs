//! Directories from a top down to the current one, of which only some are held open.
//!
//! Those near the top and those near the bottom stay open; those between are closed and found again by `..` on the way
//! up, and only if they are still the same: a tree of ten thousand levels costs as many descriptors as one of two
//! hundred.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::{
    fs::{Mode, OFlags, Stat, fstat, openat},
    io::Errno,
};

/// Levels from the top that stay open.
const OPEN_AT_THE_TOP: usize = 64;
/// Levels from the deepest that stay open.
const OPEN_AT_THE_BOTTOM: usize = 32;

pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Identifies a file.
pub(crate) type Identity = (u64, u64);

#[expect(clippy::unnecessary_cast, reason = "the widths of these fields differ between architectures")]
pub(crate) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev as u64, stat.st_ino as u64)
}

#[derive(Debug)]
enum Rung {
    Open(OwnedFd),
    Closed(Identity),
}

#[derive(Debug)]
pub(crate) struct Ladder<'a> {
    top: BorrowedFd<'a>,
    rungs: Vec<Rung>,
}

impl<'a> Ladder<'a> {
    pub(crate) fn new(top: BorrowedFd<'a>) -> Self {
        Self { top, rungs: Vec::new() }
    }

    /// The directory we are in.
    pub(crate) fn here(&self) -> BorrowedFd<'_> {
        match self.rungs.last() {
            Some(Rung::Open(directory)) => directory.as_fd(),
            // The deepest level is never closed, so this is the top.
            _ => self.top,
        }
    }

    /// Enters `directory`, which lies in the current one.
    pub(crate) fn down(&mut self, directory: OwnedFd) -> Result<(), Errno> {
        self.rungs.push(Rung::Open(directory));
        if let Some(middle) = self.rungs.len().checked_sub(OPEN_AT_THE_BOTTOM + 1)
            && middle >= OPEN_AT_THE_TOP
            && let Rung::Open(directory) = &self.rungs[middle]
        {
            self.rungs[middle] = Rung::Closed(identity(&fstat(directory)?));
        }
        Ok(())
    }

    /// Goes back to the directory above, and returns the one that is left. `None`: it was moved.
    pub(crate) fn up(&mut self) -> Result<Option<OwnedFd>, Errno> {
        let Some(Rung::Open(left)) = self.rungs.pop() else { return Ok(None) };
        if let Some(Rung::Closed(expected)) = self.rungs.last() {
            let expected = *expected;
            let above = openat(&left, c"..", DIRECTORY, Mode::empty())?;
            if identity(&fstat(&above)?) != expected {
                return Ok(None);
            }
            if let Some(last) = self.rungs.last_mut() {
                *last = Rung::Open(above);
            }
        }
        Ok(Some(left))
    }
}
