//! Entries become files.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use archive::{Attribute, Content, Kind, Member};
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};

use super::{
    MAX_DISK_BYTES, Members, UnpackOptions, Warnings,
    feed::Source,
    members,
    tree::{Tree, customary_mode, failed, path_names},
};
use crate::error::{Error, Result};

/// A name that begins so stands for the removal of the rest of it.
const WHITEOUT: &[u8] = b".wh.";
/// The directory that holds this hides what lower layers have in it.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names of this kind are bookkeeping of file systems long gone.
const BOOKKEEPING: &[u8] = b".wh..wh.";

/// The unit in which files' space on disk is counted.
pub(super) const DISK_BLOCK: u64 = 4096;

/// Returns the bytes that a file takes on disk, in whole blocks and without its holes.
pub(super) fn blocks(content: &Content) -> u64 {
    let blocks = content.parts.iter().map(|part| part.length.checked_next_multiple_of(DISK_BLOCK));
    blocks.fold(0, |sum: u64, bytes| sum.saturating_add(bytes.unwrap_or(u64::MAX)))
}

#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) disk_bytes: u64,
    pub(super) n_entries: u64,
    pub(super) hides_lower: bool,
    pub(super) warnings: Warnings,
}

/// Attributes that a directory gets when everything is in it: its own time changes with every entry, and its mode may
/// lock us out.
#[derive(Debug)]
struct Attributes {
    mode: u32,
    owner: Option<(Uid, Gid)>,
    mtime: Option<Timespec>,
    xattrs: Vec<Attribute>,
    opaque: bool,
}

impl Attributes {
    fn of_unnamed(path: &[u8]) -> Self {
        Self { mode: customary_mode(path), owner: None, mtime: None, xattrs: Vec::new(), opaque: false }
    }
}

#[derive(Debug)]
pub(super) struct Writer<'a> {
    tree: Tree<'a>,
    root: BorrowedFd<'a>,
    options: &'a UnpackOptions,
    us: (Uid, Gid),
    directories: BTreeMap<Vec<u8>, Attributes>,
    /// Bytes of names and attributes in `directories`.
    held: u64,
    written: Written,
}

impl<'a> Writer<'a> {
    pub(super) fn new(root: BorrowedFd<'a>, options: &'a UnpackOptions) -> Self {
        let us = (rustix::process::geteuid(), rustix::process::getegid());
        Self {
            tree: Tree::new(root),
            root,
            options,
            us,
            directories: BTreeMap::from([(Vec::new(), Attributes::of_unnamed(b""))]),
            held: 0,
            written: Written::default(),
        }
    }

    pub(super) fn write_all(mut self, source: &mut Source) -> Result<Written> {
        let mut members = members(source);
        while let Some(member) = members.next()? {
            self.written.n_entries += 1;
            self.check()?;
            self.write(member, &mut members)?;
        }
        members.into_inner().drain();
        self.check()?;
        self.finish_directories()?;
        Ok(self.written)
    }

