//! `TarIn`: a tar stream into a directory, and nowhere else.

mod sparse;

use std::{
    cell::Cell,
    ffi::{CString, OsStr},
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
    rc::Rc,
};

use guest_protocol::{Failure, FailureKind, Response};
use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid},
    io::Errno,
};
use tar::{Archive, Entry, EntryType};

use self::sparse::{Awaited, copy_sparsely};
use super::{
    Answer, Cancel, absolute,
    charged::Body,
    entry::{QUIET, c_name, open_directory},
    failure,
};

/// Bytes of headers, long names and extensions before one entry's own bytes: the archive's reader holds them whole.
const MAX_HEADER_BYTES: u64 = 256 * 1024;
/// Sizes of one archive's sparse files together. Holes take no room, but the archive's reader counts through them: some
/// minutes for this much.
const MAX_SPARSE_BYTES: u64 = 4 << 40;

pub(super) fn unpack(path: &str, keep_ids: bool, body: &mut Body, cancel: Cancel) -> Answer {
    let root = absolute(path).and_then(|path| open_directory(&path))?;
    let is_root = Path::new(path).parent().is_none();
    let sparse_left = Cell::new(MAX_SPARSE_BYTES);
    Unpack { root, is_root, keep_ids, cancel, sparse_left }.all(body)?;
    // What follows the archive is padding.
    let failed = |error| failure(format!("could not unpack into {path}"), error);
    while body.piece().map_err(failed)?.is_some() {}
    Ok(Response::Written { bytes: body.total })
}

/// The body, of which only so many bytes can be read between entries.
struct BoundedBody<'a> {
    body: &'a mut Body,
    /// Bytes that may still be read before the next entry's own; `None` while those are read.
    header_left: Rc<Cell<Option<u64>>>,
}

impl Read for BoundedBody<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.body.read(buffer)?;
        if let Some(left) = self.header_left.get() {
            let left = left.checked_sub(n as u64).ok_or_else(|| io::Error::other("a header is too long"))?;
            self.header_left.set(Some(left));
        }
        Ok(n)
    }
}

struct Unpack {
    root: OwnedFd,
    /// Whether it is the root of everything, which nothing can leave.
    is_root: bool,
    keep_ids: bool,
    cancel: Cancel,
    /// What is left of `MAX_SPARSE_BYTES`.
    sparse_left: Cell<u64>,
}

/// A name in an open directory beneath the root.
struct Spot {
    directory: OwnedFd,
    name: CString,
}

fn invalid(name: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::InvalidRequest, format!("entry {}: {why}", name.display()))
}

impl Unpack {
    fn all(&self, body: &mut Body) -> Answer<()> {
        // Without the cause, which would quote the archive: bytes of who knows what.
        let broken_archive = |_quotes_it: io::Error| {
            Failure::new(FailureKind::InvalidRequest, "this is no tar archive, or a damaged one")
        };
        let header_left = Rc::new(Cell::new(None));
        let mut archive = Archive::new(BoundedBody { body, header_left: Rc::clone(&header_left) });
        let mut entries = archive.entries().map_err(broken_archive)?;
        loop {
            header_left.set(Some(MAX_HEADER_BYTES));
            let Some(entry) = entries.next() else { return Ok(()) };
            header_left.set(None);
            let mut entry = entry.map_err(broken_archive)?;
            self.take_sparse(&entry)?;
            self.one(&mut entry)?;
            // What is left of the entry is not part of the next one's header.
            io::copy(&mut self.awaited(&mut entry), &mut io::sink()).map_err(broken_archive)?;
        }
    }

    /// Counts a sparse file, whatever becomes of it: what is not unpacked is read too.
    fn take_sparse(&self, entry: &Entry<'_, BoundedBody<'_>>) -> Answer<()> {
        if !entry.header().entry_type().is_gnu_sparse() {
            return Ok(());
        }
        let left = self.sparse_left.get().checked_sub(entry.size()).ok_or_else(|| {
            let message = format!("the archive's sparse files have more than {MAX_SPARSE_BYTES} bytes");
            Failure::new(FailureKind::LimitReached, message)
        })?;
        self.sparse_left.set(left);
        Ok(())
    }

    fn awaited<'a, R>(&'a self, source: &'a mut R) -> Awaited<'a, R> {
        Awaited { source, cancel: &self.cancel }
    }

