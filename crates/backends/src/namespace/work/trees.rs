//! Trees, on the worker's side: in a fork of the spawner, with its rights over files.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jail::Failure;
use rustix::{
    fs::{CWD, Dir, Mode, OFlags, ResolveFlags, Timespec, Timestamps, fchmod, futimens, mkdirat, openat2},
    io::Errno,
    process::{Resource, Rlimit},
};
use sandbox::{Change, ChangeKind, DiffQuery, DiffReport, FileKind, TreeCopy, TreeFacts};
use serde::{Deserialize, Serialize};
use trees::{Error, Result, UnpackLimits};

/// After this time a comparison ends with what it has: the caller is waiting.
const DIFF_TIME: Duration = Duration::from_secs(10);
/// The overlays that a sandbox can have.
const PARTS: [&str; 2] = ["root", "usr"];

/// A worker's job on trees. Paths are the daemon's own; the files below are not.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Copies `<part>/upper` of a sandbox's own files for each part into `into`. Says through the first descriptor when
    /// it is ready, and begins when it is told that nothing moves any more.
    Copy {
        own: Own,
        parts: Vec<String>,
        into: PathBuf,
    },
    Facts {
        tree: PathBuf,
    },
    /// Writes the tree to the first descriptor.
    Pack {
        tree: PathBuf,
    },
    /// Makes a tree from the archive in the first descriptor.
    Unpack {
        into: PathBuf,
    },
    /// Writes a [`DiffReport`] to the first descriptor.
    Diff(DiffJob),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DiffJob {
    pub(crate) own: Own,
    pub(crate) overlays: Vec<OverlayJob>,
    /// Paths and contents of files, and paths and modes of directories, that were added from outside.
    pub(crate) given_files: Vec<(String, String)>,
    pub(crate) given_directories: Vec<(String, u32)>,
    pub(crate) query: DiffQuery,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverlayJob {
    /// Its mount point.
    pub(crate) at: String,
    /// As in [`trees::Overlay`].
    pub(crate) layers: Vec<Layer>,
    pub(crate) n_new: usize,
    pub(crate) n_old: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Layer {
    /// The sandbox's own files of this part.
    Own(String),
    /// With device and inode if it must be this one.
    Directory { path: PathBuf, identity: Option<(u64, u64)> },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Copied(TreeCopy),
    Facts(TreeFacts),
    Packed,
    /// In the attached descriptor.
    Attached,
}

/// Where a sandbox's own files are.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Own {
    Directory(PathBuf),
    /// At the top of a file system in this file.
    Image(PathBuf),
}

/// The outer error is that of the job itself, the inner one that of the tree.
pub(super) fn run(
    job: Job,
    mut next: impl FnMut() -> Result<File, Failure>,
) -> Result<Result<Answer>, Failure> {
    Ok(match job {
        Job::Copy { own, parts, into } => copy(&own, &parts, &into, next()?).map(Answer::Copied),
        Job::Facts { tree } => open(&tree)
            .and_then(|tree| trees::facts(tree.as_fd()))
            .map(|facts| Answer::Facts(facts_of(facts))),
        Job::Pack { tree } => {
            let archive = next()?;
            open(&tree).and_then(|tree| trees::pack(tree.as_fd(), archive)).map(|_packed| Answer::Packed)
        }
        Job::Unpack { into } => unpack(&next()?, &into).map(Answer::Facts),
        Job::Diff(job) => {
            let report = diff(&job);
            let mut file = next()?;
            match report {
                Ok(report) => {
                    serde_json::to_writer(&mut file, &report)
                        .map_err(|error| Failure::new("write the answer", &error.into()))?;
                    Ok(Answer::Attached)
                }
                Err(error) => Err(error),
            }
        }
    })
}

/// A tree from an archive must have the form in which trees are used: their parts are mounted by path.
fn unpack(archive: &File, into: &Path) -> Result<TreeFacts> {
    let into = open(into)?;
    trees::unpack(archive, into.as_fd(), &UnpackLimits::default())?;
    for part in only_directories(into.as_fd(), &PARTS)? {
        only_directories(beneath(into.as_fd(), part)?.as_fd(), &["upper"])?;
    }
    if beneath(into.as_fd(), "root/upper").is_err() {
        return Err(Error::Refused { entry: "root/upper".to_owned(), why: "it is missing".to_owned() });
    }
    Ok(facts_of(trees::facts(into.as_fd())?))
}

/// Which of `names` the directory contains; refused if it contains anything else, or one of them is not a directory.
fn only_directories<'a>(directory: BorrowedFd<'_>, names: &[&'a str]) -> Result<Vec<&'a str>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed("list", "."))? {
        let entry = entry.map_err(failed("list", "."))?;
        let name = entry.file_name().to_string_lossy();
        if matches!(&*name, "." | "..") {
            continue;
        }
        let known = names.iter().find(|known| **known == name);
        let is_directory = beneath(directory, &name).is_ok();
        match known {
            Some(known) if is_directory => found.push(*known),
            _ => {
                let why = "it is not part of a sandbox's files".to_owned();
                return Err(Error::Refused { entry: name.into_owned(), why });
            }
        }
    }
    Ok(found)
}

