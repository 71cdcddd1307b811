//! The disk usage of a tree, while a hostile workload changes it.
//!
//! Streams every directory and keeps a bounded number of them open, however wide or deep the tree is: memory grows only
//! by a few words for each level of depth and each file with several names.

use std::{
    collections::HashSet,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, stat, statat};

use super::{open_directory, unlinked};
use crate::packet::{Reply, Unlinked};

/// Minimum cost of an inode: an empty file takes a share of the host's inodes and directories too.
const LEAST_INODE_BYTES: u64 = 4096;
/// Most files with several names that are recognized. Beyond that each name counts, which errs on the host's side.
const MAX_LINKED: usize = 1 << 20;
/// Levels from the top that stay open.
const OPEN_AT_THE_TOP: usize = 128;
/// Levels from the deepest that stay open. Those between are closed and found again by `..`.
const OPEN_AT_THE_BOTTOM: usize = 64;
/// A measurement ends after this time with what it has: a tree that grows as fast as it is walked has no end.
const MEASURE_TIME: Duration = Duration::from_secs(60);

/// Bytes of the files below `paths`, and of unlinked files that the processes of `guest` hold open. A file with several
/// names counts once. A file that cannot be read, or vanishes meanwhile, does not count.
pub(crate) fn measure(
    paths: &[PathBuf],
    guest: Option<(i32, u64)>,
    processes: &[PathBuf],
    unlinked: Unlinked,
) -> Reply {
    let mut tally = Tally::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for path in paths {
        if let Ok(directory) = openat(CWD, path, flags, Mode::empty()) {
            Walk { levels: Vec::new(), tally: &mut tally }.run(directory);
        }
    }
    if let Some((pid, start_time)) = guest {
        let device = match (unlinked, paths.first()) {
            (Unlinked::OfPath, Some(path)) => stat(path).ok().map(|found| identity(&found).0),
            _ => None,
        };
        if device.is_some() || unlinked == Unlinked::OfRoot {
            unlinked::add(pid, start_time, processes, device, &mut tally);
        }
    }
    Reply::Measured { bytes: tally.bytes, was_moved: tally.was_moved }
}

/// The sum so far.
pub(super) struct Tally {
    bytes: u64,
    /// Files with several names, or none, that are already counted.
    counted: HashSet<(u64, u64)>,
    was_moved: bool,
    deadline: Instant,
}

impl Tally {
    fn new() -> Self {
        let deadline = Instant::now() + MEASURE_TIME;
        Self { bytes: 0, counted: HashSet::new(), was_moved: false, deadline }
    }

    pub(super) fn is_late(&self) -> bool {
        Instant::now() > self.deadline
    }

    pub(super) fn add(&mut self, stat: &Stat) {
        let (links, blocks) = counts(stat);
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let may_come_again = links == 0 || (links > 1 && !is_directory);
        let is_known = may_come_again
            && if self.counted.len() < MAX_LINKED {
                !self.counted.insert(identity(stat))
            } else {
                self.counted.contains(&identity(stat))
            };
        if !is_known {
            let bytes = blocks.saturating_mul(512).max(LEAST_INODE_BYTES);
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }
}

#[expect(clippy::unnecessary_cast, reason = "the widths of these fields differ between architectures")]
pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

#[expect(clippy::unnecessary_cast, reason = "the widths of these fields differ between architectures")]
pub(super) fn counts(stat: &Stat) -> (u64, u64) {
    (stat.st_nlink as u64, stat.st_blocks as u64)
}

/// One directory on the way down.
struct Level {
    identity: (u64, u64),
    /// `None` while it is closed.
    listing: Option<Dir>,
    /// Where to continue reading.
    position: i64,
}

impl Level {
    fn new(directory: OwnedFd) -> rustix::io::Result<Self> {
        let identity = identity(&fstat(&directory)?);
        Ok(Self { identity, listing: Some(Dir::new(directory)?), position: 0 })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.listing.as_ref()?.fd().ok()
    }

