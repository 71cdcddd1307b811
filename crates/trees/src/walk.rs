//! Walks a tree from its top to its bottom, every directory in the order of its names.
//!
//! Held at a time: the remaining names of the directories on the way down, and a bounded number of descriptors.

use std::{
    ffi::{CStr, CString},
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, fstat, openat, statat},
    io::Errno,
};

use crate::{
    error::{Error, Result},
    ladder::{DIRECTORY, Ladder},
};

/// Buffer for one reading of a directory.
const LISTING_BYTES: usize = 32 * 1024;
/// Most bytes of a path shown in an error.
const MAX_SHOWN_BYTES: usize = 1024;

/// The next event of the walk.
#[derive(Debug)]
pub(crate) enum Step {
    /// A directory: its contents follow, until it is left.
    Enter {
        name: CString,
        stat: Stat,
    },
    /// Everything in it was seen.
    Leave {
        directory: OwnedFd,
        stat: Stat,
    },
    File {
        name: CString,
        file: OwnedFd,
        stat: Stat,
    },
    Link {
        name: CString,
        stat: Stat,
    },
    Fifo {
        name: CString,
        stat: Stat,
    },
    Socket {
        name: CString,
        stat: Stat,
    },
    Whiteout {
        name: CString,
    },
    /// Left out of every tree.
    Device,
}

#[derive(Debug)]
struct Level {
    name: CString,
    stat: Stat,
    names: Names,
}

/// Names of one directory, the next one last.
type Names = Vec<(CString, FileType)>;

#[derive(Debug)]
pub(crate) struct Walk<'a> {
    ladder: Ladder<'a>,
    top_names: Names,
    levels: Vec<Level>,
    listing: Vec<u8>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(top: BorrowedFd<'a>) -> Result<Self> {
        // A descriptor of our own: the caller's may already have been read from.
        let mut listing = Vec::with_capacity(LISTING_BYTES);
        let top_names = openat(top, c".", DIRECTORY, Mode::empty())
            .and_then(|directory| names_in(&directory, &mut listing))
            .map_err(|errno| Error::io("list", ".".to_owned(), errno))?;
        Ok(Self { ladder: Ladder::new(top), top_names, levels: Vec::new(), listing })
    }

    /// The directory of the last entry (after an enter, the entered one).
    pub(crate) fn here(&self) -> BorrowedFd<'_> {
        self.ladder.here()
    }

    /// The path of a name in the current directory, for people.
    pub(crate) fn shown(&self, name: Option<&CStr>) -> String {
        let names = self.levels.iter().map(|level| level.name.as_c_str()).chain(name);
        let mut path = Vec::new();
        for name in names {
            if path.len() > MAX_SHOWN_BYTES {
                path.extend_from_slice(b"/...");
                break;
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.to_bytes());
        }
        String::from_utf8_lossy(&path).into_owned()
    }

    pub(crate) fn failed(&self, act: &str, name: &CStr, errno: Errno) -> Error {
        Error::io(act, self.shown(Some(name)), errno)
    }

    pub(crate) fn next(&mut self) -> Result<Option<Step>> {
        loop {
            let names = self.levels.last_mut().map_or(&mut self.top_names, |level| &mut level.names);
            let Some((name, hint)) = names.pop() else {
                return self.leave();
            };
            match self.look(&name, hint) {
                Ok(DirectoryEntry::Directory(directory, stat)) => {
                    return self.enter(name, directory, stat).map(Some);
                }
                Ok(DirectoryEntry::File(file, stat)) => return Ok(Some(Step::File { name, file, stat })),
                Ok(DirectoryEntry::Other(stat)) => return Ok(Some(other(name, stat))),
                // It was removed meanwhile.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.failed("open", &name, errno)),
            }
        }
    }

    fn enter(&mut self, name: CString, directory: OwnedFd, stat: Stat) -> Result<Step> {
        let names =
            names_in(&directory, &mut self.listing).map_err(|errno| self.failed("list", &name, errno))?;
        self.ladder.down(directory).map_err(|errno| self.failed("look at", &name, errno))?;
        self.levels.push(Level { name: name.clone(), stat, names });
        Ok(Step::Enter { name, stat })
    }

    fn leave(&mut self) -> Result<Option<Step>> {
        let Some(level) = self.levels.pop() else { return Ok(None) };
        match self.ladder.up() {
            Ok(Some(directory)) => Ok(Some(Step::Leave { directory, stat: level.stat })),
            Ok(None) | Err(Errno::NOENT) => Err(Error::Changed { path: self.shown(Some(&level.name)) }),
            Err(errno) => Err(self.failed("leave", &level.name, errno)),
        }
    }

    /// Opens the entry by the listing's type, or by its actual type if that has changed.
    fn look(&self, name: &CStr, hint: FileType) -> Result<DirectoryEntry, Errno> {
        look_at(self.here(), name, hint)
    }
}

#[derive(Debug)]
pub(crate) enum DirectoryEntry {
    Directory(OwnedFd, Stat),
    File(OwnedFd, Stat),
    Other(Stat),
}

/// Opens files and directories, and only stats everything else.
pub(crate) fn look_at(parent: BorrowedFd<'_>, name: &CStr, hint: FileType) -> Result<DirectoryEntry, Errno> {
    let by_hint = match hint {
        FileType::Directory => open_directory(parent, name),
        FileType::RegularFile => open_file(parent, name),
        _ => Err(Errno::LOOP),
    };
    match by_hint {
        // It is, or may be, something else than the hint says.
        Err(Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP) => {}
        found => return found,
    }
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => open_directory(parent, name),
        FileType::RegularFile => open_file(parent, name),
        _ => Ok(DirectoryEntry::Other(stat)),
    }
}

fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<DirectoryEntry, Errno> {
    let directory = openat(parent, name, DIRECTORY, Mode::empty())?;
    let stat = fstat(&directory)?;
    Ok(DirectoryEntry::Directory(directory, stat))
}

fn open_file(parent: BorrowedFd<'_>, name: &CStr) -> Result<DirectoryEntry, Errno> {
    // Whatever replaced the file since it was checked is neither waited for nor made our terminal.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(parent, name, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(DirectoryEntry::File(file, stat)),
        FileType::Directory => open_directory(parent, name),
        _ => Ok(DirectoryEntry::Other(stat)),
    }
}

fn other(name: CString, stat: Stat) -> Step {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Step::Link { name, stat },
        FileType::Fifo => Step::Fifo { name, stat },
        FileType::Socket => Step::Socket { name, stat },
        _ if is_whiteout(&stat) => Step::Whiteout { name },
        _ => Step::Device,
    }
}

pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// The names in a directory, in descending order, so that the first is popped first.
pub(crate) fn names_in(directory: &OwnedFd, listing: &mut Vec<u8>) -> Result<Names, Errno> {
    listing.clear();
    let mut names = Vec::new();
    let mut entries = RawDir::new(directory, listing.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    names.sort_unstable_by(|one, other| other.0.cmp(&one.0));
    Ok(names)
}
