//! A file or a tree of this host as bytes.

use std::{
    error,
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use archive::{Content, Kind, Member, Writer};
use bytes::Bytes;
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use rustix::{
    fs::{AtFlags, FileType, OFlags, Stat, fstat, readlinkat, statat},
    io::Errno,
};

use crate::{
    Counts, Error, Fidelity, Result, Rules,
    directory::{LISTED, READ, kind, names, step},
    pipe::{PipeReader, each_chunk, stream_of, written},
    tally::Tally,
};

/// A file or directory that is copied from, held open: what is copied later is this one, whatever is at its path by
/// then.
#[derive(Debug)]
pub struct Source {
    /// Its path, for messages.
    pub shown: PathBuf,
    opened: Opened,
}

#[derive(Debug)]
enum Opened {
    File { file: File, stat: Stat },
    Directory(OwnedFd),
}

/// How reading went, once it is over.
#[derive(Debug, Clone, Default)]
pub struct Report(Arc<Mutex<Option<Result<Counts>>>>);

impl Report {
    fn set(&self, result: Result<Counts>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    /// Takes the result, with what went wrong here if anything did: whoever took the bytes only saw that they broke
    /// off.
    pub fn take(&self) -> Option<Result<Counts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Source {
    /// Opens a file or a directory by `open`. It is looked at before it is opened for reading, which a device or a pipe
    /// would notice, and once more afterwards.
    pub fn open(shown: PathBuf, open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<Self> {
        let failed = |errno| Error::io("read", &shown, errno);
        let look = |fd: &OwnedFd| fstat(fd).map_err(failed);
        let opened = match kind(&look(&open(OFlags::PATH).map_err(failed)?)?) {
            FileType::RegularFile => {
                let fd = open(READ).map_err(failed)?;
                let stat = look(&fd)?;
                (kind(&stat) == FileType::RegularFile).then(|| Opened::File { file: File::from(fd), stat })
            }
            FileType::Directory => Some(Opened::Directory(open(LISTED).map_err(failed)?)),
            _ => None,
        };
        match opened {
            Some(opened) => Ok(Self { shown, opened }),
            None => Err(Error::OddKind { path: shown }),
        }
    }

    /// Opens a path that the caller itself names, which may also be a pipe or a device.
    pub fn open_own(path: &Path) -> Result<Self> {
        let failed = |errno| Error::io("read", path, errno);
        let file = File::open(path).map_err(|error| Error::of_io("read", path, &error))?;
        let stat = fstat(&file).map_err(failed)?;
        let opened = match kind(&stat) {
            FileType::Directory => Opened::Directory(file.into()),
            _ => Opened::File { file, stat },
        };
        Ok(Self { shown: path.to_owned(), opened })
    }

    pub fn is_directory(&self) -> bool {
        matches!(self.opened, Opened::Directory(_))
    }

    /// The permission bits of a file and its length; none for a directory.
    pub fn file_facts(&self) -> Option<(u32, u64)> {
        match &self.opened {
            Opened::File { stat, .. } => Some((stat.st_mode & 0o7777, size(stat))),
            Opened::Directory(_) => None,
        }
    }

    /// Names of what is in a directory, at most `max`, sorted.
    pub fn names(&self, max: usize) -> Result<Vec<String>> {
        let failed = |errno| Error::io("list", &self.shown, errno);
        let Opened::Directory(directory) = &self.opened else { return Err(failed(Errno::NOTDIR)) };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory).map_err(failed)?.take(max) {
            // What is no text cannot be named by a caller either.
            names.extend(entry.map_err(failed)?.file_name().to_str().ok().map(str::to_owned));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// A file's bytes; of a directory all that is beneath it, as a tar. The entries are named beneath `prefix`, which
    /// comes first; an empty one means only what is in the directory. Blocks.
    fn send(self, prefix: &Path, rules: Rules, writer: impl Write) -> Result<Counts> {
        match self.opened {
            Opened::File { file, .. } => send_file(file, &self.shown, rules, writer),
            Opened::Directory(root) => send_tree(root, &self.shown, prefix, rules, writer),
        }
    }

    /// Its bytes, read by a thread that begins when the first is asked for. `word` says in the stream why they break
    /// off.
    pub fn into_stream<E: Send + 'static>(
        self,
        prefix: PathBuf,
        rules: Rules,
        word: impl FnOnce(&Error) -> E + Send + 'static,
    ) -> (BoxStream<'static, Result<Bytes, E>>, Report) {
        let report = Report::default();
        let told = report.clone();
        let begin = async move {
            stream_of(written(move |writer| {
                let sent = self.send(&prefix, rules, writer);
                let worded = sent.as_ref().map(drop).map_err(word);
                // First, so that whoever sees the bytes break off finds out why. Whoever broke it off knows.
                if sent != Err(Error::BrokenOff) {
                    told.set(sent);
                }
                worded
            }))
        };
        (stream::once(begin).flatten().boxed(), report)
    }

    /// Its bytes, for who blocks.
    pub fn into_reader<E: Into<Box<dyn error::Error + Send + Sync>> + Send + 'static>(
        self,
        rules: Rules,
        word: impl FnOnce(&Error) -> E + Send + 'static,
    ) -> Box<dyn Read + Send> {
        match self.opened {
            Opened::File { file, .. } => Box::new(file),
            Opened::Directory(_) => {
                let sent = written(move |writer| {
                    self.send(Path::new(""), rules, writer).map(drop).map_err(|error| word(&error))
                });
                Box::new(PipeReader::new(sent))
            }
        }
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn send_file(mut file: File, shown: &Path, rules: Rules, mut writer: impl Write) -> Result<Counts> {
    let mut tally = Tally::new(rules.limits);
    tally.file()?;
    let unreadable = |error: &_| Error::of_io("read", shown, error);
    each_chunk(&mut file, unreadable, |chunk| {
        tally.bytes(chunk.len() as u64)?;
        writer.write_all(chunk).map_err(|_closed| Error::BrokenOff)
    })?;
    Ok(tally.counts)
}

/// By descriptors: what is swapped for a link meanwhile is left out.
fn send_tree(root: OwnedFd, shown: &Path, prefix: &Path, rules: Rules, writer: impl Write) -> Result<Counts> {
    let mut walk = Walk {
        archive: Writer::new(writer),
        tally: Tally::new(rules.limits),
        rules,
        shown,
        prefix,
        relative: PathBuf::new(),
    };
    if !prefix.as_os_str().is_empty() {
        let stat = fstat(&root).map_err(|errno| walk.failed("look at", errno))?;
        walk.add(&stat, Kind::Directory)?;
    }
    walk.directory(&root, 0)?;
    walk.archive.finish().map_err(|_closed| Error::BrokenOff)?;
    Ok(walk.tally.counts)
}

struct Walk<'a, W: Write> {
    archive: Writer<W>,
    tally: Tally,
    rules: Rules,
    shown: &'a Path,
    prefix: &'a Path,
    /// Where the walk stands, beneath the root.
    relative: PathBuf,
}

impl<W: Write> Walk<'_, W> {
    fn at(&self) -> PathBuf {
        self.shown.join(&self.relative)
    }

    fn failed(&self, act: &'static str, errno: Errno) -> Error {
        Error::io(act, self.at(), errno)
    }

    /// With its mode and time. Its owner stays here, and bits that lend rights, unless the tree is the caller's.
    fn member(&self, stat: &Stat, kind: Kind) -> Member {
        let name = self.prefix.join(&self.relative).into_os_string().into_vec();
        let mut member = Member { uid: 0, gid: 0, ..Member::of(name, kind, stat).to_the_second() };
        member.mode &= if self.rules.fidelity == Fidelity::Own { 0o7777 } else { 0o777 };
        member
    }

    fn add(&mut self, stat: &Stat, kind: Kind) -> Result<()> {
        let member = self.member(stat, kind);
        self.archive.begin(&member).map_err(|_closed| Error::BrokenOff)
    }

    fn directory(&mut self, directory: &OwnedFd, depth: usize) -> Result<()> {
        self.tally.depth(depth, || self.at())?;
        let failed = |errno| self.failed("list", errno);
        for name in names(directory.as_fd(), failed, |n_names| self.tally.room_for(n_names))? {
            self.relative.push(&name);
            self.entry(directory.as_fd(), &name, depth)?;
            self.relative.pop();
        }
        Ok(())
    }

    fn entry(&mut self, parent: BorrowedFd<'_>, name: &OsStr, depth: usize) -> Result<()> {
        let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            result => result.map_err(|errno| self.failed("look at", errno))?,
        };
        match kind(&stat) {
            FileType::Symlink => self.link(parent, name, &stat, depth),
            FileType::Directory => match step(parent, name, LISTED) {
                Ok(directory) => {
                    self.tally.directory()?;
                    self.add(&stat, Kind::Directory)?;
                    self.directory(&directory, depth + 1)
                }
                Err(errno) => self.gone_or(errno),
            },
            FileType::RegularFile => match step(parent, name, READ) {
                Ok(fd) => self.file(fd),
                Err(errno) => self.gone_or(errno),
            },
            FileType::Fifo if self.rules.fidelity == Fidelity::Own => self.add(&stat, Kind::Fifo),
            _ => self.leave_out(),
        }
    }

    /// Leaves out an entry that is not there any more, or is something else now; anything but that is a failure.
    fn gone_or(&mut self, errno: Errno) -> Result<()> {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO => self.leave_out(),
            errno => Err(self.failed("read", errno)),
        }
    }

    fn leave_out(&mut self) -> Result<()> {
        self.tally.leave_out(&self.relative)
    }

    fn file(&mut self, fd: OwnedFd) -> Result<()> {
        let stat = fstat(&fd).map_err(|errno| self.failed("look at", errno))?;
        if kind(&stat) != FileType::RegularFile {
            return self.leave_out();
        }
        self.tally.file()?;
        self.tally.bytes(size(&stat))?;
        let member = self.member(&stat, Kind::File(Content::default()));
        self.archive.add_file(member, &File::from(fd), size(&stat)).map_err(|error| match error {
            archive::Error::OtherLength => Error::Changed { path: self.at() },
            archive::Error::Io(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Error::of_io("read", self.at(), &error)
            }
            _ => Error::BrokenOff,
        })
    }

    fn link(&mut self, parent: BorrowedFd<'_>, name: &OsStr, stat: &Stat, depth: usize) -> Result<()> {
        let Ok(target) = readlinkat(parent, name, Vec::new()) else { return self.leave_out() };
        let target = Path::new(OsStr::from_bytes(target.to_bytes()));
        if !self.rules.keeps_link(target, depth) {
            return self.leave_out();
        }
        self.tally.link()?;
        self.add(stat, Kind::Symlink { target: target.as_os_str().as_bytes().to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    };

    use futures_util::TryStreamExt as _;

    use super::*;
    use crate::Limits;

    fn rules(fidelity: Fidelity) -> Rules {
        Rules { fidelity, limits: Limits { entries: 100, bytes: 1 << 40, depth: 16 } }
    }

    /// Kind, name and mode of every member, and the counts.
    async fn packed(root: &Path, prefix: &str, fidelity: Fidelity) -> (Vec<String>, Counts) {
        let source = Source::open_own(root).unwrap();
        let (bytes, report) = source.into_stream(prefix.into(), rules(fidelity), ToString::to_string);
        let bytes: Vec<Bytes> = bytes.try_collect().await.unwrap();
        let bytes = bytes.concat();
        let members = tar::Archive::new(&bytes[..])
            .entries()
            .unwrap()
            .map(|member| {
                let member = member.unwrap();
                let (kind, mode) = (member.header().entry_type(), member.header().mode().unwrap());
                format!("{} {kind:?} {:o}", member.path().unwrap().display(), mode & 0o7777)
            })
            .collect();
        (members, report.take().unwrap().unwrap())
    }

    fn tree(root: &Path) {
        fs::create_dir(root.join("d")).unwrap();
        fs::set_permissions(root.join("d"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(root.join("d/file"), "text").unwrap();
        fs::set_permissions(root.join("d/file"), fs::Permissions::from_mode(0o4755)).unwrap();
        symlink("../d/file", root.join("d/inside")).unwrap();
        symlink("/etc/passwd", root.join("d/outside")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), mode).unwrap();
    }

    #[tokio::test]
    async fn a_plain_tree_has_no_pipes_no_lent_rights_and_no_links_that_lead_out() {
        let home = tempfile::tempdir().unwrap();
        tree(home.path());
        let (members, counts) = packed(home.path(), "", Fidelity::Plain).await;
        assert_eq!(members, ["d/ Directory 755", "d/file Regular 755", "d/inside Symlink 777"]);
        assert_eq!((counts.files, counts.directories, counts.links, counts.bytes), (1, 1, 1, 4));
        assert_eq!(counts.left_out_paths, ["d/outside", "pipe"]);
    }

    #[tokio::test]
    async fn an_own_tree_has_everything_beneath_its_prefix() {
        let home = tempfile::tempdir().unwrap();
        tree(home.path());
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let (members, counts) = packed(home.path(), "top", Fidelity::Own).await;
        assert_eq!(
            members,
            [
                "top/ Directory 700",
                "top/d/ Directory 755",
                "top/d/file Regular 4755",
                "top/d/inside Symlink 777",
                "top/d/outside Symlink 777",
                "top/pipe Fifo 600",
            ]
        );
        assert_eq!(counts.left_out, 0);
    }

    #[tokio::test]
    async fn holes_are_not_sent() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 34).unwrap();
        if fs::metadata(&path).unwrap().blocks() > 0 {
            return;
        }
        let source = Source::open_own(home.path()).unwrap();
        let (bytes, _report) = source.into_stream(PathBuf::new(), rules(Fidelity::Own), ToString::to_string);
        let bytes: Vec<Bytes> = bytes.try_collect().await.unwrap();
        assert!(bytes.concat().len() < 10_000);
    }

    #[tokio::test]
    async fn what_cannot_be_copied_is_told_where_the_bytes_end_and_in_the_report() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("d/".repeat(17))).unwrap();
        let source = Source::open_own(home.path()).unwrap();
        let (bytes, report) = source.into_stream(PathBuf::new(), rules(Fidelity::Plain), ToString::to_string);
        let told = bytes.try_collect::<Vec<Bytes>>().await.unwrap_err();
        let failure = report.take().unwrap().unwrap_err();
        assert!(matches!(failure, Error::TooDeep { limit: 16, .. }) && failure.to_string() == told, "{told}");
        assert_eq!(
            Source::open_own(&home.path().join("none")).unwrap_err(),
            Error::io("read", home.path().join("none"), Errno::NOENT)
        );
    }
}
