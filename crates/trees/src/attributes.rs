//! Owners, modes, times and extended attributes.

use std::os::fd::{AsFd, BorrowedFd};

pub(crate) use archive::Attribute;
use archive::AttributeReader;
use rustix::{
    fs::{Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fsetxattr, futimens},
    io::Errno,
};

pub(crate) const OPAQUE: &[u8] = b"user.overlay.opaque";
const OVERLAY: &[u8] = b"user.overlay.";
/// Prefix of attributes written by an overlay inside a sandbox.
const NESTED_OVERLAY: &[u8] = b"user.overlay.overlay.";

/// Whether an attribute belongs to the tree: those set by its users, capabilities and access lists, and the mark of
/// opaque directories. All others belong to the host, or to one mount of an overlay.
pub(crate) fn is_kept(name: &[u8], value: &[u8]) -> bool {
    match name {
        OPAQUE => value == b"y",
        _ if name.starts_with(OVERLAY) => name.starts_with(NESTED_OVERLAY),
        _ => name.starts_with(b"user.") || is_of_the_system(name),
    }
}

fn is_of_the_system(name: &[u8]) -> bool {
    matches!(name, b"security.capability" | b"system.posix_acl_access" | b"system.posix_acl_default")
}

/// Reads attributes with one buffer for all files.
#[derive(Debug, Default)]
pub(crate) struct Reader(AttributeReader);

impl Reader {
    /// The kept attributes of an open file or directory, by name.
    pub(crate) fn read(&mut self, file: BorrowedFd<'_>) -> Result<Vec<Attribute>, Errno> {
        let mut attributes =
            self.0.read(file, |name| name.starts_with(b"user.") || is_of_the_system(name))?;
        attributes.retain(|(name, value)| is_kept(name, value));
        Ok(attributes)
    }
}

/// Our own ids: files that we make already have them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Us(Uid, Gid);

impl Us {
    pub(crate) fn find() -> Self {
        Self(rustix::process::geteuid(), rustix::process::getegid())
    }

    pub(crate) fn is(self, uid: u32, gid: u32) -> bool {
        self.0.as_raw() == uid && self.1.as_raw() == gid
    }
}

/// The metadata of an entry besides its name and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    pub(crate) mtime: Timespec,
}

impl Attributes {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { uid: stat.st_uid, gid: stat.st_gid, mode: stat.st_mode & 0o7777, mtime: mtime(stat) }
    }

    pub(crate) fn times(&self) -> Timestamps {
        Timestamps { last_access: self.mtime, last_modification: self.mtime }
    }

    pub(crate) fn owner(&self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }

    /// Sets everything on an open file or directory. The order matters: a new owner clears set-id bits and
    /// capabilities, a new access list changes the mode, and all of it changes the time.
    pub(crate) fn set(
        &self,
        file: impl AsFd,
        extended: &[Attribute],
        us: Us,
    ) -> Result<(), (&'static str, Errno)> {
        let file = file.as_fd();
        if !us.is(self.uid, self.gid) {
            let (uid, gid) = self.owner();
            fchown(file, uid, gid).map_err(|errno| ("give away", errno))?;
        }
        for (name, value) in extended {
            fsetxattr(file, name.as_slice(), value, XattrFlags::empty())
                .map_err(|errno| ("set an attribute of", errno))?;
        }
        fchmod(file, Mode::from_raw_mode(self.mode)).map_err(|errno| ("set the mode of", errno))?;
        futimens(file, &self.times()).map_err(|errno| ("set the time of", errno))
    }
}

#[expect(
    clippy::unnecessary_cast,
    clippy::cast_possible_wrap,
    reason = "the widths of these fields differ between architectures"
)]
fn mtime(stat: &Stat) -> Timespec {
    Timespec { tv_sec: stat.st_mtime as i64, tv_nsec: stat.st_mtime_nsec as i64 }
}
