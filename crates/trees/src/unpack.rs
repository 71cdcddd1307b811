//! An archive as a tree, for archives that may be hostile.
//!
//! Members must come in the order in which trees are walked. So every one lies in the directory that the last one lies
//! in, or opened, or in one above it, all of which we made ourselves: no path of the archive is ever looked up, but for
//! the targets of hard links, and those without following any link.

use std::{
    ffi::CString,
    io::{BufReader, Read},
    os::fd::{BorrowedFd, OwnedFd},
};

use archive::{Format, Kind, MAX_HEADER_BYTES, Member, ReadLimits, Reader, names, shown};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, linkat, mkdirat, openat, statat, symlinkat};

use crate::{
    MAX_PARTS, MAX_PATH_BYTES,
    attributes::{Attribute, Attributes, Us, is_kept},
    copy::{make_node, make_whiteout, set_by_name, write_all_at},
    error::{Error, Result},
    ladder::{DIRECTORY, Ladder},
    reach,
};

const BUFFER_BYTES: usize = 256 * 1024;
/// Most bytes of attributes that are held for directories which are not finished.
const MAX_HELD_BYTES: usize = 64 * 1024 * 1024;

/// The limits of one archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    pub max_entries: u64,
    /// Most bytes of content, holes not counted.
    pub max_bytes: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        Self { max_entries: 4_000_000, max_bytes: 256 * 1024 * 1024 * 1024 }
    }
}

/// Makes the tree that `archive` holds in the empty directory `into`, which nobody else changes meanwhile. On error
/// `into` holds a part of it and is to be thrown away. Nothing is synced.
pub fn unpack(archive: impl Read, into: BorrowedFd<'_>, limits: &UnpackLimits) -> Result<()> {
    let archive = BufReader::with_capacity(BUFFER_BYTES, archive);
    let read_limits = ReadLimits { header_bytes: MAX_HEADER_BYTES, parts: MAX_PARTS };
    let mut reader = Reader::new(archive, Format::Own, read_limits);
    let mut writer = Writer {
        ladder: Ladder::new(into),
        into,
        levels: Vec::new(),
        last: Vec::new(),
        us: Us::find(),
        held: 0,
        n_entries: 0,
        bytes: 0,
        limits,
    };
    while let Some(member) = reader.next()? {
        writer.add(member, &mut reader)?;
    }
    while !writer.levels.is_empty() {
        writer.leave()?;
    }
    Ok(())
}

/// A directory that is being filled; it gets what it is to have when everything is in it.
#[derive(Debug)]
struct Level {
    name: Vec<u8>,
    /// The name in it that came last.
    last: Vec<u8>,
    attributes: Attributes,
    extended: Vec<Attribute>,
}

struct Writer<'a> {
    ladder: Ladder<'a>,
    into: BorrowedFd<'a>,
    levels: Vec<Level>,
    /// The name at the top that came last.
    last: Vec<u8>,
    us: Us,
    /// Bytes of attributes in `levels`.
    held: usize,
    n_entries: u64,
    bytes: u64,
    limits: &'a UnpackLimits,
}