/// An overlay may have some hundred layers, each of which is open twice.
fn allow_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _kept_as_it_is = rustix::process::setrlimit(Resource::Nofile, raised);
}

fn diff(job: &DiffJob) -> Result<DiffReport> {
    allow_open_files();
    let own = job.own.open()?;
    let mut opened = Vec::new();
    for overlay in &job.overlays {
        let layers: Result<Vec<OwnedFd>> = overlay
            .layers
            .iter()
            .map(|layer| match layer {
                Layer::Own(part) => beneath(own.as_fd(), &format!("{part}/upper")),
                Layer::Directory { path, identity } => open_expected(path, *identity),
            })
            .collect();
        opened.push(layers?);
    }
    let overlays: Vec<_> = job
        .overlays
        .iter()
        .zip(&opened)
        .map(|(overlay, layers)| trees::Overlay {
            at: names_of(&overlay.at),
            layers: layers.iter().map(OwnedFd::as_fd).collect(),
            n_new: overlay.n_new,
            n_old: overlay.n_old,
        })
        .collect();
    let query = &job.query;
    let bytes = |text: &String| text.clone().into_bytes();
    let options = trees::DiffOptions {
        under: names_of(&query.under),
        with_patch: query.patch,
        max_changes: query.max_changes,
        max_patch_bytes: query.max_patch_bytes,
        until: Some(Instant::now() + DIFF_TIME),
        given_files: job.given_files.iter().map(|(path, text)| (bytes(path), bytes(text))).collect(),
        given_directories: job.given_directories.iter().map(|(path, mode)| (bytes(path), *mode)).collect(),
    };
    let diff = trees::diff(&overlays, &options)?;
    Ok(DiffReport {
        changes: diff.changes.into_iter().map(change_of).collect(),
        changes_cut: diff.changes_cut,
        patch: diff.patch,
        patch_cut: diff.patch_cut,
        patch_left_out: diff.patch_left_out,
    })
}

fn names_of(path: &str) -> Vec<Vec<u8>> {
    let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
    names.map(|name| name.as_bytes().to_vec()).collect()
}

fn change_of(change: trees::Change) -> Change {
    Change {
        path: String::from_utf8_lossy(&change.path).into_owned(),
        kind: match change.kind {
            trees::ChangeKind::Added => ChangeKind::Added,
            trees::ChangeKind::Modified => ChangeKind::Modified,
            trees::ChangeKind::Removed => ChangeKind::Removed,
        },
        file: match change.file {
            trees::FileKind::File => FileKind::File,
            trees::FileKind::Directory => FileKind::Directory,
            trees::FileKind::Link => FileKind::Symlink,
            trees::FileKind::Fifo => FileKind::Fifo,
            trees::FileKind::Socket => FileKind::Socket,
            trees::FileKind::Device => FileKind::Device,
        },
        size: change.size,
        only_metadata: change.only_metadata,
    }
}

