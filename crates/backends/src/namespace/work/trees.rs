//! Trees, from the side that works: in a fork of the spawner, with its rights over files.

use std::{
    fs::File,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use jail::Failure;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, Timespec, Timestamps, fchmod, futimens, mkdirat, openat2},
    io::Errno,
};
use sandbox::{TreeCopy, TreeFacts};
use serde::{Deserialize, Serialize};
use trees::{Error, Result};

/// What a worker does with trees. Paths are the daemon's own; what lies below is not.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Copies `<part>/upper` of a sandbox's own files for each part into `into`.
    Copy {
        own: Own,
        parts: Vec<String>,
        into: PathBuf,
    },
    Facts {
        tree: PathBuf,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Copied(TreeCopy),
    Facts(TreeFacts),
}

/// Where a sandbox's own files are.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Own {
    Directory(PathBuf),
    /// At the top of a file system in this file.
    Image(PathBuf),
}

pub(super) fn run(job: Job, _next: impl FnMut() -> Result<File, Failure>) -> Result<Answer> {
    match job {
        Job::Copy { own, parts, into } => copy(&own, &parts, &into).map(Answer::Copied),
        Job::Facts { tree } => {
            let facts = trees::facts(open(&tree)?.as_fd())?;
            Ok(Answer::Facts(facts_of(facts)))
        }
    }
}

fn facts_of(facts: trees::Facts) -> TreeFacts {
    TreeFacts { digest: facts.digest, bytes: facts.bytes, n_entries: facts.n_entries }
}

fn copy(own: &Own, parts: &[String], into: &Path) -> Result<TreeCopy> {
    let into = open(into)?;
    let own = own.open()?;
    let mut sum = TreeCopy::default();
    for part in parts {
        let from = beneath(own.as_fd(), &format!("{part}/upper"))?;
        let upper = make_part(into.as_fd(), part)?;
        let copied = trees::copy(from.as_fd(), upper.as_fd())?;
        trees::copy_attributes(from.as_fd(), upper.as_fd())?;
        finish_part(into.as_fd(), part)?;
        sum.bytes += copied.bytes;
        sum.shared_bytes += copied.shared_bytes;
        sum.n_entries += copied.n_entries;
    }
    Ok(sum)
}

/// `<part>/upper` of a new tree.
fn make_part(into: BorrowedFd<'_>, part: &str) -> Result<OwnedFd> {
    let failed = failed("make", part);
    mkdirat(into, part, Mode::RWXU).map_err(&failed)?;
    let upper = format!("{part}/upper");
    mkdirat(into, &upper, Mode::RWXU).map_err(&failed)?;
    beneath(into, &upper)
}

/// What is around an upper directory has nothing of its own to tell: it is the same in all trees.
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

/// A directory of ours.
fn open(path: &Path) -> Result<OwnedFd> {
    rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())
        .map_err(failed("open", &path.display().to_string()))
}

/// A directory beneath one of ours; no link is followed.
fn beneath(top: BorrowedFd<'_>, path: &str) -> Result<OwnedFd> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(top, path, DIRECTORY, Mode::empty(), within).map_err(failed("open", path))
}

fn failed(act: &str, path: &str) -> impl Fn(Errno) -> Error {
    let (act, path) = (act.to_owned(), path.to_owned());
    move |errno| Error::Io { act: act.clone(), path: path.clone(), errno: errno.raw_os_error() }
}
