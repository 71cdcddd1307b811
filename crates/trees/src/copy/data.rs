//! Copies the content of one file into another.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use rustix::{
    fs::{copy_file_range, ftruncate, ioctl_ficlone},
    io::{Errno, pread, pwrite},
};

/// Up to this size read and written through memory: two calls, while the kernel's own copy costs more to set up.
const SMALL_BYTES: u64 = 64 * 1024;
/// Buffer size if the kernel cannot copy by itself.
const BUFFER_BYTES: usize = 512 * 1024;

/// The ways of copying that work between these two file systems, learned on the way.
#[derive(Debug)]
pub(super) struct Ways {
    can_share: AtomicBool,
    can_copy_inside: AtomicBool,
    shared_bytes: AtomicU64,
}

impl Default for Ways {
    fn default() -> Self {
        Self {
            can_share: AtomicBool::new(true),
            can_copy_inside: AtomicBool::new(true),
            shared_bytes: AtomicU64::new(0),
        }
    }
}

impl Ways {
    pub(super) fn shared_bytes(&self) -> u64 {
        self.shared_bytes.load(Relaxed)
    }

    pub(super) fn copy(
        &self,
        from: &OwnedFd,
        to: &OwnedFd,
        size: u64,
        is_sparse: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        if size == 0 || self.share(from, to, size)? {
            return Ok(());
        }
        if !is_sparse {
            let end = self.range(from, to, 0, size, buffer)?;
            // A file that became shorter meanwhile keeps its length from `stat`.
            return if end < size { ftruncate(to, size) } else { Ok(()) };
        }
        ftruncate(to, size)?;
        for part in archive::parts_of_file(from, size)?.parts {
            self.range(from, to, part.offset, part.end(), buffer)?;
        }
        Ok(())
    }

    /// Makes both files share their blocks. False if that is impossible.
    fn share(&self, from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<bool, Errno> {
        if !self.can_share.load(Relaxed) {
            return Ok(false);
        }
        match ioctl_ficlone(to, from) {
            Ok(()) => {
                self.shared_bytes.fetch_add(size, Relaxed);
                Ok(true)
            }
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) => {
                self.can_share.store(false, Relaxed);
                Ok(false)
            }
            // This file cannot be shared (it is stored in its inode, or marked); the next may be.
            Err(Errno::INVAL | Errno::PERM | Errno::TXTBSY) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Copies the data between two offsets and returns where it ended.
    fn range(
        &self,
        from: &OwnedFd,
        to: &OwnedFd,
        begin: u64,
        end: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<u64, Errno> {
        let mut at = begin;
        if end - begin > SMALL_BYTES && self.can_copy_inside.load(Relaxed) {
            let mut written = begin;
            while at < end {
                let left = usize::try_from(end - at).unwrap_or(usize::MAX);
                match copy_file_range(from, Some(&mut at), to, Some(&mut written), left) {
                    Ok(0) => return Ok(at),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => {
                        self.can_copy_inside.store(false, Relaxed);
                        break;
                    }
                    Err(errno) => return Err(errno),
                }
            }
        }
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            if buffer.len() < wanted {
                buffer.resize(wanted, 0);
            }
            let read = match pread(from, &mut buffer[..wanted], at) {
                Ok(0) => break,
                Err(Errno::INTR) => continue,
                read => read?,
            };
            write_all_at(to, &buffer[..read], at)?;
            at += read as u64;
        }
        Ok(at)
    }
}

pub(crate) fn write_all_at(file: &OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, at) {
            Err(Errno::INTR) => {}
            written => {
                let written = written?;
                bytes = &bytes[written..];
                at += written as u64;
            }
        }
    }
    Ok(())
}
