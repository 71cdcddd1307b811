//! Open files and directories of one session.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{fs::Dir, io::Errno};

use super::packet::Malformed;

/// Open files and directories at once. Below the usual limit of descriptors.
pub(super) const MAX_HANDLES: usize = 512;

#[derive(Debug)]
pub(super) enum Open {
    File(OwnedFd),
    /// The directory, for the attributes of its entries, and where its listing stands.
    Directory(OwnedFd, Dir),
}

impl AsFd for Open {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(file) | Self::Directory(file, _) => file.as_fd(),
        }
    }
}

/// A handle is the number of a slot.
#[derive(Debug, Default)]
pub(super) struct Handles(Vec<Option<Open>>);

impl Handles {
    pub(super) fn insert(&mut self, open: Open) -> Result<u32, Errno> {
        let free = self.0.iter().position(Option::is_none);
        let slot = match free {
            Some(slot) => slot,
            None if self.0.len() < MAX_HANDLES => {
                self.0.push(None);
                self.0.len() - 1
            }
            None => return Err(Errno::MFILE),
        };
        self.0[slot] = Some(open);
        u32::try_from(slot).map_err(|_too_many| Errno::MFILE)
    }

    pub(super) fn get(&mut self, handle: &[u8]) -> Result<&mut Open, Errno> {
        self.slot(handle)?.as_mut().ok_or(Errno::BADF)
    }

    pub(super) fn file(&mut self, handle: &[u8]) -> Result<BorrowedFd<'_>, Errno> {
        match &*self.get(handle)? {
            Open::File(file) => Ok(file.as_fd()),
            Open::Directory(..) => Err(Errno::ISDIR),
        }
    }

    pub(super) fn close(&mut self, handle: &[u8]) -> Result<(), Errno> {
        self.slot(handle)?.take().map(drop).ok_or(Errno::BADF)
    }

    fn slot(&mut self, handle: &[u8]) -> Result<&mut Option<Open>, Errno> {
        let slot = number(handle).map_err(|Malformed| Errno::BADF)?;
        self.0.get_mut(slot).ok_or(Errno::BADF)
    }
}

fn number(handle: &[u8]) -> Result<usize, Malformed> {
    let bytes: [u8; 4] = handle.try_into().map_err(|_odd| Malformed)?;
    Ok(u32::from_be_bytes(bytes) as usize)
}
