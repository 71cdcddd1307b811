//! `TarIn`: a tar stream into a directory, and nowhere else.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use archive::{Content, Format, Kind, Member, Part, ReadLimits, Reader, names, write_sparsely};
use guest_protocol::{Failure, FailureKind, Response};
use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Timestamps, Uid},
    io::Errno,
};

use super::{
    Answer, Cancel, absolute,
    charged::Body,
    entry::{QUIET, open_directory},
    failure,
};

/// Limits on what the archive's reader holds in memory.
const READ_LIMITS: ReadLimits = ReadLimits { header_bytes: 256 * 1024, parts: 128 * 1024 };
/// Sizes of one archive's sparse files together. Holes take no room, but whoever reads the files counts through them.
const MAX_SPARSE_BYTES: u64 = 4 << 40;
/// Longest path, by the kernel.
const MAX_PATH_BYTES: usize = 4096;

pub(super) fn unpack(path: &str, keep_ids: bool, body: &mut Body, cancel: Cancel) -> Answer {
    let root = absolute(path).and_then(|path| open_directory(&path))?;
    let is_root = Path::new(path).parent().is_none();
    Unpack { root, is_root, keep_ids, cancel }.all(body)?;
    // What follows the archive is padding.
    let failed = |error| failure(format!("could not unpack into {path}"), error);
    while body.piece().map_err(failed)?.is_some() {}
    Ok(Response::Written { bytes: body.total })
}

struct Unpack {
    root: OwnedFd,
    /// Whether it is the root of everything, which nothing can leave.
    is_root: bool,
    keep_ids: bool,
    cancel: Cancel,
}

/// A name in an open directory beneath the root.
struct Spot {
    directory: OwnedFd,
    name: CString,
}

fn invalid(member: &Member, why: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::InvalidRequest, format!("entry {}: {why}", member.shown()))
}

impl Unpack {
    fn all(&self, body: &mut Body) -> Answer<()> {
        let mut reader = Reader::new(body, Format::Any, READ_LIMITS);
        let mut sparse_left = MAX_SPARSE_BYTES;
        loop {
            // Without the cause, which is of no use to whoever sent something else than an archive.
            let next = reader.next().map_err(|_damaged| {
                Failure::new(FailureKind::InvalidRequest, "this is not a tar archive, or a damaged one")
            });
            let Some(member) = next? else { return Ok(()) };
            if let Kind::File(content) = &member.kind
                && content.has_holes()
            {
                check_parts(&member, content)?;
                sparse_left = sparse_left.checked_sub(content.size).ok_or_else(|| {
                    let message =
                        format!("the archive's sparse files have more than {MAX_SPARSE_BYTES} bytes");
                    Failure::new(FailureKind::LimitReached, message)
                })?;
            }
            self.one(&member, &mut reader)?;
        }
    }

    fn one(&self, member: &Member, reader: &mut Reader<&mut Body>) -> Answer<()> {
        let Some(spot) = self.spot(member, &member.path)? else { return Ok(()) };
        let failed = |error: io::Error| failure(format!("could not unpack {}", member.shown()), error);
        let made = match &member.kind {
            Kind::File(content) => self.file(member, content, reader, &spot),
            Kind::Directory => self.directory(member, &spot),
            Kind::Symlink { target } if target.is_empty() => {
                return Err(invalid(member, "a symlink without a target"));
            }
            Kind::Symlink { target } => clear(&spot)
                .and_then(|()| rustix::fs::symlinkat(target.as_slice(), &spot.directory, &spot.name))
                .map_err(io::Error::from)
                .and_then(|()| self.own(member, &spot)),
            Kind::HardLink { target } => {
                let target = self
                    .spot(member, target)?
                    .ok_or_else(|| invalid(member, "a link to the directory itself"))?;
                let flags = AtFlags::empty();
                clear(&spot)
                    .and_then(|()| {
                        let (from, to) = (&target.directory, &spot.directory);
                        rustix::fs::linkat(from, &target.name, to, &spot.name, flags)
                    })
                    .map_err(io::Error::from)
            }
            Kind::Fifo => clear(&spot)
                .and_then(|()| rustix::fs::mkfifoat(&spot.directory, &spot.name, self.mode(member)))
                .map_err(io::Error::from)
                .and_then(|()| self.own(member, &spot)),
            Kind::Device | Kind::Whiteout => return Err(invalid(member, "devices are not unpacked")),
            Kind::Socket => return Err(invalid(member, "sockets are not unpacked")),
            Kind::Unknown(kind) => {
                return Err(invalid(member, format!("unknown kind {:?}", char::from(*kind))));
            }
        };
        made.map_err(failed)
    }

