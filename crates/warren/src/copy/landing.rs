//! The file on this machine that a copy is written to.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt as _};
use hostfiles::Draft;
use rustix::fs::{Mode, OFlags};
use sandbox::Error;
use tokio::fs::File;

use super::{error::worded, pour};
use crate::error::{CommandResult, io_failure};

/// Links followed before it is called a circle.
const MAX_LINKS: usize = 40;

/// The users who may read an archive that was not there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Everybody whom the umask lets.
    Usual,
    /// Its owner alone: it may hold secrets.
    Owner,
}

/// An open file, and how what was written becomes visible.
#[derive(Debug)]
pub(crate) enum Landing {
    /// A pipe or a device, with its path.
    Open(File, PathBuf),
    /// A file beside the one whose place it takes: what breaks off leaves what was there.
    Beside(Draft),
}

impl Landing {
    /// For an archive: a link stays, and a file that is there keeps its mode.
    pub(crate) async fn at(path: &Path, readers: Readers) -> CommandResult<Self> {
        let failed = |error| io_failure(could_not_write(path), error);
        let mode = match fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(is_directory(path)),
            Ok(there) if !there.is_file() => return Self::open(path).await,
            Ok(there) => Some(there.permissions().mode()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let target = behind_links(path).map_err(failed)?;
        if target.file_name().is_none() {
            return Err(is_directory(path));
        }
        Self::beside(target, mode.or((readers == Readers::Owner).then_some(0o600)))
    }

    /// For a file of a sandbox: a pipe or device that the caller named is written to; everything else is replaced.
    pub(super) async fn of_copy(path: &Path, is_named: bool, mode: u32) -> CommandResult<Self> {
        if is_named && fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Self::open(path).await;
        }
        Self::beside(path.to_owned(), Some(mode))
    }

    /// Opened by a thread of its own: a pipe that nobody reads makes it wait.
    async fn open(path: &Path) -> CommandResult<Self> {
        let file = File::options().write(true).open(path).await;
        Ok(Self::Open(file.map_err(|error| io_failure(could_not_write(path), error))?, path.to_owned()))
    }

    fn beside(target: PathBuf, mode: Option<u32>) -> CommandResult<Self> {
        let directory = open_directory_of(&target).map_err(worded)?;
        Ok(Self::Beside(Draft::begin(directory, target, mode).map_err(worded)?))
    }

    /// Writes everything that comes, and lets it be seen. Returns how many bytes it was.
    pub(crate) async fn take(
        self,
        mut bytes: impl Stream<Item = io::Result<Bytes>> + Unpin,
    ) -> CommandResult<u64> {
        match self {
            Self::Open(mut file, path) => {
                pour(bytes, &mut file).await.map_err(|error| io_failure(could_not_write(&path), error))
            }
            Self::Beside(mut draft) => {
                while let Some(piece) = bytes.try_next().await? {
                    draft.append(&piece).map_err(worded)?;
                }
                let n_bytes = draft.n_bytes();
                draft.commit().map_err(worded)?;
                Ok(n_bytes)
            }
        }
    }
}

fn could_not_write(path: &Path) -> String {
    format!("could not write {}", path.display())
}

/// The directory that a file is in, or is to be in. It need not be readable.
pub(super) fn open_directory_of(path: &Path) -> hostfiles::Result<OwnedFd> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty());
    opened.map_err(|errno| hostfiles::Error::io("write", path, errno))
}

/// The file that a path means, through links at its end, whether it is there or not.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            // No link (which is `EINVAL`), or nothing yet.
            Err(_not_a_link) => return Ok(path),
        }
    }
    Err(io::Error::from(rustix::io::Errno::LOOP))
}

fn is_directory(path: &Path) -> crate::error::CommandError {
    Error::invalid(format!("{} is a directory", path.display()))
        .with_hint("Name a file in it for the archive.")
        .into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use sandbox::ErrorKind;

    use super::*;

    async fn write(path: &Path, readers: Readers) -> CommandResult<()> {
        let bytes = futures_util::stream::iter([Ok(Bytes::from_static(b"new"))]);
        Landing::at(path, readers).await?.take(bytes).await.map(drop)
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_file_keeps_its_mode_and_a_fresh_one_may_be_its_owners_alone() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for (name, before) in [("open", 0o644), ("mine", 0o600)] {
            fs::write(at(name), "old").unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(before)).unwrap();
            write(&at(name), Readers::Usual).await.unwrap();
            assert_eq!((mode(&at(name)), fs::read(at(name)).unwrap()), (before, b"new".to_vec()));
        }
        write(&at("secret"), Readers::Owner).await.unwrap();
        assert_eq!(mode(&at("secret")), 0o600);
        assert_eq!(names(home.path()), ["mine", "open", "secret"]);
    }

    #[tokio::test]
    async fn a_link_stays_and_what_it_means_is_written() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir(at("there")).unwrap();
        fs::write(at("there/old"), "old").unwrap();
        symlink("there/old", at("link")).unwrap();
        symlink("there/fresh", at("dangling")).unwrap();
        symlink("circle", at("circle")).unwrap();
        for (link, target) in [("link", "there/old"), ("dangling", "there/fresh")] {
            write(&at(link), Readers::Usual).await.unwrap();
            assert_eq!(fs::read_link(at(link)).unwrap(), Path::new(target));
            assert_eq!(fs::read(at(target)).unwrap(), b"new");
        }
        assert!(write(&at("circle"), Readers::Usual).await.is_err());
    }

    #[tokio::test]
    async fn a_pipe_is_written_into() {
        let home = tempfile::tempdir().unwrap();
        let pipe = home.path().join("pipe");
        let made = rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU);
        made.unwrap();
        let reading = tokio::task::spawn_blocking({
            let pipe = pipe.clone();
            move || fs::read(pipe)
        });
        write(&pipe, Readers::Usual).await.unwrap();
        assert_eq!(reading.await.unwrap().unwrap(), b"new");
        assert_eq!(names(home.path()), ["pipe"]);
    }

    #[tokio::test]
    async fn what_breaks_off_leaves_what_was_there() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        fs::write(&path, "old").unwrap();
        drop(Landing::at(&path, Readers::Usual).await.unwrap());
        assert_eq!(
            (names(home.path()), fs::read(&path).unwrap()),
            (vec!["file".to_owned()], b"old".to_vec())
        );
        let refused = |path: &Path| {
            let path = path.to_owned();
            async move { Landing::at(&path, Readers::Usual).await.unwrap_err().kind() }
        };
        assert_eq!(refused(home.path()).await, Some(ErrorKind::InvalidRequest));
        assert_eq!(refused(&home.path().join("nowhere/file")).await, Some(ErrorKind::NotFound));
    }
}
