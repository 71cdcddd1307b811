//! Copies a tree, with everything that is kept of a tree.
//!
//! File systems that can share blocks between files (`FICLONE`) copy no bytes. On others the written parts are copied
//! inside the kernel and holes stay holes. Files with several names have as many in the copy: while names are still to
//! come, the file waits under a number in a directory of its own, since the way back to an earlier name may be longer
//! than a path can be. Directories get their owner, mode and lists when they are complete, so that these neither lock
//! us out nor are inherited.

mod data;
mod pool;

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, Stat, chmodat, chownat, linkat, mkdirat, mknodat, openat, renameat,
        unlinkat, utimensat,
    },
    io::Errno,
};

pub(crate) use self::data::write_all_at;
use self::{data::Ways, pool::Pool};
use crate::{
    attributes::{Attribute, Attributes, Reader, Us},
    error::{Error, Result},
    ladder::{DIRECTORY, Identity, Ladder, identity},
    walk::{Step, Walk},
};

/// Files of at least this size are copied by other threads than the walking one. Below it, handing over costs more than
/// it saves.
const LARGE_BYTES: u64 = 256 * 1024;

/// The result of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Sum of the lengths of the files.
    pub bytes: u64,
    /// The part of `bytes` that both trees share on disk.
    pub shared_bytes: u64,
    pub n_entries: u64,
    /// Device nodes that were left out.
    pub n_devices: u64,
}

/// Copies the content of the directory `from` into the empty directory `into`, which nobody else changes meanwhile.
/// Nothing is synced. After an error `into` contains a part of it and must be discarded.
pub fn copy(from: BorrowedFd<'_>, into: BorrowedFd<'_>) -> Result<Copied> {
    let ways = Ways::default();
    let mut copied = std::thread::scope(|scope| {
        let mut copy = Copy {
            walk: Walk::new(from)?,
            target: Ladder::new(into),
            into,
            waiting: Waiting::default(),
            reader: Reader::default(),
            us: Us::find(),
            copied: Copied::default(),
            pool: Pool::new(scope, &ways),
            ways: &ways,
            buffer: Vec::new(),
        };
        let walked = copy.run();
        copy.waiting.clear(into)?;
        let pooled = copy.pool.finish();
        walked.and(pooled).map(|()| copy.copied)
    })?;
    copied.shared_bytes = ways.shared_bytes();
    Ok(copied)
}

/// Gives a directory the owner, mode, time and attributes of another.
pub fn copy_attributes(from: BorrowedFd<'_>, into: BorrowedFd<'_>) -> Result<()> {
    let failed = |act: &str, errno| Error::io(act, ".".to_owned(), errno);
    let stat = rustix::fs::fstat(from).map_err(|errno| failed("look at", errno))?;
    let extended = Reader::default().read(from).map_err(|errno| failed("read the attributes of", errno))?;
    Attributes::of(&stat).set(into, &extended, Us::find()).map_err(|(act, errno)| failed(act, errno))
}

struct Copy<'scope, 'env, 'a> {
    walk: Walk<'a>,
    target: Ladder<'a>,
    into: BorrowedFd<'a>,
    waiting: Waiting,
    reader: Reader,
    us: Us,
    copied: Copied,
    pool: Pool<'scope, 'env>,
    ways: &'env Ways,
    buffer: Vec<u8>,
}

