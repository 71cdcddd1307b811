//! The contents of an archive that a build was given, read without unpacking it: names are keys here and never paths of
//! the host.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Seek as _, SeekFrom},
    sync::Arc,
};

use archive::{BadPath, Content, Format, Kind as MemberKind, Member, Part, ReadLimits, Reader};
use build::{Pattern, clean};
use sandbox::{Error, ErrorKind, Result};
use sha2::{Digest as _, Sha256};

use super::holes::Filled;

/// Most files and directories of one archive.
const MAX_ENTRIES: usize = 500_000;
/// Longest name, as the kernel has it.
const MAX_NAME_BYTES: usize = 4095;
/// All names of one archive, what its links lead to and where its files have holes, which are held in memory.
const MAX_NAMES_BYTES: usize = 128 * 1024 * 1024;
/// Links that are followed on the way to one source.
const MAX_HOPS: usize = 40;
/// Limits on what the archive reader holds in memory.
const READ_LIMITS: ReadLimits = ReadLimits { header_bytes: 1024 * 1024, parts: 128 * 1024 };

/// Sizes of the sparse files that one instruction copies: no layer has more bytes, and a layer has no holes.
const MAX_SPARSE_BYTES: u64 = 64 << 30;

/// Bytes read from an archive at a time.
const READ_BYTES: usize = 256 * 1024;

/// How an archive is read.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    /// The archive's name in errors.
    pub(super) what: &'a str,
    pub(super) odd: Odd,
    /// Fails once nobody waits for it any more.
    pub(super) wanted: &'a dyn Fn() -> Result<()>,
}

/// The treatment of members that are not files, directories or links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Odd {
    Refused,
    /// Whole systems have some, and work without.
    LeftOut,
}

/// An archive in a file, and where everything is in it.
#[derive(Debug)]
pub(super) struct Context {
    file: File,
    entries: BTreeMap<String, Entry>,
    names_bytes: usize,
    /// Devices and the like.
    pub(super) n_left_out: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds since 1970.
    pub(super) mtime: i64,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File {
        /// In the archive.
        offset: u64,
        size: u64,
        /// For a file with holes, the stretches that the archive holds of it, one behind the other.
        parts: Option<Arc<[Part]>>,
        /// The digest of the content; for a file with holes, of its parts and where they are.
        sha256: [u8; 32],
    },
    Directory,
    Symlink {
        target: String,
    },
}

/// One thing that a source stands for: a file, or a directory whose content is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceMatch {
    /// Its last part, as the source has it.
    pub(super) name: String,
    pub(super) is_directory: bool,
    /// The file itself under the name `""`, or all beneath the directory with their relative names.
    pub(super) entries: Vec<(String, Entry)>,
    /// The entry of the directory itself, where the archive has it.
    pub(super) top: Option<Entry>,
}

/// The entries and the bytes of sparse files that one instruction may still copy.
#[derive(Debug)]
pub(super) struct Budget {
    entries: usize,
    sparse_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { entries: MAX_ENTRIES, sparse_bytes: MAX_SPARSE_BYTES }
    }
}

impl Budget {
    fn take(&mut self, n_entries: usize) -> Result<()> {
        let left = self.entries.checked_sub(n_entries);
        self.entries = left.ok_or_else(|| {
            let message = format!("cannot copy more than {MAX_ENTRIES} files at once");
            Error::new(ErrorKind::LimitReached, message)
                .with_hint("Copy fewer files, or use several instructions.")
        })?;
        Ok(())
    }

    fn take_entry(&mut self, entry: &Entry) -> Result<()> {
        self.take(1)?;
        let Kind::File { size, parts: Some(_), .. } = entry.kind else { return Ok(()) };
        self.sparse_bytes = self.sparse_bytes.checked_sub(size).ok_or_else(|| {
            let message = format!("cannot copy sparse files of more than {MAX_SPARSE_BYTES} bytes at once");
            Error::new(ErrorKind::LimitReached, message)
                .with_hint("A layer has no holes: copy smaller files, or create them when the image runs.")
        })?;
        Ok(())
    }
}

