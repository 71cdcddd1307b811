//! Tar archives: read from strangers, and written so that any `tar` reads them.
//!
//! Headers are read and written by the `tar` crate. The stream is ours, because extended headers and maps of holes come
//! from strangers and must not fill the memory, and because content goes to its file from the buffer that it was
//! received in.
//!
//! Extended headers hold what tar has no word for: times to the nanosecond, long names, large numbers, attributes
//! (`SCHILY.xattr`), holes (`GNU.sparse`, version 1.0), sockets (a record of our own). All other ways in which GNU tar
//! writes long names and holes are read too. The same member always has the same bytes.
#![forbid(unsafe_code)]

mod attributes;
mod content;
mod error;
mod holes;
mod names;
mod pax;
mod pieces;
mod read;
mod sparse;
#[cfg(test)]
mod tests;
mod write;

pub use attributes::{Attribute, AttributeReader};
pub use content::{Content, Part};
pub use error::{Error, Result};
pub use holes::{is_zero, parts_of_file, write_sparsely};
pub use names::{BadPath, names};
pub use pieces::Pieces;
pub use read::{Format, ReadLimits, Reader, header_type};
pub use rustix::fs::Timespec;
pub use write::{MAX_HEADER_BYTES, Writer, header};

use rustix::fs::Stat;

pub const BLOCK: usize = 512;

/// One entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// As the archive has it, whatever that is: see [`names`]. Directories have no slash at the end.
    pub path: Vec<u8>,
    pub kind: Kind,
    /// Permission bits, with those that lend the owner's rights.
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub mtime: Timespec,
    pub attributes: Vec<Attribute>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File(Content),
    Symlink {
        target: Vec<u8>,
    },
    /// A further name of what an earlier member made at this path.
    HardLink {
        target: Vec<u8>,
    },
    Fifo,
    Socket,
    /// The character device 0:0, by which overlays say that a name is gone.
    Whiteout,
    Device,
    /// A member of this type byte; its content is skipped.
    Unknown(u8),
}

impl Member {
    /// Belongs to root, without attributes, last changed in 1970.
    pub fn new(path: impl Into<Vec<u8>>, kind: Kind, mode: u32) -> Self {
        let mtime = Timespec { tv_sec: 0, tv_nsec: 0 };
        Self { path: path.into(), kind, mode, uid: 0, gid: 0, mtime, attributes: Vec::new() }
    }

    /// With the mode, the owner and the time of a file.
    #[expect(
        clippy::unnecessary_cast,
        clippy::cast_possible_wrap,
        reason = "the widths of these fields differ between architectures"
    )]
    pub fn of(path: impl Into<Vec<u8>>, kind: Kind, stat: &Stat) -> Self {
        Self {
            uid: u64::from(stat.st_uid),
            gid: u64::from(stat.st_gid),
            mtime: Timespec { tv_sec: stat.st_mtime as i64, tv_nsec: stat.st_mtime_nsec as i64 },
            ..Self::new(path, kind, stat.st_mode & 0o7777)
        }
    }

    /// The same, changed at a whole second: then its time needs no extended header.
    #[must_use]
    pub fn to_the_second(mut self) -> Self {
        self.mtime.tv_nsec = 0;
        self
    }

    /// User and group; `None` where the kernel has no such ids. The largest number means "nobody in particular" to it.
    pub fn owner(&self) -> Option<(u32, u32)> {
        let id = |id: u64| u32::try_from(id).ok().filter(|&id| id != u32::MAX);
        Some((id(self.uid)?, id(self.gid)?))
    }

    /// The path for people, cut to a length that can be shown.
    pub fn shown(&self) -> String {
        shown(&self.path)
    }
}

/// A path for people, cut to a length that can be shown.
pub fn shown(path: &[u8]) -> String {
    const MAX_SHOWN_BYTES: usize = 1024;
    String::from_utf8_lossy(&path[..path.len().min(MAX_SHOWN_BYTES)]).into_owned()
}