impl Copy<'_, '_, '_> {
    fn run(&mut self) -> Result<()> {
        while let Some(step) = self.walk.next()? {
            self.copied.n_entries += u64::from(!matches!(step, Step::Leave { .. } | Step::Device));
            match step {
                Step::Enter { name, .. } => self.enter(&name)?,
                Step::Leave { directory, stat } => self.leave(directory, &stat)?,
                Step::File { name, file, stat } => self.file(name, file, &stat)?,
                Step::Link { name, stat } => self.with_names(&name, &stat, Self::symlink)?,
                Step::Fifo { name, stat } => {
                    self.with_names(&name, &stat, |copy, name, stat| copy.node(name, stat, FileType::Fifo))?;
                }
                Step::Socket { name, stat } => {
                    self.with_names(&name, &stat, |copy, name, stat| {
                        copy.node(name, stat, FileType::Socket)
                    })?;
                }
                Step::Whiteout { name } => make_whiteout(self.target.here(), &name)
                    .map_err(|errno| self.walk.failed("make the whiteout", &name, errno))?,
                Step::Device => self.copied.n_devices += 1,
            }
        }
        Ok(())
    }

    fn enter(&mut self, name: &CStr) -> Result<()> {
        let failed = |act| move |errno| Error::io(act, name.to_string_lossy().into_owned(), errno);
        let here = self.target.here();
        mkdirat(here, name, Mode::RWXU).map_err(failed("make"))?;
        let made = openat(here, name, DIRECTORY, Mode::empty()).map_err(failed("open the copy of"))?;
        self.target.down(made).map_err(failed("look at the copy of"))
    }

    fn leave(&mut self, directory: OwnedFd, stat: &Stat) -> Result<()> {
        let shown = || self.walk.shown(None);
        let failed = |act: &str, errno| Error::io(act, shown(), errno);
        let extended = self
            .reader
            .read(std::os::fd::AsFd::as_fd(&directory))
            .map_err(|errno| failed("read the attributes of a directory in", errno))?;
        let made = self
            .target
            .up()
            .map_err(|errno| failed("leave a directory in the copy of", errno))?
            .ok_or_else(|| Error::Changed { path: shown() })?;
        Attributes::of(stat).set(&made, &extended, self.us).map_err(|(act, errno)| failed(act, errno))
    }

    fn file(&mut self, name: CString, from: OwnedFd, stat: &Stat) -> Result<()> {
        if stat.st_nlink > 1
            && self
                .waiting
                .give(self.into, self.target.here(), &name, stat)
                .map_err(|errno| self.walk.failed("link the copy of", &name, errno))?
        {
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = openat(self.target.here(), &name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| self.walk.failed("make the copy of", &name, errno))?;
        if stat.st_nlink > 1 {
            self.keep(&name, stat)?;
        }
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        self.copied.bytes += size;
        let extended = self
            .reader
            .read(std::os::fd::AsFd::as_fd(&from))
            .map_err(|errno| self.walk.failed("read the attributes of", &name, errno))?;
        let job = FileJob {
            from,
            to,
            size,
            is_sparse: is_sparse(stat),
            attributes: Attributes::of(stat),
            extended,
        };
        if size >= LARGE_BYTES {
            let shown = self.walk.shown(Some(&name));
            return self.pool.hand(job, shown, &mut self.buffer, self.us);
        }
        job.run(self.ways, &mut self.buffer, self.us)
            .map_err(|(act, errno)| self.walk.failed(act, &name, errno))
    }

    /// For entries without content: made by `make`, unless an earlier name was.
    fn with_names(
        &mut self,
        name: &CStr,
        stat: &Stat,
        make: impl FnOnce(&mut Self, &CStr, &Stat) -> Result<()>,
    ) -> Result<()> {
        if stat.st_nlink > 1
            && self
                .waiting
                .give(self.into, self.target.here(), name, stat)
                .map_err(|errno| self.walk.failed("link the copy of", name, errno))?
        {
            return Ok(());
        }
        make(self, name, stat)?;
        if stat.st_nlink > 1 { self.keep(name, stat) } else { Ok(()) }
    }

    fn keep(&mut self, name: &CStr, stat: &Stat) -> Result<()> {
        self.waiting
            .keep(self.into, self.target.here(), name, stat)
            .map_err(|errno| self.walk.failed("link the copy of", name, errno))
    }

    fn symlink(&mut self, name: &CStr, stat: &Stat) -> Result<()> {
        let failed = |act, errno| Error::io(act, self.walk.shown(Some(name)), errno);
        let target = rustix::fs::readlinkat(self.walk.here(), name, Vec::new())
            .map_err(|errno| failed("read the link", errno))?;
        rustix::fs::symlinkat(&target, self.target.here(), name)
            .map_err(|errno| failed("make the link", errno))?;
        set_by_name(self.target.here(), name, &Attributes::of(stat), self.us)
            .map_err(|(act, errno)| failed(act, errno))
    }

    fn node(&mut self, name: &CStr, stat: &Stat, kind: FileType) -> Result<()> {
        let failed = |act, errno| Error::io(act, self.walk.shown(Some(name)), errno);
        make_node(self.target.here(), name, kind, &Attributes::of(stat), self.us)
            .map_err(|(act, errno)| failed(act, errno))
    }
}

/// Makes a pipe or a socket.
pub(crate) fn make_node(
    place: BorrowedFd<'_>,
    name: &CStr,
    kind: FileType,
    attributes: &Attributes,
    us: Us,
) -> Result<(), (&'static str, Errno)> {
    mknodat(place, name, kind, Mode::RUSR | Mode::WUSR, 0).map_err(|errno| ("make", errno))?;
    set_by_name(place, name, attributes, us)?;
    // We made it, and nobody else changes this tree: the name cannot be a link.
    chmodat(place, name, Mode::from_raw_mode(attributes.mode), AtFlags::empty())
        .map_err(|errno| ("set the mode of", errno))?;
    utimensat(place, name, &attributes.times(), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| ("set the time of", errno))
}