    fn check(&self) -> Result<()> {
        let too_large = |what: &str, limit: &'static str, most: u64| {
            Err(Error::TooLarge { what: what.to_owned(), limit: limit.into(), most })
        };
        // An entry far down brings directories that have none of their own.
        let n_entries = self.written.n_entries.max(self.directories.len() as u64);
        if n_entries > self.options.max_entries {
            return too_large("the number of entries in the layer", "max_entries", self.options.max_entries);
        }
        if self.held > self.options.max_directory_bytes {
            let what = "what the layer says of its directories";
            return too_large(what, "max_directory_bytes", self.options.max_directory_bytes);
        }
        if self.written.disk_bytes > self.options.max_disk_bytes {
            return too_large("the layer on disk", MAX_DISK_BYTES, self.options.max_disk_bytes);
        }
        Ok(())
    }

    fn write(&mut self, member: Member, members: &mut Members<'_>) -> Result<()> {
        let entry = || member.shown();
        let refused = |why: String| Error::Refused { entry: entry(), why };
        let names = path_names(&member.path).map_err(refused)?;
        let Some((&name, parents)) = names.split_last() else {
            return match member.kind {
                Kind::Directory => self.directory(&names, &member),
                _ => Err(refused("it would replace the root".to_owned())),
            };
        };
        if name.starts_with(WHITEOUT) {
            return self.whiteout(parents, name, &entry);
        }
        match &member.kind {
            Kind::Directory => self.directory(&names, &member),
            Kind::Device | Kind::Whiteout | Kind::Socket => {
                self.written.warnings.add(|| format!("left out the device {}", entry()));
                Ok(())
            }
            Kind::File(content) => {
                let file = self.create(parents, name, &entry)?;
                self.content(&file, content, members, &entry)?;
                self.finish_file(&file, &member)
            }
            Kind::Symlink { target } => self.symlink(parents, name, target, &member),
            Kind::HardLink { target } => self.hard_link(parents, name, target, &entry),
            Kind::Fifo => self.fifo(parents, name, &member),
            Kind::Unknown(kind) => Err(refused(format!("its kind {:?} is unknown", char::from(*kind)))),
        }
    }

    /// The directory at `names`; those missing on the way are made and remembered.
    fn place(&mut self, names: &[&[u8]], entry: &dyn Fn() -> String) -> Result<BorrowedFd<'_>> {
        let Self { tree, directories, held, written, .. } = self;
        tree.directory(names, entry, |made| {
            let path = made.join(&b'/');
            written.disk_bytes += DISK_BLOCK;
            *held += path.len() as u64;
            let attributes = Attributes::of_unnamed(&path);
            directories.insert(path, attributes);
        })
    }

    fn directory(&mut self, names: &[&[u8]], member: &Member) -> Result<()> {
        let entry = || member.shown();
        let owner = self.owner(member)?;
        let mut replaced_whiteout = false;
        if let Some((&name, parents)) = names.split_last() {
            let place = self.place(parents, &entry)?;
            // A whiteout and a directory of one name in one layer: the directory is new and has nothing of the old one.
            replaced_whiteout = kind_at(place, name, &entry)? == Some(Occupant::Whiteout);
            if replaced_whiteout {
                unlink(place, name, &entry)?;
            }
        }
        self.place(names, &entry)?;
        let attributes =
            self.directories.entry(names.join(&b'/')).or_insert_with(|| Attributes::of_unnamed(&member.path));
        let bytes_of = |xattrs: &[Attribute]| -> u64 {
            xattrs.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
        };
        self.held -= bytes_of(&attributes.xattrs);
        self.held += bytes_of(&member.attributes);
        attributes.mode = member.mode;
        attributes.owner = Some(owner);
        attributes.mtime = Some(member.mtime);
        attributes.xattrs.clone_from(&member.attributes);
        attributes.opaque |= replaced_whiteout;
        Ok(())
    }

    fn create(&mut self, parents: &[&[u8]], name: &[u8], entry: &dyn Fn() -> String) -> Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.make(parents, name, entry, |place| {
            rustix::fs::openat(place, name, flags, Mode::RUSR | Mode::WUSR)
        })
    }

    /// Makes something new at a name. What an earlier entry made there is removed first, never written through.
    fn make<T>(
        &mut self,
        parents: &[&[u8]],
        name: &[u8],
        entry: &dyn Fn() -> String,
        mut make: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T> {
        let place = self.place(parents, entry)?;
        match make(place) {
            Err(Errno::EXIST) => {
                if kind_at(place, name, entry)? == Some(Occupant::Directory) {
                    return Err(Error::Refused {
                        entry: entry(),
                        why: "an earlier entry of this name is a directory".to_owned(),
                    });
                }
                unlink(place, name, entry)?;
                make(place)
            }
            made => made,
        }
        .map_err(|errno| failed("make", entry, errno))
    }

    fn content(
        &mut self,
        file: &OwnedFd,
        content: &Content,
        members: &mut Members<'_>,
        entry: &dyn Fn() -> String,
    ) -> Result<()> {
        if content.has_holes() && content.size > self.options.max_layer_bytes {
            return Err(Error::TooLarge {
                what: format!("{:?} with its holes", entry()),
                limit: "max_layer_bytes".into(),
                most: self.options.max_layer_bytes,
            });
        }
        // Counted before it takes any room. An archive may say any number.
        self.written.disk_bytes = self.written.disk_bytes.saturating_add(blocks(content));
        self.check()?;
        members.content(content, |mut at, mut bytes| {
            while !bytes.is_empty() {
                let written =
                    rustix::io::pwrite(file, bytes, at).map_err(|errno| failed("write", entry, errno))?;
                bytes = &bytes[written..];
                at += written as u64;
            }
            Ok::<_, Error>(())
        })?;
        if content.has_holes() {
            rustix::fs::ftruncate(file, content.size).map_err(|errno| failed("size", entry, errno))?;
        }
        Ok(())
    }

    fn finish_file(&mut self, file: &OwnedFd, member: &Member) -> Result<()> {
        let entry = || member.shown();
        let owner = self.owner(member)?;
        // The order matters: a new owner takes set-user-id bits and capabilities away.
        if owner != self.us {
            let given = rustix::fs::fchown(file, Some(owner.0), Some(owner.1));
            self.note_owner(given, owner, &entry)?;
        }
        self.xattrs(file.as_fd(), &member.attributes, &entry)?;
        rustix::fs::fchmod(file, Mode::from_raw_mode(member.mode))
            .map_err(|errno| failed("set the mode of", &entry, errno))?;
        rustix::fs::futimens(file, &times(member.mtime))
            .map_err(|errno| failed("set the time of", &entry, errno))
    }

    fn symlink(&mut self, parents: &[&[u8]], name: &[u8], target: &[u8], member: &Member) -> Result<()> {
        let entry = || member.shown();
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Refused { entry: entry(), why: "it is a link to nothing".to_owned() });
        }
        self.make(parents, name, &entry, |place| rustix::fs::symlinkat(target, place, name))?;
        self.finish_by_name(parents, name, member)
    }

    fn fifo(&mut self, parents: &[&[u8]], name: &[u8], member: &Member) -> Result<()> {
        let entry = || member.shown();
        let mode = Mode::from_raw_mode(member.mode);
        self.make(parents, name, &entry, |place| rustix::fs::mkfifoat(place, name, mode))?;
        self.finish_by_name(parents, name, member)?;
        let place = self.place(parents, &entry)?;
        // It was made by us a moment ago and nobody else sees this tree: the name is still the pipe's.
        rustix::fs::chmodat(place, name, mode, AtFlags::empty())
            .map_err(|errno| failed("set the mode of", &entry, errno))
    }

    /// Owner and time of what cannot be opened.
    fn finish_by_name(&mut self, parents: &[&[u8]], name: &[u8], member: &Member) -> Result<()> {
        let entry = || member.shown();
        let owner = self.owner(member)?;
        let us = self.us;
        let place = self.place(parents, &entry)?;
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let given = if owner == us {
            Ok(())
        } else {
            rustix::fs::chownat(place, name, Some(owner.0), Some(owner.1), nofollow)
        };
        rustix::fs::utimensat(place, name, &times(member.mtime), nofollow)
            .map_err(|errno| failed("set the time of", &entry, errno))?;
        self.note_owner(given, owner, &entry)
    }

    fn hard_link(
        &mut self,
        parents: &[&[u8]],
        name: &[u8],
        target: &[u8],
        entry: &dyn Fn() -> String,
    ) -> Result<()> {
        let refused = |why: String| Error::Refused { entry: entry(), why };
        let shown = || String::from_utf8_lossy(target).into_owned();
        let target_names = path_names(target).map_err(|why| refused(format!("as a link: {why}")))?;
        let Some((&target_name, target_parents)) = target_names.split_last() else {
            return Err(refused("it is a link to the root".to_owned()));
        };
        if target_names.split_last() == Some((&name, parents)) {
            return Err(refused("it is a link to itself".to_owned()));
        }
        let target_place = self.open_place(target_parents).ok_or_else(|| refused(absent(&shown())))?;
        match kind_at(target_place.as_fd(), target_name, entry)? {
            Some(Occupant::Other) => {}
            Some(Occupant::Directory) => {
                return Err(refused(format!("it is a hard link to the directory {:?}", shown())));
            }
            Some(Occupant::Whiteout) | None => return Err(refused(absent(&shown()))),
        }
        self.make(parents, name, entry, |place| {
            rustix::fs::linkat(&target_place, target_name, place, name, AtFlags::empty())
        })
    }

    /// A directory of this layer that is there already.
    fn open_place(&self, names: &[&[u8]]) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = rustix::fs::openat(self.root, ".", flags, Mode::empty()).ok()?;
        for name in names {
            at = rustix::fs::openat(&at, *name, flags, Mode::empty()).ok()?;
        }
        Some(at)
    }

    fn whiteout(&mut self, parents: &[&[u8]], name: &[u8], entry: &dyn Fn() -> String) -> Result<()> {
        if name == OPAQUE {
            self.place(parents, entry)?;
            if parents.is_empty() {
                self.written.hides_lower = true;
            } else if let Some(attributes) = self.directories.get_mut(&parents.join(&b'/')) {
                attributes.opaque = true;
            }
            return Ok(());
        }
        if name.starts_with(BOOKKEEPING) {
            return Ok(());
        }
        let hidden = &name[WHITEOUT.len()..];
        if hidden.is_empty() || hidden == b"." || hidden == b".." {
            return Err(Error::Refused { entry: entry(), why: "it removes no name".to_owned() });
        }
        let place = self.place(parents, entry)?;
        match kind_at(place, hidden, entry)? {
            // A whiteout is about lower layers: what this layer has itself stays, and hides them anyway.
            Some(Occupant::Directory) => {
                let path = [parents, &[hidden]].concat().join(&b'/');
                if let Some(attributes) = self.directories.get_mut(&path) {
                    attributes.opaque = true;
                }
                Ok(())
            }
            Some(_) => Ok(()),
            None => {
                let device = rustix::fs::makedev(0, 0);
                rustix::fs::mknodat(place, hidden, FileType::CharacterDevice, Mode::empty(), device)
                    .map_err(|errno| failed("make a whiteout for", entry, errno))
            }
        }
    }

    fn finish_directories(&mut self) -> Result<()> {
        let directories = std::mem::take(&mut self.directories);
        // Children before their parents: a parent's mode may lock us out.
        for (path, attributes) in directories.iter().rev() {
            let entry = || String::from_utf8_lossy(path).into_owned();
            let names: Vec<&[u8]> =
                path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
            let place = self.tree.directory(&names, &entry, |_| {})?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(place, ".", flags, Mode::empty())
                .map_err(|errno| failed("open", &entry, errno))?;
            self.finish_directory(directory.as_fd(), attributes, &entry)?;
        }
        Ok(())
    }

    fn finish_directory(
        &mut self,
        directory: BorrowedFd<'_>,
        attributes: &Attributes,
        entry: &dyn Fn() -> String,
    ) -> Result<()> {
        if let Some(owner) = attributes.owner.filter(|owner| *owner != self.us) {
            let given = rustix::fs::fchown(directory, Some(owner.0), Some(owner.1));
            self.note_owner(given, owner, entry)?;
        }
        self.xattrs(directory, &attributes.xattrs, entry)?;
        if attributes.opaque {
            let mark = self.options.opaque.attribute();
            rustix::fs::fsetxattr(directory, mark, b"y", XattrFlags::empty())
                .map_err(|errno| failed("mark as opaque", entry, errno))?;
        }
        rustix::fs::fchmod(directory, Mode::from_raw_mode(attributes.mode))
            .map_err(|errno| failed("set the mode of", entry, errno))?;
        match attributes.mtime {
            Some(mtime) => rustix::fs::futimens(directory, &times(mtime))
                .map_err(|errno| failed("set the time of", entry, errno)),
            None => Ok(()),
        }
    }

    fn xattrs(&mut self, fd: BorrowedFd<'_>, xattrs: &[Attribute], entry: &dyn Fn() -> String) -> Result<()> {
        for (name, value) in xattrs {
            let shown = || archive::shown(name);
            if !is_kept(name) {
                self.written.warnings.add(|| format!("left out the attribute {} of {}", shown(), entry()));
                continue;
            }
            match rustix::fs::fsetxattr(fd, name.as_slice(), value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => {
                    return Err(failed("set an attribute of", entry, errno));
                }
                Err(errno) => {
                    self.written
                        .warnings
                        .add(|| format!("could not set the attribute {} of {}: {errno}", shown(), entry()));
                }
            }
        }
        Ok(())
    }

    fn owner(&self, member: &Member) -> Result<(Uid, Gid)> {
        match member.owner() {
            Some((uid, gid)) => Ok((Uid::from_raw(uid), Gid::from_raw(gid))),
            None => Err(Error::Refused {
                entry: member.shown(),
                why: format!("its owner {}:{} cannot be", member.uid, member.gid),
            }),
        }
    }

    /// Not being allowed to give a file away is a warning: without root, and without a range of ids, nobody is.
    fn note_owner(
        &mut self,
        given: Result<(), Errno>,
        owner: (Uid, Gid),
        entry: &dyn Fn() -> String,
    ) -> Result<()> {
        match given {
            Ok(()) => Ok(()),
            Err(Errno::PERM | Errno::INVAL) => {
                let (uid, gid) = (owner.0.as_raw(), owner.1.as_raw());
                self.written.warnings.add(|| format!("could not give {} to {uid}:{gid}", entry()));
                Ok(())
            }
            Err(errno) => Err(failed("give away", entry, errno)),
        }
    }
}

