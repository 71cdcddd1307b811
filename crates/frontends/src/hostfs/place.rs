//! Which directory a host path lies beneath, and whether it may be touched.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use engine::Scope;
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};
use sandbox::{Error, ErrorKind, Result, Thing};

use super::{
    HostCaller, HostPolicy, HostRoot,
    beneath::{self, Bounds},
    policy::normal,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A path of the host: a directory that was allowed, held open, and what comes beneath it.
#[derive(Debug)]
pub(super) struct Place {
    root: OwnedFd,
    /// Names only; `.` for the root itself.
    pub(super) beneath: PathBuf,
    /// As it is told to people.
    pub(super) shown: PathBuf,
    bounds: Bounds,
}

impl Place {
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
                use std::os::fd::AsRawFd;
                let own = format!("/proc/self/fd/{}", self.root.as_raw_fd());
                openat(CWD, own, beneath::quiet(flags), Mode::empty())
            }
            result => result,
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.beneath == Path::new(".")
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
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

pub(super) fn denied(path: &Path, why: &str) -> Error {
    let shown = path.display().to_string();
    Error::new(ErrorKind::Denied, format!("{shown} {why}")).about(Thing::HostPath, shown)
}

/// What the kernel said of a host path.
pub(super) fn failed(what: &str, path: &Path, errno: Errno) -> Error {
    let at = path.display();
    let error = match errno {
        Errno::XDEV => return denied(path, "leads out of the allowed directory"),
        Errno::LOOP => return denied(path, "leads through a symbolic link that is not followed"),
        Errno::NOENT => Error::not_found(format!("{at} does not exist on the host"))
            .with_hint("Check the path: it is a path on the host, not in the sandbox."),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            Error::new(ErrorKind::Denied, format!("could not {what} {at} on the host: {errno}"))
                .with_hint("The daemon's user does not have permission.")
        }
        Errno::EXIST | Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY => {
            Error::new(ErrorKind::WrongState, format!("could not {what} {at} on the host: {errno}"))
                .with_hint("A file of another kind exists there; choose another host path.")
        }
        Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE => {
            Error::new(ErrorKind::Unavailable, format!("could not {what} {at} on the host: {errno}"))
        }
        Errno::AGAIN => Error::new(
            ErrorKind::Unavailable,
            format!("{at} was moved on the host while it was being opened"),
        ),
        _ => Error::new(ErrorKind::Internal, format!("could not {what} {at} on the host: {errno}")),
    };
    error.with_source(std::io::Error::from(errno))
}