fn refused(message: String) -> Error {
    Error::invalid(message).with_hint("Send a tar of files, directories and links with relative names.")
}

/// Words an error of reading an archive. The system's own errors are passed on; most others are of no use to a caller
/// who sent something else.
fn broken(what: &str, error: archive::Error) -> Error {
    match error {
        archive::Error::Unsupported(_) => {
            Error::new(ErrorKind::Unsupported, format!("{what} cannot be read: {error}"))
                .with_hint("Write the archive in GNU tar's own format (--format=gnu), or without holes.")
        }
        archive::Error::Io(error) if error.raw_os_error().is_some() => {
            refused(format!("cannot read {what} as a tar: {error}"))
        }
        _ => refused(format!("{what} is not a tar, or is damaged")),
    }
}

impl Context {
    /// Reads an archive through. On a thread that may block.
    pub(super) fn read(mut file: File, reading: Reading<'_>) -> Result<Self> {
        let broken = |error| broken(reading.what, error);
        let unreadable = |error: io::Error| broken(error.into());
        file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let reader = file.try_clone().map_err(unreadable)?;
        let mut context = Self { file, entries: BTreeMap::new(), names_bytes: 0, n_left_out: 0 };
        let reader = BufReader::with_capacity(READ_BYTES, reader);
        let mut reader = Reader::new(reader, Format::Any, READ_LIMITS);
        while let Some(member) = reader.next().map_err(broken)? {
            (reading.wanted)()?;
            context.take(member, &mut reader, reading)?;
        }
        Ok(context)
    }

    fn take(&mut self, member: Member, reader: &mut ContextReader, reading: Reading<'_>) -> Result<()> {
        let what = reading.what;
        let name = plain(what, &member.path)?;
        let id = |id| u32::try_from(id).unwrap_or(0);
        let mut entry = Entry {
            mode: member.mode,
            uid: id(member.uid),
            gid: id(member.gid),
            mtime: member.mtime.tv_sec,
            kind: Kind::Directory,
        };
        match member.kind {
            MemberKind::Directory => {}
            MemberKind::File(content) => entry.kind = file(reader, content, reading)?,
            MemberKind::Symlink { target } => {
                let target = String::from_utf8(target)
                    .map_err(|_bad| refused(format!("the target of the link {name} is not UTF-8")))?;
                if target.len() > MAX_NAME_BYTES {
                    return Err(refused(format!("the target of the link {name} is not a path")));
                }
                entry.kind = Kind::Symlink { target };
            }
            MemberKind::HardLink { target } => {
                let target = plain(what, &target)?;
                let Some(linked) = self.entries.get(&target) else {
                    return Err(refused(format!(
                        "the hard link {name} leads to {target}, which does not exist"
                    )));
                };
                entry = linked.clone();
            }
            _ if reading.odd == Odd::LeftOut => {
                self.n_left_out += 1;
                return Ok(());
            }
            other => return Err(refused(format!("{name} has a type that {what} cannot contain: {other:?}"))),
        }
        if name.is_empty() {
            return Ok(());
        }
        self.insert(what, name, entry)
    }

    fn insert(&mut self, what: &str, name: String, entry: Entry) -> Result<()> {
        let more = match &entry.kind {
            Kind::Symlink { target } => target.len(),
            Kind::File { parts: Some(parts), .. } => size_of_val(&parts[..]),
            Kind::File { .. } | Kind::Directory => 0,
        };
        self.names_bytes += name.len() + more;
        let refused = |message: String| {
            Err(Error::new(ErrorKind::LimitReached, message)
                .with_hint("Exclude files that the build does not need with a .dockerignore."))
        };
        if self.entries.len() >= MAX_ENTRIES {
            return refused(format!("{what} has more than {MAX_ENTRIES} entries"));
        }
        if self.names_bytes > MAX_NAMES_BYTES {
            return refused(format!("the names in {what} have more than {MAX_NAMES_BYTES} bytes in total"));
        }
        self.entries.insert(name, entry);
        Ok(())
    }

