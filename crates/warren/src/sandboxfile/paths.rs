//! The paths of this machine that a Sandboxfile may use: those below its own directory, and those that the user allows.
//!
//! A Sandboxfile comes with a repository, so it may be a stranger's: without this, `warren up` would be enough to mount
//! the home directory of whoever runs it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use sandbox::{Error, ErrorKind, Result};

use super::file::read_regular;

#[derive(Debug)]
pub(super) struct HostPaths {
    /// Without links. The project's own directory first.
    roots: Vec<PathBuf>,
}

impl HostPaths {
    pub(super) fn new(directory: &Path, allowed: &[PathBuf]) -> Result<Self> {
        let mut roots = vec![directory.to_owned()];
        for path in allowed {
            roots.push(fs::canonicalize(path).map_err(|error| missing(path, &error))?);
        }
        Ok(Self { roots })
    }

    /// The real path of `text`, which is relative to the project's directory unless it is absolute.
    pub(super) fn resolve(&self, text: &str) -> Result<PathBuf> {
        let written = self.roots[0].join(text);
        let path = fs::canonicalize(&written).map_err(|error| missing(&written, &error))?;
        if self.roots.iter().any(|root| path.starts_with(root)) {
            return Ok(path);
        }
        let message = format!("{} is outside of the project's directory", path.display());
        Err(Error::new(ErrorKind::Denied, message)
            .with_hint(format!("If you trust this file with it, pass --allow-host-path {}.", path.display())))
    }

    /// The text of a file, which is read from where the check found it, or not at all.
    pub(super) fn read(&self, text: &str, limit: u64) -> Result<String> {
        let path = self.resolve(text)?;
        // Somebody may have put a link there since; opening a pipe must not block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let unlinked = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(CWD, &path, flags, Mode::empty(), unlinked);
        let read = opened.map_err(io::Error::from).and_then(|file| read_regular(file.into(), limit));
        read.map_err(|error| missing(&path, &error))
    }
}

fn missing(path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::InvalidRequest,
    };
    Error::new(kind, format!("cannot use {}: {error}", path.display()))
        .with_hint("Paths are relative to the directory of the Sandboxfile.")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_the_project_and_what_is_allowed_can_be_used() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let (project, other) = (root.join("project"), root.join("other"));
        for directory in [&project, &other, &project.join("data")] {
            fs::create_dir(directory).unwrap();
        }
        symlink(&other, project.join("way-out")).unwrap();
        let paths = HostPaths::new(&project, &[]).unwrap();
        assert_eq!(paths.resolve("./data").unwrap(), project.join("data"));
        assert_eq!(paths.resolve(".").unwrap(), project);
        for outside in ["..", "../other", "way-out", "/", "/etc", "data/../../other"] {
            let error = paths.resolve(outside).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(crate::error::hint(&error).unwrap().contains("--allow-host-path /"), "{error}");
        }
        assert_eq!(paths.resolve("nothing").unwrap_err().kind(), ErrorKind::NotFound);
        let wider = HostPaths::new(&project, std::slice::from_ref(&other)).unwrap();
        assert_eq!(wider.resolve("way-out").unwrap(), other);
        // The beginning of a name is no directory.
        fs::create_dir(root.join("project-2")).unwrap();
        assert!(paths.resolve("../project-2").is_err());
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::write(root.join("env"), "A=1\n").unwrap();
        let paths = HostPaths::new(&root, &[]).unwrap();
        assert_eq!(paths.read("env", 4).unwrap(), "A=1\n");
        assert!(paths.read("env", 3).unwrap_err().to_string().contains("longer than 3 bytes"));
        assert!(paths.read(".", 3).unwrap_err().to_string().contains("not a regular file"));
        rustix::fs::mkfifoat(CWD, root.join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        assert!(paths.read("pipe", 3).unwrap_err().to_string().contains("not a regular file"));
    }
}