/// The kind of file that an earlier entry made at a name.
#[derive(Debug, PartialEq, Eq)]
enum Occupant {
    Directory,
    Whiteout,
    Other,
}

fn kind_at(place: BorrowedFd<'_>, name: &[u8], entry: &dyn Fn() -> String) -> Result<Option<Occupant>> {
    match rustix::fs::statat(place, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Occupant::Directory,
            // Devices of the archive are left out, so this is one that we made.
            FileType::CharacterDevice => Occupant::Whiteout,
            _ => Occupant::Other,
        })),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed("look at", entry, errno)),
    }
}

fn unlink(place: BorrowedFd<'_>, name: &[u8], entry: &dyn Fn() -> String) -> Result<()> {
    rustix::fs::unlinkat(place, name, AtFlags::empty()).map_err(|errno| failed("replace", entry, errno))
}

fn absent(target: &str) -> String {
    format!("it is a hard link to {target:?}, which is not in this layer before it")
}

fn times(mtime: Timespec) -> Timestamps {
    Timestamps { last_access: mtime, last_modification: mtime }
}

/// Whether an extended attribute is kept: those that users of an image set themselves, and capabilities. The rest is
/// the business of the host on which the image was made; marks of overlays would even be orders to ours.
pub(crate) fn is_kept(attribute: &[u8]) -> bool {
    attribute == b"security.capability"
        || (attribute.starts_with(b"user.") && !attribute.starts_with(b"user.overlay."))
}