    /// It is there no more for anyone who asks.
    pub(super) fn remove(&mut self, name: &str) {
        self.entries.remove(name);
    }

    pub(super) fn retain(
        &mut self,
        wanted: &dyn Fn() -> Result<()>,
        keeps: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let mut is_wanted = Ok(());
        self.entries.retain(|name, _| {
            is_wanted = std::mem::replace(&mut is_wanted, Ok(())).and_then(|()| wanted());
            is_wanted.is_err() || keeps(name)
        });
        is_wanted
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// A small file, whole.
    pub(super) fn read_file(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>> {
        use std::{io::Read as _, os::unix::fs::FileExt as _};
        let Some(path) = self.resolve(&clean(name)) else { return Ok(None) };
        let Some(entry) = self.entries.get(&path) else { return Ok(None) };
        let Kind::File { offset, size, parts, .. } = &entry.kind else { return Ok(None) };
        if *size > most {
            return Err(Error::invalid(format!("{name} has {size} bytes; the limit is {most}")));
        }
        let mut bytes = vec![0; usize::try_from(*size).unwrap_or(0)];
        let read = match parts {
            Some(parts) => Filled::new(&self.file, *offset, *size, parts).read_exact(&mut bytes),
            None => self.file.read_exact_at(&mut bytes, *offset),
        };
        read.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot read the build context again").with_source(error)
        })?;
        Ok(Some(bytes))
    }

    fn is_directory(&self, path: &str) -> bool {
        match self.entries.get(path) {
            Some(entry) => entry.kind == Kind::Directory,
            None => path.is_empty() || self.beneath(path).next().is_some(),
        }
    }

    fn beneath<'a>(&'a self, path: &str) -> impl Iterator<Item = (&'a str, &'a Entry)> + use<'a> {
        let start = if path.is_empty() { String::new() } else { format!("{path}/") };
        let length = start.len();
        let all = self.entries.range(start.clone()..).take_while(move |(name, _)| name.starts_with(&start));
        all.map(move |(name, entry)| (&name[length..], entry)).filter(|(name, _)| !name.is_empty())
    }

    /// Follows links, all of which lead to somewhere in the archive. Nothing where nothing is.
    fn resolve(&self, path: &str) -> Option<String> {
        let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut done: Vec<String> = Vec::new();
        let mut n_hops = 0;
        while let Some(part) = left.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    done.pop();
                    continue;
                }
                _ => done.push(part),
            }
            if let Some(Entry { kind: Kind::Symlink { target }, .. }) = self.entries.get(&done.join("/")) {
                n_hops += 1;
                if n_hops > MAX_HOPS {
                    return None;
                }
                done.pop();
                if target.starts_with('/') {
                    done.clear();
                }
                left.extend(target.split('/').rev().map(str::to_owned));
            }
        }
        let path = done.join("/");
        (self.entries.contains_key(&path) || self.is_directory(&path)).then_some(path)
    }

    /// Finds what a source of `COPY` stands for, in order.
    pub(super) fn find(&self, source: &str, budget: &mut Budget) -> Result<Vec<SourceMatch>> {
        let cleaned = clean(source);
        let missing = || {
            Error::new(ErrorKind::NotFound, format!("{source} is not in the build context"))
                .with_hint("Check the name, and whether .dockerignore excludes it.")
        };
        if !Pattern::is_wild(&cleaned) {
            return Ok(vec![self.found(&cleaned, &self.resolve(&cleaned).ok_or_else(missing)?, budget)?]);
        }
        let pattern = Pattern::of_copy(&cleaned).map_err(Error::invalid)?;
        let found: Vec<SourceMatch> = self
            .names()
            .filter(|name| pattern.matches(name))
            .filter_map(|name| Some(self.found(name, &self.resolve(name)?, budget)))
            .collect::<Result<_>>()?;
        if found.is_empty() { Err(missing()) } else { Ok(found) }
    }

    /// All names; directories that are only implied by what lies in them are told by `COPY` of the names above them.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    fn found(&self, asked: &str, path: &str, budget: &mut Budget) -> Result<SourceMatch> {
        let name = asked.rsplit('/').next().unwrap_or_default().to_owned();
        if self.is_directory(path) {
            budget.take(1)?;
            let entries = self.beneath(path).map(|(name, entry)| {
                budget.take_entry(entry)?;
                Ok((name.to_owned(), entry.clone()))
            });
            let entries = entries.collect::<Result<_>>()?;
            return Ok(SourceMatch {
                name,
                is_directory: true,
                entries,
                top: self.entries.get(path).cloned(),
            });
        }
        let entries = self.entries.get(path).map(|entry| {
            budget.take_entry(entry)?;
            Ok((String::new(), entry.clone()))
        });
        let entries = entries.into_iter().collect::<Result<_>>()?;
        Ok(SourceMatch { name, is_directory: false, entries, top: None })
    }
}

