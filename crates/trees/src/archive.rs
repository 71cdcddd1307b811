//! Trees as tar archives: what one member is, and how it is written and read.
//!
//! Any `tar` can list and read them. What tar has no word for is in extended headers: times to the nanosecond, long names,
//! attributes (`SCHILY.xattr`), files with long runs of zeros (`GNU.sparse`, version 1.0), sockets. Whiteouts are character
//! devices 0:0. Members come in the order in which trees are walked, and an archive in another order is refused: so none can
//! come twice, and none lies in what is not a directory of the archive itself.

mod pax;
mod read;
mod write;

pub(crate) use self::{
    read::Reader,
    write::{END, write_header},
};
use crate::attributes::{Attribute, Attributes};

pub(crate) const BLOCK: usize = 512;
/// Longest path in an archive. Deeper trees exist, but no program reaches into them by name.
pub(crate) const MAX_PATH_BYTES: usize = 64 * 1024;
/// Longest extended header of one member: its path twice, and its attributes, each of which is 64 KiB at most.
pub(crate) const MAX_HEADER_BYTES: u64 = 4 * 1024 * 1024;
/// Most parts between runs of zeros in one file.
pub(crate) const MAX_PARTS: usize = 1024 * 1024;

/// The keyword for what tar has no word for, and its value for sockets.
const KIND: &[u8] = b"TREES.kind";
const SOCKET: &[u8] = b"socket";
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
/// For names of attributes that have an equals sign in them, in hexadecimal: a keyword cannot have one.
const ODD_ATTRIBUTE: &[u8] = b"TREES.xattr.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Without slashes at its ends.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) attributes: Attributes,
    pub(crate) extended: Vec<Attribute>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    /// `stored` bytes follow.
    File {
        stored: u64,
    },
    /// So many bytes follow: first a map of its parts, then the parts; all else is zero.
    Sparse {
        stored: u64,
        size: u64,
    },
    Link {
        target: Vec<u8>,
    },
    /// A further name of what has this path.
    HardLink {
        target: Vec<u8>,
    },
    Fifo,
    Socket,
    Whiteout,
}

/// The map of a sparse file of `size` bytes, as it stands before its parts: numbers in decimal, one to a line, filled up to a
/// whole block. A last part of no length at the end is how other programs learn of zeros there.
pub(crate) fn sparse_map(parts: &[(u64, u64)], size: u64) -> Vec<u8> {
    let ends_in_zeros = parts.last().is_none_or(|(offset, length)| offset + length < size);
    let end = ends_in_zeros.then_some((size, 0));
    let mut map = format!("{}\n", parts.len() + usize::from(ends_in_zeros));
    for (offset, length) in parts.iter().copied().chain(end) {
        map.push_str(&format!("{offset}\n{length}\n"));
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}