    /// Reopens a closed level. False if `child` is no longer in it.
    fn open_again(&mut self, child: BorrowedFd<'_>) -> bool {
        let Ok(directory) = open_directory(child, c"..") else { return false };
        let Ok(found) = Self::new(directory) else { return false };
        let Some(mut listing) = found.listing.filter(|_same| found.identity == self.identity) else {
            return false;
        };
        let is_there = listing.seek(self.position).is_ok();
        self.listing = Some(listing);
        is_there
    }
}

struct Walk<'a> {
    levels: Vec<Level>,
    tally: &'a mut Tally,
}

impl Walk<'_> {
    fn run(&mut self, top: OwnedFd) {
        self.go_down(top);
        while !self.levels.is_empty() && !self.tally.is_late() {
            match self.next_directory() {
                Some(directory) => self.go_down(directory),
                None => self.go_up(),
            }
        }
    }

    /// Continues in the deepest level up to the next directory. `None`: there are no more.
    fn next_directory(&mut self) -> Option<OwnedFd> {
        let level = self.levels.last_mut()?;
        let listing = level.listing.as_mut()?;
        loop {
            let entry = listing.read()?.ok()?;
            level.position = entry.offset();
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let directory = listing.fd().ok()?;
            let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            self.tally.add(&stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                && let Ok(inside) = open_directory(directory, name)
            {
                return Some(inside);
            }
            if self.tally.is_late() {
                return None;
            }
        }
    }

    fn go_down(&mut self, directory: OwnedFd) {
        let Ok(level) = Level::new(directory) else { return };
        self.levels.push(level);
        if let Some(middle) = self.levels.len().checked_sub(OPEN_AT_THE_BOTTOM + 1)
            && middle >= OPEN_AT_THE_TOP
        {
            self.levels[middle].listing = None;
        }
    }

    /// Leaves the deepest level for the one above, which may have been closed.
    fn go_up(&mut self) {
        let Some(left) = self.levels.pop() else { return };
        let Some(above) = self.levels.last_mut() else { return };
        if above.listing.is_some() {
            return;
        }
        let is_open = left.descriptor().is_some_and(|child| above.open_again(child.as_fd()));
        if !is_open {
            // Directories are being moved beneath us. Continue with those still open.
            self.tally.was_moved = true;
            self.levels.truncate(OPEN_AT_THE_TOP);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn bytes(path: &Path) -> u64 {
        match measure(&[path.to_owned()], None, &[], Unlinked::OfRoot) {
            Reply::Measured { bytes, was_moved: false } => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hard_links_are_measured_once() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("one"), vec![1; 64 * 1024]).unwrap();
        let once = bytes(place.path());
        fs::hard_link(place.path().join("one"), place.path().join("two")).unwrap();
        assert_eq!(bytes(place.path()), once);
        assert!(once >= 64 * 1024, "{once}");
    }

    #[test]
    fn an_empty_file_is_not_free() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..1000 {
            fs::write(place.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(bytes(place.path()), 1000 * LEAST_INODE_BYTES);
    }

    #[test]
    fn a_file_lies_at_the_bottom_of_a_deep_tree_and_others_on_every_level_of_it() {
        const DEPTH: usize = 1000;
        let place = tempfile::tempdir().unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut here = openat(CWD, place.path(), flags, Mode::empty()).unwrap();
        let big = vec![1; 16 * 1024];
        for _level in 0..DEPTH {
            for name in ["a-file", "z-file"] {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                let file = openat(&here, name, flags, Mode::RUSR).unwrap();
                rustix::io::write(&file, &big).unwrap();
            }
            rustix::fs::mkdirat(&here, "m", Mode::RWXU).unwrap();
            here = openat(&here, "m", flags, Mode::empty()).unwrap();
        }
        let least = DEPTH as u64 * (2 * big.len() as u64 + LEAST_INODE_BYTES);
        let found = bytes(place.path());
        assert!((least..least + least / 4).contains(&found), "{found} {least}");
        crate::tree::remove(&place.path().join("m")).unwrap();
    }
}