type ContextReader = Reader<BufReader<File>>;

fn file(reader: &mut ContextReader, content: Content, reading: Reading<'_>) -> Result<Kind> {
    let offset = reader.position();
    let mut hasher = Sha256::new();
    if content.has_holes() {
        for part in &content.parts {
            hasher.update([part.offset.to_le_bytes(), part.length.to_le_bytes()].concat());
        }
    }
    let mut wanted = Ok(());
    let read = reader.content(&content, |_, bytes| {
        hasher.update(bytes);
        wanted = (reading.wanted)();
        // Ends the reading; why is in `wanted`.
        if wanted.is_ok() { Ok(()) } else { Err(archive::Error::Damaged("")) }
    });
    wanted?;
    read.map_err(|error| broken(reading.what, error))?;
    let parts = content.has_holes().then(|| content.parts.into());
    Ok(Kind::File { offset, size: content.size, parts, sha256: hasher.finalize().into() })
}

/// Describes what is copied, so that the same content gives the same digest whenever it was written.
pub(super) fn digest(found: &SourceMatch, owners: Owners) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(format!("{:?} {}\n", found.name, found.is_directory));
    let top = found.top.iter().map(|top| (&found.name, top));
    for (name, entry) in found.entries.iter().map(|(name, entry)| (name, entry)).chain(top) {
        hasher.update(format!("{name:?} {:o} ", entry.mode));
        if owners == Owners::Kept {
            hasher.update(format!("{}:{} ", entry.uid, entry.gid));
        }
        match &entry.kind {
            Kind::File { size, sha256, .. } => {
                hasher.update(format!("{size} "));
                hasher.update(sha256);
            }
            Kind::Directory => hasher.update("directory"),
            Kind::Symlink { target } => hasher.update(format!("-> {target:?}")),
        }
        hasher.update("\n");
    }
    hasher.finalize().into()
}

/// The owners of copies: files from the caller's machine belong to root, files from an image keep their owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owners {
    Root,
    Kept,
}