    fn one(&self, entry: &mut Entry<'_, BoundedBody<'_>>) -> Answer<()> {
        let name = Path::new(OsStr::from_bytes(&entry.path_bytes())).to_owned();
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let Some(spot) = self.spot(&name)? else { return Ok(()) };
        let failed = |error: io::Error| failure(format!("could not unpack {}", name.display()), error);
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(entry, &spot).map_err(failed)
            }
            EntryType::Directory => self.directory(entry, &spot).map_err(failed),
            EntryType::Symlink => {
                let target =
                    entry.link_name_bytes().ok_or_else(|| invalid(&name, "a symlink without a target"))?;
                clear(&spot).map_err(|error| failed(error.into()))?;
                rustix::fs::symlinkat(OsStr::from_bytes(&target), &spot.directory, &spot.name)
                    .map_err(|error| failed(error.into()))?;
                self.own(entry, &spot).map_err(failed)
            }
            EntryType::Link => {
                let target =
                    entry.link_name_bytes().ok_or_else(|| invalid(&name, "a link without a target"))?;
                let target = Path::new(OsStr::from_bytes(&target)).to_owned();
                let target =
                    self.spot(&target)?.ok_or_else(|| invalid(&name, "a link to the directory itself"))?;
                clear(&spot).map_err(|error| failed(error.into()))?;
                let flags = AtFlags::empty();
                rustix::fs::linkat(&target.directory, &target.name, &spot.directory, &spot.name, flags)
                    .map_err(|error| failed(error.into()))
            }
            EntryType::Fifo => {
                clear(&spot).map_err(|error| failed(error.into()))?;
                rustix::fs::mkfifoat(&spot.directory, &spot.name, self.mode(entry).map_err(failed)?)
                    .map_err(|error| failed(error.into()))?;
                self.own(entry, &spot).map_err(failed)
            }
            EntryType::Block | EntryType::Char => Err(invalid(&name, "devices are not unpacked")),
            other => Err(invalid(&name, format!("unknown kind {other:?}"))),
        }
    }

    /// Where an entry goes; missing directories are made. `None` for the root itself.
    fn spot(&self, name: &Path) -> Answer<Option<Spot>> {
        let mut parts = Vec::new();
        for component in name.components() {
            match component {
                Component::Normal(part) => parts.push(c_name(part)?),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return Err(invalid(name, "an absolute name")),
                Component::ParentDir => return Err(invalid(name, "a name with ..")),
            }
        }
        let Some(last) = parts.pop() else { return Ok(None) };
        let mut directory = self.root.try_clone().map_err(|error| failure("could not unpack", error))?;
        let mut beneath = Vec::new();
        for part in &parts {
            beneath.extend_from_slice(part.as_bytes());
            directory = self.enter(&directory, part, &beneath).map_err(|error| match error {
                Errno::XDEV | Errno::LOOP => invalid(name, "its path leaves the directory"),
                error => failure(format!("could not unpack {}", name.display()), error),
            })?;
            beneath.push(b'/');
        }
        Ok(Some(Spot { directory, name: last }))
    }

    /// Opens one directory on an entry's path. `beneath` is the whole path so far: a symlink on it may lead elsewhere in the
    /// root, never out of it.
    fn enter(&self, directory: &OwnedFd, part: &CString, beneath: &[u8]) -> Result<OwnedFd, Errno> {
        match rustix::fs::mkdirat(directory, part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = if self.is_root { ResolveFlags::IN_ROOT } else { ResolveFlags::BENEATH };
        let resolve = resolve | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.root, beneath, flags, Mode::empty(), resolve) {
            // Where the call is missing or forbidden: no symlinks at all.
            Err(Errno::NOSYS | Errno::PERM) => {
                rustix::fs::openat(directory, part, flags | OFlags::NOFOLLOW, Mode::empty())
            }
            result => result,
        }
    }

    fn file(&self, entry: &mut Entry<'_, BoundedBody<'_>>, spot: &Spot) -> io::Result<()> {
        clear(spot)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | QUIET;
        let fd = rustix::fs::openat(&spot.directory, &spot.name, flags, Mode::RUSR | Mode::WUSR)?;
        let file = std::fs::File::from(fd);
        copy_sparsely(&mut self.awaited(entry), &file)?;
        self.finish(entry, &file)
    }

    fn directory(&self, entry: &Entry<'_, BoundedBody<'_>>, spot: &Spot) -> io::Result<()> {
        match rustix::fs::mkdirat(&spot.directory, &spot.name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let stat = rustix::fs::statat(&spot.directory, &spot.name, AtFlags::SYMLINK_NOFOLLOW)?;
                // A symlink to a directory stays, as in `tar --keep-directory-symlink`: its target is not ours to change.
                if super::entry::kind_of(&stat) == rustix::fs::FileType::Symlink {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | QUIET;
        let directory = rustix::fs::openat(&spot.directory, &spot.name, flags, Mode::empty())?;
        self.finish(entry, directory)
    }

    /// Owner first: changing it takes the setuid bit away.
    fn finish(&self, entry: &Entry<'_, BoundedBody<'_>>, file: impl AsFd) -> io::Result<()> {
        if let Some((uid, gid)) = self.ids(entry)? {
            rustix::fs::fchown(file.as_fd(), Some(uid), Some(gid))?;
        }
        rustix::fs::fchmod(file.as_fd(), self.mode(entry)?)?;
        let seconds = entry.header().mtime().ok().and_then(|time| i64::try_from(time).ok()).unwrap_or(0);
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        // A time that the file system cannot hold is no reason to refuse a file.
        rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time }).ok();
        Ok(())
    }

    /// The owner of what is no file or directory.
    fn own(&self, entry: &Entry<'_, BoundedBody<'_>>, spot: &Spot) -> io::Result<()> {
        if let Some((uid, gid)) = self.ids(entry)? {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(&spot.directory, &spot.name, Some(uid), Some(gid), flags)?;
        }
        Ok(())
    }

    fn ids(&self, entry: &Entry<'_, BoundedBody<'_>>) -> io::Result<Option<(Uid, Gid)>> {
        if !self.keep_ids {
            return Ok(None);
        }
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX).ok_or(Errno::INVAL);
        let (uid, gid) = (id(entry.header().uid()?)?, id(entry.header().gid()?)?);
        Ok(Some((Uid::from_raw(uid), Gid::from_raw(gid))))
    }

    /// The setuid and setgid bits lend the rights of an owner. Where the owner is not kept but becomes root, they would lend
    /// root's, which nobody meant.
    fn mode(&self, entry: &Entry<'_, BoundedBody<'_>>) -> io::Result<Mode> {
        let mask = if self.keep_ids { 0o7777 } else { 0o1777 };
        Ok(Mode::from_raw_mode(entry.header().mode()? & mask))
    }
}

/// Takes away what stands where an entry goes, so that nothing is written through a symlink or into a shared file.
fn clear(spot: &Spot) -> Result<(), Errno> {
    match rustix::fs::unlinkat(&spot.directory, &spot.name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}
