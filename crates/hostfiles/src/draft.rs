//! A file that is written beside its place and moved there, so that nobody sees half of it.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fchmod, ftruncate, openat, renameat, symlinkat, unlinkat},
    io::Errno,
};

use crate::{Error, Result, directory::kind_at};

/// Names tried for a file on its way.
const MAX_TRIES: usize = 16;
/// Bits that lend the owner's rights do not come out of a sandbox.
const PERMISSIONS: u32 = 0o777;

/// Dropped before [`Draft::commit`] it is gone.
#[derive(Debug)]
pub struct Draft {
    directory: OwnedFd,
    beside: String,
    name: OsString,
    /// The whole path, for messages.
    shown: PathBuf,
    mode: Option<u32>,
    file: File,
    n_bytes: u64,
    is_in_place: bool,
}

impl Draft {
    /// A file named as `shown` is, in `directory`. Without `mode` the umask decides; a file with one is nobody else's
    /// until it is in place.
    pub fn begin(directory: OwnedFd, shown: PathBuf, mode: Option<u32>) -> Result<Self> {
        let failed = |errno| Error::io("write", &shown, errno);
        let Some(name) = shown.file_name().map(OsStr::to_owned) else { return Err(failed(Errno::ISDIR)) };
        // Told early; moving into place is what decides.
        refuse_odd(&directory, &name, &shown)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let first = Mode::from_raw_mode(if mode.is_some() { 0o600 } else { 0o666 });
        let (beside, fd) = beside(|beside| openat(&directory, beside, flags, first)).map_err(failed)?;
        let file = File::from(fd);
        Ok(Self { directory, beside, name, shown, mode, file, n_bytes: 0, is_in_place: false })
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        archive::write_sparsely(&self.file, self.n_bytes, bytes)
            .map_err(|error| Error::of_io("write", &self.shown, &error))?;
        self.n_bytes += bytes.len() as u64;
        Ok(())
    }

    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    pub fn commit(mut self) -> Result<()> {
        let placed = self.place();
        placed.map_err(|errno| Error::io("write", &self.shown, errno))
    }

    fn place(&mut self) -> Result<(), Errno> {
        // It may end with a hole.
        ftruncate(&self.file, self.n_bytes)?;
        if let Some(mode) = self.mode {
            fchmod(&self.file, Mode::from_raw_mode(mode & PERMISSIONS))?;
        }
        renameat(&self.directory, &*self.beside, &self.directory, &*self.name)?;
        self.is_in_place = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_in_place {
            // Whoever removed it before us did what was wanted.
            unlinkat(&self.directory, &*self.beside, AtFlags::empty()).unwrap_or(());
        }
    }
}

/// Makes a link named as `shown` is; it takes the place of a file or a link.
pub fn replace_link(directory: impl AsFd, shown: PathBuf, target: &OsStr) -> Result<()> {
    let failed = |errno| Error::io("write", &shown, errno);
    let Some(name) = shown.file_name() else { return Err(failed(Errno::ISDIR)) };
    refuse_odd(&directory, name, &shown)?;
    let (beside, ()) = beside(|beside| symlinkat(target, &directory, beside)).map_err(failed)?;
    renameat(&directory, &*beside, &directory, name).map_err(|errno| {
        unlinkat(&directory, &*beside, AtFlags::empty()).unwrap_or(());
        failed(errno)
    })
}

/// Files and links are replaced; whatever else is there stays.
fn refuse_odd(directory: impl AsFd, name: &OsStr, shown: &std::path::Path) -> Result<()> {
    match kind_at(directory, name) {
        Ok(FileType::RegularFile | FileType::Symlink) | Err(_) => Ok(()),
        Ok(_) => Err(Error::InTheWay { path: shown.to_owned(), is_link: false }),
    }
}

/// Makes something under a name that is not taken.
fn beside<T>(make: impl Fn(&str) -> Result<T, Errno>) -> Result<(String, T), Errno> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..MAX_TRIES {
        let name = format!(".warren-{}-{}.part", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return Ok((name, made?)),
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::*;

    #[test]
    fn a_copy_that_is_given_up_leaves_no_part_of_a_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a");
        let begin =
            || Draft::begin(fs::File::open(home.path()).unwrap().into(), path.clone(), Some(0o4755)).unwrap();
        let mut half = begin();
        half.append(b"half").unwrap();
        drop(half);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        let mut whole = begin();
        whole.append(b"whole").unwrap();
        whole.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
    }

    #[test]
    fn a_link_replaces_files_and_links_only() {
        let home = tempfile::tempdir().unwrap();
        let directory = fs::File::open(home.path()).unwrap();
        let link =
            |name: &str, target: &str| replace_link(&directory, home.path().join(name), target.as_ref());
        fs::write(home.path().join("file"), "").unwrap();
        fs::create_dir(home.path().join("directory")).unwrap();
        for (name, target) in [("new", "one"), ("new", "two"), ("file", "two")] {
            link(name, target).unwrap();
            assert_eq!(fs::read_link(home.path().join(name)).unwrap(), Path::new(target));
        }
        assert!(matches!(link("directory", "x"), Err(Error::InTheWay { .. })));
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 3);
    }
}
