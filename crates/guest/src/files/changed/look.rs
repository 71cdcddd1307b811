//! One search through a tree, in pieces: some of it at once, the rest on a thread.

use std::{
    ffi::{CStr, CString, OsStr},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    time::Instant,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags},
    io::Errno,
};

use super::{Stamp, skipped};
use crate::files::{entry::QUIET, walk::is_pseudo};

/// Most files reported.
const MAX_FILES: usize = 100;
/// Most bytes of their paths: the report is one event.
const MAX_PATH_BYTES: usize = 32 * 1024;
/// Directories open at once, and so the deepest tree.
const MAX_DEPTH: usize = 64;
/// Entries between two checks of the time.
const TIME_EVERY: usize = 64;

const WANTED: StatxFlags =
    StatxFlags::TYPE.union(StatxFlags::SIZE).union(StatxFlags::CTIME).union(StatxFlags::BTIME);

/// A file that was changed.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) path: String,
    pub(super) size: u64,
    /// It was also created since, as far as the file system records that.
    pub(super) is_new: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    MoreToSee,
}

#[derive(Debug)]
struct Level {
    directory: Dir,
    relative: PathBuf,
    /// Its subdirectories, entered after all its files were seen.
    inner: Vec<CString>,
    /// Number of changed files before this level.
    n_found: usize,
    is_read: bool,
}

#[derive(Debug)]
pub(super) struct Look {
    root: PathBuf,
    since: Stamp,
    levels: Vec<Level>,
    found: Vec<Changed>,
    n_path_bytes: usize,
    newest: Stamp,
    /// Not everything was searched, or not everything fits.
    pub(super) is_partial: bool,
}

impl Look {
    pub(super) fn open(root: &Path, since: Stamp) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | QUIET;
        let directory = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
        let mut look = Self {
            root: root.to_owned(),
            since,
            levels: Vec::new(),
            found: Vec::new(),
            n_path_bytes: 0,
            newest: (0, 0),
            is_partial: false,
        };
        look.enter(directory, PathBuf::new())?;
        Ok(look)
    }

    pub(super) fn found(&self) -> &[Changed] {
        &self.found
    }

    /// The latest change time of all files seen.
    pub(super) fn newest(&self) -> Stamp {
        self.newest
    }

    /// Searches up to this many more entries.
    pub(super) fn go_on(&mut self, n_entries: usize, give_up_at: Instant) -> Progress {
        for n in 1..=n_entries {
            let Some(level) = self.levels.last_mut() else { return Progress::Done };
            if n % TIME_EVERY == 0 && Instant::now() >= give_up_at {
                return Progress::MoreToSee;
            }
            match level.is_read {
                true => self.enter_next(),
                false => self.see_next(),
            }
            if self.found.len() > MAX_FILES || self.n_path_bytes > MAX_PATH_BYTES {
                self.found.pop();
                self.is_partial = true;
                return Progress::Done;
            }
        }
        if self.levels.is_empty() { Progress::Done } else { Progress::MoreToSee }
    }

    fn see_next(&mut self) {
        let is_root = self.levels.len() == 1;
        let Some(level) = self.levels.last_mut() else { return };
        let entry = match level.directory.read() {
            Some(Ok(entry)) => entry,
            // Removed while it was read.
            Some(Err(_)) | None => {
                level.is_read = true;
                return;
            }
        };
        let name = entry.file_name();
        let text = name.to_bytes();
        if text == b"." || text == b".." {
            return;
        }
        if text == skipped::CACHE_TAG && !is_root {
            let left_out = self.found.split_off(level.n_found.min(self.found.len()));
            self.n_path_bytes -= left_out.iter().map(|found| found.path.len()).sum::<usize>();
            level.inner.clear();
            level.is_read = true;
            return;
        }
        match entry.file_type() {
            FileType::Directory => self.note_directory(name),
            FileType::RegularFile => self.see_file(name),
            // Some file systems do not report the type.
            FileType::Unknown => match self.stat(name).map(|stat| kind_of(&stat)) {
                Some(FileType::Directory) => self.note_directory(name),
                Some(FileType::RegularFile) => self.see_file(name),
                _ => {}
            },
            _ => {}
        }
    }

    fn note_directory(&mut self, name: &CStr) {
        let is_in_root = self.levels.len() == 1 && self.root == Path::new("/");
        if let Some(level) = self.levels.last_mut()
            && !skipped::directory(name.to_bytes(), is_in_root)
        {
            level.inner.push(name.to_owned());
        }
    }

    fn stat(&self, name: &CStr) -> Option<Statx> {
        let directory = self.levels.last()?.directory.fd().ok()?;
        // Removed since the directory was read: nothing to report.
        rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, WANTED).ok()
    }

    fn see_file(&mut self, name: &CStr) {
        if skipped::file(name.to_bytes()) {
            return;
        }
        let Some(stat) = self.stat(name) else { return };
        let changed = (stat.stx_ctime.tv_sec, i64::from(stat.stx_ctime.tv_nsec));
        self.newest = self.newest.max(changed);
        if !is_since(changed, self.since) {
            return;
        }
        let Some(level) = self.levels.last() else { return };
        let path = self.root.join(&level.relative).join(OsStr::from_bytes(name.to_bytes()));
        // A path that is not text could not be requested.
        let Some(path) = path.to_str() else {
            self.is_partial = true;
            return;
        };
        let born = (stat.stx_btime.tv_sec, i64::from(stat.stx_btime.tv_nsec));
        let tells_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        self.n_path_bytes += path.len();
        self.found.push(Changed {
            path: path.to_owned(),
            size: stat.stx_size,
            is_new: !tells_birth || is_since(born, self.since),
        });
    }

    /// Enters the next directory of the last level, or leaves the level.
    fn enter_next(&mut self) {
        let Some(level) = self.levels.last_mut() else { return };
        let Some(name) = level.inner.pop() else {
            self.levels.pop();
            return;
        };
        let relative = level.relative.join(OsStr::from_bytes(name.to_bytes()));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | QUIET;
        let opened = level.directory.fd().and_then(|fd| rustix::fs::openat(fd, &name, flags, Mode::empty()));
        match opened {
            Ok(directory) if self.levels.len() < MAX_DEPTH => {
                self.is_partial |= self.enter(directory, relative).is_err();
            }
            // Swapped or removed meanwhile: whatever is there now is not what we saw.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            _ => self.is_partial = true,
        }
    }

    fn enter(&mut self, directory: OwnedFd, relative: PathBuf) -> Result<(), Errno> {
        if is_pseudo(&directory) {
            return Ok(());
        }
        let directory = Dir::new(directory)?;
        let (inner, n_found) = (Vec::new(), self.found.len());
        self.levels.push(Level { directory, relative, inner, n_found, is_read: false });
        Ok(())
    }
}

fn kind_of(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// Whether a file's time is not before `since`. Some file systems keep whole seconds.
fn is_since(time: Stamp, since: Stamp) -> bool {
    time >= since || (time.1 == 0 && time.0 >= since.0)
}
