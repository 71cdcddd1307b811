//! From a fresh directory into place.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    process,
};

use rustix::{
    fs::{FileType, Mode, fstat, mkdirat, readlinkat, renameat},
    io::Errno,
};

use crate::{
    Draft, Error, Result,
    directory::{LISTED, READ, kind_at, make_directory, names, step},
    draft::replace_link,
    pipe::each_chunk,
};

/// Names tried for a directory that must be fresh.
const MAX_STAGING_TRIES: u32 = 100;

/// A fresh directory in the target, removed with what is left in it.
#[derive(Debug)]
pub(crate) struct Staging<'a> {
    parent: &'a OwnedFd,
    name: OsString,
    directory: OwnedFd,
}

impl<'a> Staging<'a> {
    pub(crate) fn new(parent: &'a OwnedFd, shown: &Path) -> Result<Self> {
        let failed = |errno| Error::io("write", shown, errno);
        for n in 0..MAX_STAGING_TRIES {
            let name = OsString::from(format!(".warren-cp-{}-{n}", process::id()));
            match mkdirat(parent, &name, Mode::RWXU) {
                Ok(()) => {
                    let directory = step(parent, &name, LISTED).map_err(failed)?;
                    return Ok(Self { parent, name, directory });
                }
                // In use, or left by a process that was killed and had our number.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(failed(Errno::EXIST))
    }

    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        // By our descriptor of the parent, whatever its path leads to by now.
        let own = Path::new("/proc/self/fd").join(self.parent.as_raw_fd().to_string());
        // What cannot be removed is named after us; there is nobody to tell.
        fs::remove_dir_all(own.join(&self.name)).unwrap_or(());
    }
}

/// Moves what is in `from` into `into`: directories are merged, files and links are replaced. Links are moved, never
/// followed.
pub(crate) fn merge(from: &OwnedFd, into: &OwnedFd, shown: &Path) -> Result<()> {
    let failed = |errno| Error::io("list", shown, errno);
    for name in names(from.as_fd(), failed, |_n_names| Ok(()))? {
        let shown = shown.join(&name);
        let failed = |errno| Error::io("write", &shown, errno);
        let kind = kind_at(from, &name).map_err(failed)?;
        match (kind, kind_at(into, &name)) {
            (FileType::Directory, Ok(FileType::Directory)) => {
                let open = |parent| step(parent, &name, LISTED).map_err(failed);
                merge(&open(from)?, &open(into)?, &shown)?;
            }
            (_, Err(Errno::NOENT)) => place(from, into, &name, kind, &shown)?,
            (_, Err(errno)) => return Err(failed(errno)),
            (FileType::Directory, Ok(there)) => {
                return Err(Error::InTheWay { path: shown, is_link: there == FileType::Symlink });
            }
            (_, Ok(FileType::RegularFile | FileType::Symlink)) => place(from, into, &name, kind, &shown)?,
            (_, Ok(_)) => return Err(Error::InTheWay { path: shown, is_link: false }),
        }
    }
    Ok(())
}

fn place(from: &OwnedFd, into: &OwnedFd, name: &OsStr, kind: FileType, shown: &Path) -> Result<()> {
    match renameat(from, name, into, name) {
        // Another file system is mounted there.
        Err(Errno::XDEV) => carry(from, into, name, kind, shown),
        moved => moved.map_err(|errno| Error::io("write", shown, errno)),
    }
}

/// Copies what cannot be moved; the original goes with the staging directory.
fn carry(from: &OwnedFd, into: &OwnedFd, name: &OsStr, kind: FileType, shown: &Path) -> Result<()> {
    let failed = |errno| Error::io("write", shown, errno);
    match kind {
        FileType::Directory => {
            let source = step(from, name, LISTED).map_err(failed)?;
            let mode = Mode::from_raw_mode(fstat(&source).map_err(failed)?.st_mode);
            merge(&source, &make_directory(into, name, mode, LISTED).map_err(failed)?, shown)
        }
        FileType::Symlink => {
            let target = readlinkat(from, name, Vec::new()).map_err(failed)?;
            replace_link(into, shown.to_owned(), OsStr::from_bytes(target.to_bytes()))
        }
        _ => {
            let mut source = File::from(step(from, name, READ).map_err(failed)?);
            let mode = fstat(&source).map_err(failed)?.st_mode;
            let into = into.try_clone().map_err(|error| Error::of_io("write", shown, &error))?;
            let mut draft = Draft::begin(into, shown.to_owned(), Some(mode))?;
            let unreadable = |error: &_| Error::of_io("read", shown, error);
            each_chunk(&mut source, unreadable, |chunk| draft.append(chunk))?;
            draft.commit()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, path::PathBuf};

    use super::*;

    struct Scene {
        home: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let scene = Self { home: tempfile::tempdir().unwrap() };
            for directory in ["from", "into", "outside"] {
                fs::create_dir(scene.at(directory)).unwrap();
            }
            scene
        }

        fn at(&self, path: &str) -> PathBuf {
            self.home.path().join(path)
        }

        fn open(&self, path: &str) -> OwnedFd {
            File::open(self.at(path)).unwrap().into()
        }

        fn merge(&self) -> Result<()> {
            merge(&self.open("from"), &self.open("into"), &self.at("into"))
        }
    }

    #[test]
    fn merging_keeps_what_else_is_there() {
        let scene = Scene::new();
        fs::create_dir(scene.at("from/d")).unwrap();
        fs::create_dir(scene.at("into/d")).unwrap();
        fs::write(scene.at("from/d/new"), "new").unwrap();
        fs::write(scene.at("into/d/old"), "old").unwrap();
        scene.merge().unwrap();
        assert!(scene.at("into/d/new").exists() && scene.at("into/d/old").exists());
        fs::write(scene.at("from/e"), "file").unwrap();
        fs::create_dir(scene.at("into/e")).unwrap();
        assert_eq!(scene.merge(), Err(Error::InTheWay { path: scene.at("into/e"), is_link: false }));
    }

    #[test]
    fn a_link_that_came_is_moved_and_what_it_points_to_stays() {
        let scene = Scene::new();
        fs::write(scene.at("outside/key"), "mine").unwrap();
        symlink(scene.at("outside"), scene.at("from/d")).unwrap();
        scene.merge().unwrap();
        assert_eq!(fs::read_link(scene.at("into/d")).unwrap(), scene.at("outside"));
        assert!(scene.at("outside/key").exists());
    }

    /// One copy left a link here; the next one must not write through it.
    #[test]
    fn a_directory_does_not_go_through_a_link_that_is_there() {
        let scene = Scene::new();
        symlink(scene.at("outside"), scene.at("into/d")).unwrap();
        fs::create_dir(scene.at("from/d")).unwrap();
        fs::write(scene.at("from/d/key"), "theirs").unwrap();
        assert_eq!(scene.merge(), Err(Error::InTheWay { path: scene.at("into/d"), is_link: true }));
        assert!(!scene.at("outside/key").exists());
    }

    #[test]
    fn what_cannot_be_moved_is_carried() {
        let scene = Scene::new();
        fs::create_dir_all(scene.at("from/d/sub")).unwrap();
        fs::write(scene.at("from/d/sub/file"), "new").unwrap();
        symlink("sub/file", scene.at("from/d/link")).unwrap();
        let (from, into) = (scene.open("from"), scene.open("into"));
        for (name, kind) in [("d", FileType::Directory), ("d", FileType::Directory)] {
            carry(&from, &into, OsStr::new(name), kind, &scene.at("into/d")).unwrap();
            fs::create_dir_all(scene.at("from/d/sub")).unwrap();
        }
        let sub = |path: &str| (scene.open(&format!("from/{path}")), scene.open(&format!("into/{path}")));
        let (from, into) = sub("d");
        fs::write(scene.at("from/d/file"), "carried").unwrap();
        symlink("file", scene.at("from/d/other")).unwrap();
        carry(&from, &into, OsStr::new("file"), FileType::RegularFile, &scene.at("into/d/file")).unwrap();
        carry(&from, &into, OsStr::new("other"), FileType::Symlink, &scene.at("into/d/other")).unwrap();
        assert_eq!(fs::read_to_string(scene.at("into/d/sub/file")).unwrap(), "new");
        assert_eq!(fs::read_to_string(scene.at("into/d/other")).unwrap(), "carried");
        assert!(scene.at("from/d/file").exists(), "it goes with the staging directory");
    }

    #[test]
    fn a_staging_directory_goes_with_what_is_in_it() {
        let scene = Scene::new();
        let into = scene.open("into");
        let (one, two) = (Staging::new(&into, &scene.at("into")), Staging::new(&into, &scene.at("into")));
        drop(one.unwrap());
        let two = two.unwrap();
        fs::create_dir(scene.at("into").join(&two.name).join("d")).unwrap();
        // Somebody moves the target meanwhile, and puts a link in its place.
        fs::rename(scene.at("into"), scene.at("moved")).unwrap();
        symlink(scene.at("outside"), scene.at("into")).unwrap();
        drop(two);
        assert_eq!(fs::read_dir(scene.at("moved")).unwrap().count(), 0);
    }
}
