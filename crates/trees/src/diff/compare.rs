//! Whether two files are identical to their readers.

use std::{
    ffi::CStr,
    os::fd::{AsFd as _, OwnedFd},
    time::Instant,
};

use rustix::io::Errno;

use super::{
    FileKind, is_past,
    merge::{Layers, Node, failed},
};
use crate::{
    attributes::{Attribute, Attributes, OPAQUE, Reader},
    content::{self, PIECE_BYTES},
    error::Result,
};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Same {
    Yes,
    No,
    /// One of them does not exist any more.
    Gone,
    /// There was no time to read them to their ends.
    Unknown,
}

impl From<bool> for Same {
    fn from(is_same: bool) -> Self {
        if is_same { Self::Yes } else { Self::No }
    }
}

/// Compares the contents of two nodes of one kind.
pub(super) fn compare_contents(
    layers: &mut Layers<'_>,
    path: &[Vec<u8>],
    name: &CStr,
    new: &Node,
    old: &Node,
    until: Option<Instant>,
) -> Result<Same> {
    match new.kind() {
        FileKind::File => {}
        FileKind::Link => {
            let (new, old) = (layers.target(path, name, new)?, layers.target(path, name, old)?);
            return Ok(if new.is_none() { Same::Gone } else { (new == old).into() });
        }
        FileKind::Device => return Ok((new.stat().st_rdev == old.stat().st_rdev).into()),
        FileKind::Directory | FileKind::Fifo | FileKind::Socket => return Ok(Same::Yes),
    }
    if new.stat().st_size != old.stat().st_size {
        return Ok(Same::No);
    }
    let (Some(one), Some(other)) = (layers.open(path, name, new)?, layers.open(path, name, old)?) else {
        return Ok(Same::Gone);
    };
    let size = u64::try_from(new.stat().st_size).unwrap_or_default();
    same_bytes(&one, &other, size, until).map_err(|errno| failed("read", path, Some(name), errno))
}

/// Only the written parts of either are read.
fn same_bytes(one: &OwnedFd, other: &OwnedFd, size: u64, until: Option<Instant>) -> Result<Same, Errno> {
    let piece = usize::try_from(PIECE_BYTES.min(size)).unwrap_or_default();
    let (mut left, mut right) = (vec![0; piece], vec![0; piece]);
    let mut at = 0;
    while at < size {
        if is_past(until) {
            return Ok(Same::Unknown);
        }
        at = content::next_written(one, at, size)?.min(content::next_written(other, at, size)?);
        let read = content::read_piece(one.as_fd(), at, &mut left)?;
        if content::read_piece(other.as_fd(), at, &mut right)? != read || left[..read] != right[..read] {
            return Ok(Same::No);
        }
        if read == 0 {
            break;
        }
        at += read as u64;
    }
    Ok(Same::Yes)
}

/// Compares owner, mode and attributes; a changed time alone is not a change.
pub(super) fn is_same_metadata(
    layers: &mut Layers<'_>,
    reader: &mut Reader,
    path: &[Vec<u8>],
    name: &CStr,
    new: &Node,
    old: &Node,
) -> Result<bool> {
    let (one, other) = (Attributes::of(new.stat()), Attributes::of(old.stat()));
    if (one.uid, one.gid, one.mode) != (other.uid, other.gid, other.mode) {
        return Ok(false);
    }
    if !matches!(new.kind(), FileKind::File | FileKind::Directory) {
        return Ok(true);
    }
    let mut read = |node: &Node| -> Result<Option<Vec<Attribute>>> {
        let Some(file) = layers.open(path, name, node)? else { return Ok(None) };
        let mut found = reader
            .read(file.as_fd())
            .map_err(|errno| failed("read the attributes of", path, Some(name), errno))?;
        found.retain(|(name, _)| name != OPAQUE);
        Ok(Some(found))
    };
    let (one, other) = (read(new)?, read(old)?);
    Ok(one.is_none() || other.is_none() || one == other)
}
