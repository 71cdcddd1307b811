//! From the fresh directory into place.

use std::{
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType},
    io::Errno,
};

use super::unpack::open_directory;

/// Moves what is in `from` into `into`: directories are merged, everything else is replaced. Links are moved, never followed.
/// `shown` is where `into` is, for messages.
pub(super) fn merge(from: &OwnedFd, into: &OwnedFd, shown: &Path) -> io::Result<()> {
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = |directory: &OwnedFd| {
            rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map(|found| FileType::from_raw_mode(found.st_mode))
        };
        let is_directory = kind(from)? == FileType::Directory;
        match kind(into) {
            Ok(FileType::Directory) if is_directory => {
                merge(&open_directory(from, name)?, &open_directory(into, name)?, &shown.join(name))?;
            }
            Ok(found) if (found == FileType::Directory) != is_directory => {
                let message = format!("{} is in the way", shown.join(name).display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
            Ok(_) | Err(Errno::NOENT) => rustix::fs::renameat(from, name, into, name)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::PathBuf};

    use super::*;

    struct Scene {
        place: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let scene = Self { place: tempfile::tempdir().unwrap() };
            for directory in ["from", "into", "outside"] {
                fs::create_dir(scene.at(directory)).unwrap();
            }
            scene
        }

        fn at(&self, path: &str) -> PathBuf {
            self.place.path().join(path)
        }

        fn merge(&self) -> io::Result<()> {
            let open = |path: &str| fs::File::open(self.at(path)).unwrap().into();
            merge(&open("from"), &open("into"), &self.at("into"))
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
        assert_eq!(scene.merge().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
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
        assert_eq!(scene.merge().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!scene.at("outside/key").exists());
    }
}
