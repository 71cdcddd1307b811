//! Places in the unpacked tree, reached by descriptor.
//!
//! The directories on the way to the last entry stay open, so that entries in one directory cost no walk. A component
//! that is missing is made; one that is anything but a directory is refused, links first of all.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::error::{Error, Result};

/// Deepest directory; each level costs a descriptor while it is walked.
const MAX_DEPTH: usize = 200;
/// Longest path, by the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// Directories whose entry an archive left out, and which are not `0755` by custom. A layer's own directory decides
/// over those below it, so a layer that brings `tmp/x` and no `tmp` would close `/tmp` to users.
const CUSTOMARY_MODES: &[(&[u8], u32)] = &[(b"tmp", 0o1777), (b"var/tmp", 0o1777), (b"root", 0o700)];

pub(super) fn customary_mode(path: &[u8]) -> u32 {
    CUSTOMARY_MODES.iter().find(|(known, _)| *known == path).map_or(0o755, |(_, mode)| *mode)
}

/// A path of the archive as the names it is made of, with nothing in it that could lead astray.
pub(super) fn path_names(path: &[u8]) -> Result<Vec<&[u8]>, String> {
    let names = archive::names(path, MAX_PATH_BYTES).map_err(|why| why.to_string())?;
    if names.len() > MAX_DEPTH {
        return Err(format!("it lies deeper than {MAX_DEPTH} directories"));
    }
    Ok(names)
}

#[derive(Debug)]
pub(super) struct Tree<'a> {
    root: BorrowedFd<'a>,
    /// From the root down; all of them directories that were opened without following a link.
    open: Vec<(Vec<u8>, OwnedFd)>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(root: BorrowedFd<'a>) -> Self {
        Self { root, open: Vec::new() }
    }

    /// The directory at `names`. Missing directories are made, and `made` is told of each.
    pub(super) fn directory(
        &mut self,
        names: &[&[u8]],
        entry: &dyn Fn() -> String,
        mut made: impl FnMut(&[&[u8]]),
    ) -> Result<BorrowedFd<'_>> {
        let shared =
            self.open.iter().zip(names).take_while(|((open, _), name)| open.as_slice() == **name).count();
        self.open.truncate(shared);
        for depth in shared..names.len() {
            let name = names[depth];
            let (next, is_new) = step(self.top(), name, entry)?;
            self.open.push((name.to_vec(), next));
            if is_new {
                made(&names[..=depth]);
            }
        }
        Ok(self.top())
    }

    fn top(&self) -> BorrowedFd<'_> {
        self.open.last().map_or(self.root, |(_, fd)| fd.as_fd())
    }
}

fn step(parent: BorrowedFd<'_>, name: &[u8], entry: &dyn Fn() -> String) -> Result<(OwnedFd, bool)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(parent, name, flags, Mode::empty());
    match open() {
        Ok(fd) => Ok((fd, false)),
        Err(Errno::NOENT) => {
            rustix::fs::mkdirat(parent, name, Mode::RWXU)
                .map_err(|errno| failed("make a directory for", entry, errno))?;
            Ok((open().map_err(|errno| failed("open a directory of", entry, errno))?, true))
        }
        Err(Errno::NOTDIR | Errno::LOOP) => Err(Error::Refused {
            entry: entry(),
            why: format!("{:?} on its path is not a directory of this layer", String::from_utf8_lossy(name)),
        }),
        Err(errno) => Err(failed("open a directory of", entry, errno)),
    }
}

pub(super) fn failed(act: &'static str, entry: &dyn Fn() -> String, errno: Errno) -> Error {
    Error::io(act, entry())(errno.into())
}