impl Writer<'_> {
    fn add<R: std::io::BufRead>(&mut self, member: Member, reader: &mut Reader<R>) -> Result<()> {
        self.count(&member)?;
        let refused = |why: &str| Error::Refused { entry: member.shown(), why: why.to_owned() };
        let names = names_of(&member.path).map_err(|why| refused(&why))?;
        let attributes = attributes_of(&member).ok_or_else(|| refused("its owner cannot be"))?;
        let Some((&name, parents)) = names.split_last() else { return Err(refused("it has no name")) };
        self.go_to(parents).map_err(|error| {
            error.unwrap_or_else(|| refused("it does not lie in a directory that came before it"))
        })?;
        let last = self.levels.last_mut().map_or(&mut self.last, |level| &mut level.last);
        if name <= last.as_slice() {
            return Err(refused("it comes again, or out of order"));
        }
        name.clone_into(last);
        if let Some((name, _)) = member.attributes.iter().find(|(name, value)| !is_kept(name, value)) {
            return Err(refused(&format!("it has the attribute {:?}", String::from_utf8_lossy(name))));
        }
        let name = CString::new(name).map_err(|_nul| refused("its name holds a zero byte"))?;
        self.make(&name, &member, &attributes, reader)?;
        if member.kind == Kind::Directory {
            let extended = member.attributes;
            self.held += length_of(&extended);
            if self.held > MAX_HELD_BYTES {
                return Err(Error::TooLarge {
                    what: "the length of the attributes of directories in each other".to_owned(),
                    limit: "MAX_HELD_BYTES".to_owned(),
                    most: MAX_HELD_BYTES as u64,
                });
            }
            self.levels.push(Level { name: name.into_bytes(), last: Vec::new(), attributes, extended });
        }
        Ok(())
    }

    fn count(&mut self, member: &Member) -> Result<()> {
        self.n_entries += 1;
        if let Kind::File(content) = &member.kind {
            self.bytes = self.bytes.saturating_add(content.stored());
        }
        let too_large = |what: &str, limit: &str, most| Error::TooLarge {
            what: what.to_owned(),
            limit: limit.to_owned(),
            most,
        };
        if self.n_entries > self.limits.max_entries {
            return Err(too_large("the number of entries", "max_entries", self.limits.max_entries));
        }
        if self.bytes > self.limits.max_bytes {
            return Err(too_large("the content", "max_bytes", self.limits.max_bytes));
        }
        Ok(())
    }

    /// Goes up to the directory at `parents`. The error is empty where it is not above us.
    fn go_to(&mut self, parents: &[&[u8]]) -> Result<(), Option<Error>> {
        while self.levels.len() > parents.len() {
            self.leave().map_err(Some)?;
        }
        let is_here = self.levels.len() == parents.len()
            && self.levels.iter().zip(parents).rev().all(|(level, name)| level.name == *name);
        if is_here { Ok(()) } else { Err(None) }
    }

    fn leave(&mut self) -> Result<()> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        self.held -= length_of(&level.extended);
        let failed = |act: &str, errno| Error::io(act, shown(&level.name), errno);
        let directory = self
            .ladder
            .up()
            .map_err(|errno| failed("leave", errno))?
            .ok_or_else(|| Error::Changed { path: shown(&level.name) })?;
        level.attributes.set(&directory, &level.extended, self.us).map_err(|(act, errno)| failed(act, errno))
    }

    fn make<R: std::io::BufRead>(
        &mut self,
        name: &CString,
        member: &Member,
        attributes: &Attributes,
        reader: &mut Reader<R>,
    ) -> Result<()> {
        let failed = |act: &str, errno| Error::io(act, member.shown(), errno);
        let refused = |why: String| Error::Refused { entry: member.shown(), why };
        let here = self.ladder.here();
        match &member.kind {
            Kind::Directory => {
                mkdirat(here, name, Mode::RWXU).map_err(|errno| failed("make", errno))?;
                let made =
                    openat(here, name, DIRECTORY, Mode::empty()).map_err(|errno| failed("open", errno))?;
                self.ladder.down(made).map_err(|errno| failed("look at", errno))
            }
            Kind::File(content) => {
                let file = self.create(name, member)?;
                reader.content(content, |at, bytes| {
                    write_all_at(&file, bytes, at).map_err(|errno| failed("write", errno))
                })?;
                if content.has_holes() {
                    rustix::fs::ftruncate(&file, content.size).map_err(|errno| failed("size", errno))?;
                }
                attributes.set(&file, &member.attributes, self.us).map_err(|(act, errno)| failed(act, errno))
            }
            Kind::Symlink { target } => {
                if target.is_empty() || target.contains(&0) {
                    return Err(refused("it is a link to nothing".to_owned()));
                }
                symlinkat(target.as_slice(), here, name).map_err(|errno| failed("make", errno))?;
                set_by_name(here, name, attributes, self.us).map_err(|(act, errno)| failed(act, errno))
            }
            Kind::HardLink { target } => {
                let (place, target_name) = self.target(target, member)?;
                linkat(&place, &target_name, here, name, AtFlags::empty())
                    .map_err(|errno| failed("link", errno))
            }
            Kind::Fifo => make_node(here, name, FileType::Fifo, attributes, self.us)
                .map_err(|(act, errno)| failed(act, errno)),
            Kind::Socket => make_node(here, name, FileType::Socket, attributes, self.us)
                .map_err(|(act, errno)| failed(act, errno)),
            Kind::Whiteout => make_whiteout(here, name).map_err(|errno| failed("make the whiteout", errno)),
            Kind::Device => Err(refused("it is a device".to_owned())),
            Kind::Unknown(kind) => Err(refused(format!("its kind {:?} is unknown", char::from(*kind)))),
        }
    }

    fn create(&self, name: &CString, member: &Member) -> Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(self.ladder.here(), name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| Error::io("make", member.shown(), errno))
    }

    /// The directory and the name of a file that an earlier member made.
    fn target(&self, target: &[u8], member: &Member) -> Result<(OwnedFd, CString)> {
        let refused = |why: &str| Error::Refused {
            entry: member.shown(),
            why: format!("as a hard link to {:?}: {why}", shown(target)),
        };
        let names = names_of(target).map_err(|why| refused(&why))?;
        let Some((&name, parents)) = names.split_last() else { return Err(refused("it has no name")) };
        let name = CString::new(name).map_err(|_nul| refused("its name holds a zero byte"))?;
        let missing = || refused("it is not there before it");
        let place = reach::directory(self.into, parents).map_err(|_errno| missing())?;
        let found = statat(&place, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_errno| missing())?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => Err(refused("it is a directory")),
            FileType::CharacterDevice => Err(refused("it is a whiteout")),
            _ => Ok((place, name)),
        }
    }
}

/// A path of the archive as the names it is made of. It is written as we write it, and in no other way.
fn names_of(path: &[u8]) -> Result<Vec<&[u8]>, String> {
    let names = names(path, MAX_PATH_BYTES).map_err(|why| why.to_string())?;
    if names.join(&b'/') != path {
        return Err("its path has an empty name, or a dot for one".to_owned());
    }
    Ok(names)
}

fn attributes_of(member: &Member) -> Option<Attributes> {
    let (uid, gid) = member.owner()?;
    Some(Attributes { uid, gid, mode: member.mode, mtime: member.mtime })
}

fn length_of(extended: &[Attribute]) -> usize {
    extended.iter().map(|(name, value)| name.len() + value.len()).sum()
}