/// The name of a member. One that is absolute or climbs out is no mistake but an attack.
fn plain(what: &str, name: &[u8]) -> Result<String> {
    let shown: String = String::from_utf8_lossy(name).chars().take(100).collect();
    let names = archive::names(name, MAX_NAME_BYTES).map_err(|why| match why {
        BadPath::Absolute | BadPath::Upwards => refused(format!("the name {shown:?} leads out of {what}")),
        _ => refused(format!("the name {shown:?} is not a path")),
    })?;
    String::from_utf8(names.join(&b'/'))
        .map_err(|_bad| refused(format!("the name {shown:?} in {what} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use tar::{EntryType, Header};

    use super::*;

    struct Archive(tar::Builder<File>);

    impl Archive {
        fn new() -> Self {
            Self(tar::Builder::new(tempfile::tempfile().unwrap()))
        }

        fn put(mut self, kind: EntryType, name: &str, link: &str, data: &[u8]) -> Self {
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(0o640);
            header.set_size(data.len() as u64);
            if !link.is_empty() {
                header.set_link_name_literal(link).unwrap();
            }
            // By hand: the library refuses to write what we want to read.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            self.0.append(&header, data).unwrap();
            self
        }

        fn read(self, odd: Odd) -> Result<Context> {
            Context::read(self.0.into_inner().unwrap(), Reading { what: "it", odd, wanted: &|| Ok(()) })
        }
    }

    fn names(context: &Context, source: &str) -> Vec<String> {
        let found = context.find(source, &mut Budget::default()).unwrap();
        let named = found.iter().flat_map(|found| {
            found.entries.iter().map(|(name, _)| format!("{}:{name}", found.name)).collect::<Vec<_>>()
        });
        named.collect()
    }

    #[test]
    fn sources_are_found_as_docker_finds_them() {
        let context = Archive::new()
            .put(EntryType::Directory, "d/", "", b"")
            .put(EntryType::Regular, "d/a.c", "", b"a")
            .put(EntryType::Regular, "d/sub/b.c", "", b"b")
            .put(EntryType::Symlink, "into", "d/sub", b"")
            .put(EntryType::Symlink, "out", "../../../../etc", b"")
            .put(EntryType::Symlink, "around", "around", b"")
            .put(EntryType::Link, "hard", "d/a.c", b"")
            .read(Odd::Refused)
            .unwrap();
        assert_eq!(names(&context, "d"), ["d:a.c", "d:sub/b.c"]);
        assert_eq!(names(&context, "./d/../d/a.c"), ["a.c:"]);
        assert_eq!(names(&context, "/d/*.c"), ["a.c:"]);
        // Deeper ones are not meant: for COPY, two stars are one.
        assert!(
            context
                .find("**", &mut Budget::default())
                .unwrap()
                .iter()
                .all(|found| !found.name.ends_with(".c"))
        );
        assert_eq!(names(&context, "into"), ["into:b.c"]);
        assert_eq!(names(&context, "hard"), ["hard:"]);
        for missing in ["none", "out", "around", "../etc", "d/none*"] {
            let error = context.find(missing, &mut Budget::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{missing}");
        }
    }

    #[test]
    fn one_instruction_copies_only_so_much() {
        let context = Archive::new()
            .put(EntryType::Regular, "a/b", "", b"1")
            .put(EntryType::Regular, "a/c", "", b"2")
            .read(Odd::Refused)
            .unwrap();
        let mut budget = Budget { entries: 5, ..Budget::default() };
        context.find("a", &mut budget).unwrap();
        assert_eq!(context.find("a", &mut budget).unwrap_err().kind(), ErrorKind::LimitReached);
    }

    #[test]
    fn whole_systems_leave_their_devices_behind() {
        let archive = || {
            Archive::new()
                .put(EntryType::Char, "dev/null", "", b"")
                .put(EntryType::Fifo, "pipe", "", b"")
                .put(EntryType::Regular, "file", "", b"1")
        };
        let context = archive().read(Odd::LeftOut).unwrap();
        assert_eq!((names(&context, "."), context.n_left_out), (vec![":file".to_owned()], 2));
        assert!(archive().read(Odd::Refused).unwrap_err().to_string().contains("dev/null has a type"));
    }

    #[test]
    fn what_is_no_archive_is_not_quoted() {
        use std::io::Write as _;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&b"\x1b[31m\x07garbage\xff".repeat(100)).unwrap();
        let read = Context::read(file, Reading { what: "it", odd: Odd::Refused, wanted: &|| Ok(()) });
        assert_eq!(read.unwrap_err().to_string(), "it is not a tar, or is damaged");
    }

    #[test]
    fn who_has_gone_is_not_read_on_for() {
        let file = Archive::new().put(EntryType::Regular, "a", "", b"1").0.into_inner().unwrap();
        let gone = || Err(Error::new(ErrorKind::Cancelled, "gone"));
        let read = Context::read(file, Reading { what: "it", odd: Odd::Refused, wanted: &gone });
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Cancelled);
        let mut context = Archive::new().put(EntryType::Regular, "a", "", b"1").read(Odd::Refused).unwrap();
        assert!(context.retain(&gone, |_| panic!("nobody wants to know")).is_err());
    }
}
