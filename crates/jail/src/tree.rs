//! Whole directory trees: deletes and measures them, whatever they contain.

mod measure;
mod unlinked;

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, openat, unlinkat},
    io::Errno,
};

pub(crate) use measure::measure;

use crate::packet::Failure;

/// Deepest directory that is entered. Deeper ones are moved up as the tree is taken apart.
const MAX_DEPTH: usize = 256;

fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Deletes `path` and everything below it. Never follows a link. A missing path is fine.
pub(crate) fn remove(path: &Path) -> Result<(), Failure> {
    let fail = |error: io::Error| Failure::new(format!("remove {}", path.display()), &error);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(fail(io::ErrorKind::InvalidInput.into()));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat(CWD, parent, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.map_err(|error| fail(error.into()))?,
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(|error| fail(error.into()))?;
    let mut removal = Removal { top: parent.as_fd(), waiting: vec![name], moved: 0 };
    while let Some(name) = removal.waiting.pop() {
        removal.entry(parent.as_fd(), &name, 0).map_err(|error| fail(error.into()))?;
    }
    Ok(())
}

struct Removal<'a> {
    top: BorrowedFd<'a>,
    /// Entries of `top` that are still to be removed.
    waiting: Vec<CString>,
    moved: u32,
}

impl Removal<'_> {
    fn entry(&mut self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> rustix::io::Result<()> {
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // The file system and the rights decide which of the two a directory returns.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
        let directory = match open_for_removal(parent, name) {
            // Another process removed it too, which is fine.
            Err(Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        // Names are collected first: a listing is undefined while entries vanish.
        for (name, kind) in entries(directory.as_fd())? {
            if kind == FileType::Directory && depth >= MAX_DEPTH {
                self.move_up(directory.as_fd(), &name)?;
            } else {
                self.entry(directory.as_fd(), &name, depth + 1)?;
            }
        }
        drop(directory);
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }

    /// Moves a directory that is too deep to the top, to be removed later, so that neither the stack nor the number of
    /// open descriptors grows with a hostile tree.
    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
        self.moved += 1;
        let aside = format!(".deep-{}-{}", std::process::id(), self.moved);
        let aside = CString::new(aside).map_err(|_nul| Errno::INVAL)?;
        rustix::fs::renameat(parent, name, self.top, &aside)?;
        self.waiting.push(aside);
        Ok(())
    }
}

/// A directory may forbid its own owner to look inside, as an overlay's `work/work` does.
fn open_for_removal(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    match open_directory(parent, name) {
        Err(Errno::ACCESS) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle = openat(parent, name, flags, Mode::empty())?;
            let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
            rustix::fs::chmod(link, Mode::RWXU)?;
            open_directory(parent, name)
        }
        Ok(directory) => {
            // Removing entries needs the directory's write bit, unless the caller has the right to override it.
            let _mode = fchmod(&directory, Mode::RWXU);
            Ok(directory)
        }
        refused => refused,
    }
}

fn entries(directory: BorrowedFd<'_>) -> rustix::io::Result<Vec<(CString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            found.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_tree_goes_whole_and_links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (tree, outside) = (place.path().join("tree"), place.path().join("outside"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("precious"), "1").unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        rustix::fs::chmod(tree.join("a/b"), Mode::empty()).unwrap();

        remove(&tree).unwrap();

        assert!(!tree.exists());
        assert!(outside.join("precious").exists());
        remove(&tree).unwrap();
    }

    #[test]
    fn a_tree_deeper_than_any_path_goes_too() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("deep");
        fs::create_dir(&top).unwrap();
        let mut here = openat(CWD, &top, OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _level in 0..MAX_DEPTH * 3 {
            rustix::fs::mkdirat(&here, "a-directory-of-some-length", Mode::RWXU).unwrap();
            here = openat(&here, "a-directory-of-some-length", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        remove(&top).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