    /// Where an entry, or what it links to, goes; missing directories are made. `None` for the root itself.
    fn spot(&self, member: &Member, path: &[u8]) -> Answer<Option<Spot>> {
        let names = names(path, MAX_PATH_BYTES).map_err(|why| invalid(member, why))?;
        let mut parts = names
            .into_iter()
            .map(|name| CString::new(name).map_err(|why| invalid(member, why)))
            .collect::<Answer<Vec<_>>>()?;
        let Some(last) = parts.pop() else { return Ok(None) };
        let mut directory = self.root.try_clone().map_err(|error| failure("could not unpack", error))?;
        let mut beneath = Vec::new();
        for part in &parts {
            beneath.extend_from_slice(part.as_bytes());
            directory = self.enter(&directory, part, &beneath).map_err(|error| match error {
                Errno::XDEV | Errno::LOOP => invalid(member, "its path leaves the directory"),
                error => failure(format!("could not unpack {}", member.shown()), error),
            })?;
            beneath.push(b'/');
        }
        Ok(Some(Spot { directory, name: last }))
    }

    /// Opens one directory on an entry's path. `beneath` is the whole path so far: a symlink on it may lead elsewhere
    /// in the root, never out of it.
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

    /// Zeros become holes, whether the archive says so or has them all.
    fn file(
        &self,
        member: &Member,
        content: &Content,
        reader: &mut Reader<&mut Body>,
        spot: &Spot,
    ) -> io::Result<()> {
        clear(spot)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | QUIET;
        let fd = rustix::fs::openat(&spot.directory, &spot.name, flags, Mode::RUSR | Mode::WUSR)?;
        let file = File::from(fd);
        reader.content(content, |at, bytes| {
            self.cancel.check().map_err(io::Error::other)?;
            write_sparsely(&file, at, bytes)
        })?;
        // What ends with a hole has no last byte that was written.
        file.set_len(content.size)?;
        self.finish(member, &file)
    }

    fn directory(&self, member: &Member, spot: &Spot) -> io::Result<()> {
        match rustix::fs::mkdirat(&spot.directory, &spot.name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let stat = rustix::fs::statat(&spot.directory, &spot.name, AtFlags::SYMLINK_NOFOLLOW)?;
                // A symlink to a directory stays, as in `tar --keep-directory-symlink`: we must not change its target.
                if super::entry::kind_of(&stat) == rustix::fs::FileType::Symlink {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | QUIET;
        let directory = rustix::fs::openat(&spot.directory, &spot.name, flags, Mode::empty())?;
        self.finish(member, directory)
    }

    /// Owner first: changing it takes the setuid bit away.
    fn finish(&self, member: &Member, file: impl AsFd) -> io::Result<()> {
        if let Some((uid, gid)) = self.ids(member)? {
            rustix::fs::fchown(file.as_fd(), Some(uid), Some(gid))?;
        }
        rustix::fs::fchmod(file.as_fd(), self.mode(member))?;
        let time = member.mtime;
        // A time that the file system cannot hold is no reason to refuse a file.
        rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time }).ok();
        Ok(())
    }

    /// The owner of what is no file or directory.
    fn own(&self, member: &Member, spot: &Spot) -> io::Result<()> {
        if let Some((uid, gid)) = self.ids(member)? {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(&spot.directory, &spot.name, Some(uid), Some(gid), flags)?;
        }
        Ok(())
    }

    fn ids(&self, member: &Member) -> io::Result<Option<(Uid, Gid)>> {
        if !self.keep_ids {
            return Ok(None);
        }
        let (uid, gid) = member.owner().ok_or(Errno::INVAL)?;
        Ok(Some((Uid::from_raw(uid), Gid::from_raw(gid))))
    }

    /// The setuid and setgid bits lend the rights of an owner. Where the owner is not kept but becomes root, they would
    /// lend root's, which nobody meant.
    fn mode(&self, member: &Member) -> Mode {
        let mask = if self.keep_ids { 0o7777 } else { 0o1777 };
        Mode::from_raw_mode(member.mode & mask)
    }
}

/// All parts but the last must be whole blocks, as everybody writes them: whoever counts what an archive takes by its
/// length could be led astray by many files' worth of single bytes.
fn check_parts(member: &Member, content: &Content) -> Answer<()> {
    let (_, parts) = content.parts.split_last().unwrap_or((&Part { offset: 0, length: 0 }, &[]));
    match parts.iter().all(|part| part.length % archive::BLOCK as u64 == 0) {
        true => Ok(()),
        false => Err(invalid(member, "a sparse file whose parts are not whole blocks")),
    }
}

/// Takes away what stands where an entry goes, so that nothing is written through a symlink or into a shared file.
fn clear(spot: &Spot) -> Result<(), Errno> {
    match rustix::fs::unlinkat(&spot.directory, &spot.name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}
