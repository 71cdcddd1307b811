//! Where an archive is written to.

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process,
};

use sandbox::Error;
use tokio::fs::File;

use crate::error::{CommandResult, io_failure};

/// Links followed before it is called a circle.
const MAX_LINKS: usize = 40;
/// What may be set anew on a file that takes another's place.
const PERMISSIONS: u32 = 0o777;

/// Who may read an archive that was not there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Whoever the umask lets.
    Usual,
    /// Its owner alone: it may hold secrets.
    Owner,
}

impl Readers {
    fn mode(self) -> u32 {
        match self {
            Self::Usual => 0o666,
            Self::Owner => 0o600,
        }
    }
}

/// An open file, and how what was written becomes visible.
#[derive(Debug)]
pub(crate) struct Landing {
    pub(crate) file: File,
    /// As the caller named it.
    shown: PathBuf,
    /// Absent where there is something to write into: a pipe, a device.
    fresh: Option<Fresh>,
}

/// A file beside the one whose place it takes: what breaks off leaves what was there.
#[derive(Debug)]
struct Fresh {
    beside: PathBuf,
    target: PathBuf,
    /// Of the file that is there.
    mode: Option<u32>,
    is_placed: bool,
}

impl Landing {
    pub(crate) async fn at(path: &Path, readers: Readers) -> CommandResult<Self> {
        let failed = |error| io_failure(format!("could not write {}", path.display()), error);
        let shown = path.to_owned();
        let mode = match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(is_directory(path)),
            // Opened by a thread of its own: a pipe that nobody reads makes it wait.
            Ok(found) if !found.is_file() => {
                let file = File::options().write(true).open(path).await.map_err(failed)?;
                return Ok(Self { file, shown, fresh: None });
            }
            Ok(found) => Some(found.permissions().mode() & PERMISSIONS),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let target = behind_links(path).map_err(failed)?;
        let Some(name) = target.file_name() else { return Err(is_directory(path)) };
        let beside = target.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), process::id()));
        // One that replaces another gets its mode at the end, and is nobody's until then.
        let first = mode.map_or_else(|| readers.mode(), |_later| Readers::Owner.mode());
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(first).open(&beside);
        let file = File::from_std(file.map_err(failed)?);
        Ok(Self { file, shown, fresh: Some(Fresh { beside, target, mode, is_placed: false }) })
    }

    /// Everything was written.
    pub(crate) fn land(mut self) -> CommandResult<()> {
        let placed = self.fresh.as_mut().map_or(Ok(()), Fresh::place);
        placed.map_err(|error| io_failure(format!("could not write {}", self.shown.display()), error))
    }
}

impl Fresh {
    fn place(&mut self) -> io::Result<()> {
        if let Some(mode) = self.mode {
            fs::set_permissions(&self.beside, fs::Permissions::from_mode(mode))?;
        }
        fs::rename(&self.beside, &self.target)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.is_placed {
            // What cannot be removed is named after us; there is nobody to tell.
            fs::remove_file(&self.beside).ok();
        }
    }
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
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn write(path: &Path, readers: Readers) -> CommandResult<()> {
        let mut landing = Landing::at(path, readers).await?;
        landing.file.write_all(b"new").await?;
        landing.file.flush().await?;
        landing.land()
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
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for (name, before) in [("open", 0o644), ("mine", 0o600)] {
            fs::write(at(name), "old").unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(before)).unwrap();
            write(&at(name), Readers::Usual).await.unwrap();
            assert_eq!((mode(&at(name)), fs::read(at(name)).unwrap()), (before, b"new".to_vec()));
        }
        write(&at("secret"), Readers::Owner).await.unwrap();
        assert_eq!(mode(&at("secret")), 0o600);
        assert_eq!(names(place.path()), ["mine", "open", "secret"]);
    }

    #[tokio::test]
    async fn a_link_stays_and_what_it_means_is_written() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
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
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        let made = rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU);
        made.unwrap();
        let reading = tokio::task::spawn_blocking({
            let pipe = pipe.clone();
            move || fs::read(pipe)
        });
        write(&pipe, Readers::Usual).await.unwrap();
        assert_eq!(reading.await.unwrap().unwrap(), b"new");
        assert_eq!(names(place.path()), ["pipe"]);
    }

    #[tokio::test]
    async fn what_breaks_off_leaves_what_was_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, "old").unwrap();
        drop(Landing::at(&path, Readers::Usual).await.unwrap());
        assert_eq!(
            (names(place.path()), fs::read(&path).unwrap()),
            (vec!["file".to_owned()], b"old".to_vec())
        );
        let refused = |path: &Path| {
            let path = path.to_owned();
            async move { Landing::at(&path, Readers::Usual).await.unwrap_err().kind() }
        };
        assert_eq!(refused(place.path()).await, Some(ErrorKind::InvalidRequest));
        assert_eq!(refused(&place.path().join("nowhere/file")).await, Some(ErrorKind::NotFound));
    }
}
