//! The root beneath which a host path lies, and whether the path may be touched.

use std::{
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use engine::Scope;
use hostfiles::Draft;
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};
use sandbox::{Error, Result};

use super::{
    HostCaller, HostPolicy, HostRoot,
    beneath::{self, Bounds},
    error::{denied, failed, worded},
    policy::normal,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A path of the host: a directory that was allowed, held open, and what comes beneath it.
#[derive(Debug)]
pub(super) struct Location {
    root: OwnedFd,
    /// Names only; `.` for the root itself.
    beneath: PathBuf,
    /// As it is told to people.
    pub(super) shown: PathBuf,
    bounds: Bounds,
}

impl Location {
    /// Finds the allowed directory. Touches the host's files only to open that one, so it blocks.
    pub(super) fn find(policy: &HostPolicy, path: &Path, access: Access) -> Result<Self> {
        if policy.unrestricted {
            return Self::at_root(Path::new("/"), path, path, Bounds::Free);
        }
        let mut best: Option<(PathBuf, &HostRoot)> = None;
        for root in &policy.roots {
            let Some(rest) =
                root.names().iter().find_map(|name| Some(path.strip_prefix(name).ok()?.to_owned()))
            else {
                continue;
            };
            // The longest root leaves the shortest rest, and decides; of two that are equally long, the stricter.
            let len = |rest: &Path| rest.as_os_str().len();
            let is_better = best.as_ref().is_none_or(|(other, chosen)| {
                len(&rest) < len(other) || (len(&rest) == len(other) && chosen.write && !root.write)
            });
            if is_better {
                best = Some((rest, root));
            }
        }
        match best {
            Some((rest, root)) if root.write || access == Access::Read => {
                Self::at_root(&root.path, &rest, path, Bounds::Beneath)
            }
            Some(_) => Err(denied(path, "is allowed for reading only")),
            None if policy.roots.is_empty() => {
                Err(denied(path, "is on the host, and no host path is allowed"))
            }
            None => Err(denied(path, "is not below an allowed host path")),
        }
    }

    /// The root itself is opened by its path: it is the operator's choice, and may well be a link.
    fn at_root(root: &Path, rest: &Path, shown: &Path, bounds: Bounds) -> Result<Self> {
        let fd = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| failed("open", root, error))?;
        let rest = rest.strip_prefix("/").unwrap_or(rest);
        let beneath = if rest.as_os_str().is_empty() { PathBuf::from(".") } else { rest.to_owned() };
        Ok(Self { root: fd, beneath, shown: shown.to_owned(), bounds })
    }

    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.is_root() {
            // The allowed thing itself, which may be a file.
            return self.reopen_root(flags);
        }
        beneath::open(self.root.as_fd(), &self.beneath, flags, self.bounds)
    }

    fn reopen_root(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        match beneath::open(self.root.as_fd(), Path::new("."), flags, self.bounds) {
            // Our own descriptor, which leads nowhere but to what was allowed.
            Err(Errno::NOTDIR) => {
                let own = format!("/proc/self/fd/{}", self.root.as_raw_fd());
                openat(CWD, own, hostfiles::quiet(flags), Mode::empty())
            }
            result => result,
        }
    }

    fn is_root(&self) -> bool {
        self.beneath == Path::new(".")
    }

    pub(super) fn into_source(self) -> Result<hostfiles::Source> {
        hostfiles::Source::open(self.shown.clone(), |flags| self.open(flags)).map_err(worded)
    }

    /// Opens the directory that this is to be, making what is missing of it.
    pub(super) fn make_directory(&self) -> Result<OwnedFd> {
        let made = if self.is_root() {
            self.open(OFlags::PATH | OFlags::DIRECTORY)
        } else {
            beneath::make_directories(self.root.as_fd(), &self.beneath, self.bounds)
        };
        made.map_err(|errno| failed("write", &self.shown, errno))
    }

    /// Begins the file that this is to be, making the directories above it.
    pub(super) fn begin_file(&self, mode: u32) -> Result<Draft> {
        let refused = |errno| failed("write", &self.shown, errno);
        // The allowed directory itself, or a single file that is allowed: its neighbours are not.
        if self.is_root() {
            return Err(refused(Errno::ISDIR));
        }
        let above = self.beneath.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        let directory = beneath::make_directories(self.root.as_fd(), above, self.bounds).map_err(refused)?;
        Draft::begin(directory, self.shown.clone(), Some(mode)).map_err(worded)
    }
}

/// Whether this caller may touch the host at all, and the absolute path that it means.
pub(super) fn meant(caller: HostCaller<'_>, path: &str) -> Result<PathBuf> {
    if caller.who.scope != Scope::All {
        return Err(denied(
            Path::new(path),
            "is on the host, which a caller with one namespace cannot access",
        )
        .with_hint("Write and read the content itself instead."));
    }
    if path.is_empty() || path.contains('\0') {
        return Err(Error::invalid("the host path is empty or contains a NUL byte")
            .with_hint("Give an absolute path."));
    }
    if path == "~" || path.starts_with("~/") {
        return Err(Error::invalid(format!("the host path {path:?} starts with ~, which is not expanded"))
            .with_hint("Give the full path of the home directory."));
    }
    let path = Path::new(path);
    match (path.is_absolute(), &caller.policy.working_directory) {
        (true, _) => Ok(normal(path)),
        (false, Some(directory)) if directory.is_absolute() => Ok(normal(&directory.join(path))),
        (false, _) => Err(Error::invalid(format!("the host path {} is not absolute", path.display()))
            .with_hint("Give a path that starts with /.")),
    }
}