fn facts_of(facts: trees::Facts) -> TreeFacts {
    TreeFacts { digest: facts.digest, bytes: facts.bytes, n_entries: facts.n_entries }
}

fn copy(own: &Own, parts: &[String], into: &Path, gate: File) -> Result<TreeCopy> {
    let into = open(into)?;
    let own = own.open()?;
    let mut opened = Vec::with_capacity(parts.len());
    for part in parts {
        let from = beneath(own.as_fd(), &format!("{part}/upper"))?;
        let upper = make_part(into.as_fd(), part)?;
        finish_part(into.as_fd(), part)?;
        opened.push((from, upper));
    }
    wait_for_stillness(gate)?;
    let mut sum = TreeCopy::default();
    for (from, upper) in &opened {
        let copied = trees::copy(from.as_fd(), upper.as_fd())?;
        trees::copy_attributes(from.as_fd(), upper.as_fd())?;
        sum.bytes += copied.bytes;
        sum.shared_bytes += copied.shared_bytes;
        sum.n_entries += copied.n_entries;
    }
    Ok(sum)
}

/// The sandbox runs until we are ready, so that it is held only for the copy.
fn wait_for_stillness(mut gate: File) -> Result<()> {
    let answer = gate.write_all(&[0]).and_then(|()| gate.read_exact(&mut [0]));
    answer.map_err(|_given_up| failed("copy", "files that are still changing")(Errno::CANCELED))
}

/// `<part>/upper` of a new tree.
fn make_part(into: BorrowedFd<'_>, part: &str) -> Result<OwnedFd> {
    let failed = failed("make", part);
    mkdirat(into, part, Mode::RWXU).map_err(&failed)?;
    let upper = format!("{part}/upper");
    mkdirat(into, &upper, Mode::RWXU).map_err(&failed)?;
    beneath(into, &upper)
}

/// The directories around an upper directory have no facts of their own: they are the same in all trees.
fn finish_part(into: BorrowedFd<'_>, part: &str) -> Result<()> {
    let made = beneath(into, part)?;
    let failed = failed("finish", part);
    fchmod(&made, Mode::from_raw_mode(0o755)).map_err(&failed)?;
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    futimens(&made, &Timestamps { last_access: never, last_modification: never }).map_err(&failed)
}

enum Opened {
    Directory(OwnedFd),
    Image(jail::ImageView),
}

impl Own {
    fn open(&self) -> Result<Opened> {
        match self {
            Self::Directory(path) => open(path).map(Opened::Directory),
            Self::Image(path) => jail::look_into_image(path).map(Opened::Image).map_err(|error| Error::Io {
                act: "look into".to_owned(),
                path: path.display().to_string(),
                errno: error.raw_os_error().unwrap_or_else(|| Errno::IO.raw_os_error()),
            }),
        }
    }
}

impl Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Directory(directory) => directory.as_fd(),
            Self::Image(image) => image.as_fd(),
        }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a directory of ours.
fn open(path: &Path) -> Result<OwnedFd> {
    rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())
        .map_err(failed("open", &path.display().to_string()))
}

fn open_expected(path: &Path, identity: Option<(u64, u64)>) -> Result<OwnedFd> {
    let shown = path.display().to_string();
    let directory = open(path)?;
    let found = rustix::fs::fstat(&directory).map_err(failed("look at", &shown))?;
    match identity {
        Some(expected) if (found.st_dev, found.st_ino) != expected => Err(Error::Changed { path: shown }),
        _ => Ok(directory),
    }
}

/// Opens a directory below one of ours; no link is followed.
fn beneath(top: BorrowedFd<'_>, path: &str) -> Result<OwnedFd> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(top, path, DIRECTORY, Mode::empty(), within).map_err(failed("open", path))
}

fn failed(act: &str, path: &str) -> impl Fn(Errno) -> Error {
    let (act, path) = (act.to_owned(), path.to_owned());
    move |errno| Error::Io { act: act.clone(), path: path.clone(), errno: errno.raw_os_error() }
}