/// Sets owner and time of an entry that cannot be opened.
pub(crate) fn set_by_name(
    place: BorrowedFd<'_>,
    name: &CStr,
    attributes: &Attributes,
    us: Us,
) -> Result<(), (&'static str, Errno)> {
    if !us.is(attributes.uid, attributes.gid) {
        let (uid, gid) = attributes.owner();
        chownat(place, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| ("give away", errno))?;
    }
    utimensat(place, name, &attributes.times(), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| ("set the time of", errno))
}

/// Everybody may make these; they are not devices.
pub(crate) fn make_whiteout(place: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    mknodat(place, name, FileType::CharacterDevice, Mode::empty(), rustix::fs::makedev(0, 0))
}

fn is_sparse(stat: &Stat) -> bool {
    stat.st_blocks.saturating_mul(512) < stat.st_size
}

/// One file to be filled and finished.
#[derive(Debug)]
struct FileJob {
    from: OwnedFd,
    to: OwnedFd,
    size: u64,
    is_sparse: bool,
    attributes: Attributes,
    extended: Vec<Attribute>,
}

impl FileJob {
    fn run(&self, ways: &Ways, buffer: &mut Vec<u8>, us: Us) -> Result<(), (&'static str, Errno)> {
        ways.copy(&self.from, &self.to, self.size, self.is_sparse, buffer)
            .map_err(|errno| ("copy", errno))?;
        self.attributes.set(&self.to, &self.extended, us)
    }
}

/// Files whose further names may come, in a directory beside the tree's own.
#[derive(Debug, Default)]
struct Waiting {
    place: Option<(CString, OwnedFd)>,
    /// The number under which a file waits, and how many of its names are still to come.
    files: HashMap<Identity, (u64, u64)>,
    next: u64,
}

impl Waiting {
    fn keep(
        &mut self,
        into: BorrowedFd<'_>,
        here: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
    ) -> Result<(), Errno> {
        let number = self.next;
        self.next += 1;
        linkat(here, name, self.place(into)?, &numbered(number)?, AtFlags::empty())?;
        self.files.insert(identity(stat), (number, links(stat).saturating_sub(1)));
        Ok(())
    }

    /// Gives a waiting file one more name; false if it is not waiting.
    fn give(
        &mut self,
        into: BorrowedFd<'_>,
        here: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
    ) -> Result<bool, Errno> {
        let Some((number, left)) = self.files.get_mut(&identity(stat)) else { return Ok(false) };
        *left = left.saturating_sub(1);
        let (number, is_last) = (numbered(*number)?, *left == 0);
        let place = self.place(into)?;
        if is_last {
            // Renamed, so that the copy never has more names than the file had: their number is limited.
            renameat(place, &number, here, name)?;
            self.files.remove(&identity(stat));
        } else {
            linkat(place, &number, here, name, AtFlags::empty())?;
        }
        Ok(true)
    }

    fn place(&mut self, into: BorrowedFd<'_>) -> Result<&OwnedFd, Errno> {
        if self.place.is_none() {
            let mut number = 0_u32;
            let name = loop {
                let name = CString::new(format!(".linked-{number}")).map_err(|_nul| Errno::INVAL)?;
                match mkdirat(into, &name, Mode::RWXU) {
                    Err(Errno::EXIST) => number += 1,
                    made => break made.map(|()| name),
                }
            }?;
            let opened = openat(into, &name, DIRECTORY, Mode::empty())?;
            self.place = Some((name, opened));
        }
        self.place.as_ref().map(|(_, place)| place).ok_or(Errno::NOENT)
    }

    /// Removes the files still waiting: those with names outside the tree.
    fn clear(&mut self, into: BorrowedFd<'_>) -> Result<()> {
        let Some((name, place)) = self.place.take() else { return Ok(()) };
        let cleared = || {
            for (number, _) in self.files.values() {
                unlinkat(&place, &numbered(*number)?, AtFlags::empty())?;
            }
            unlinkat(into, &name, AtFlags::REMOVEDIR)
        };
        cleared().map_err(|errno| Error::io("clear", name.to_string_lossy().into_owned(), errno))
    }
}

fn numbered(number: u64) -> Result<CString, Errno> {
    CString::new(number.to_string()).map_err(|_nul| Errno::INVAL)
}

#[expect(clippy::unnecessary_cast, reason = "the widths of these fields differ between architectures")]
fn links(stat: &Stat) -> u64 {
    stat.st_nlink as u64
}
