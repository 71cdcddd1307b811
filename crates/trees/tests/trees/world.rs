//! Trees to try things on.

use std::{
    ffi::CString,
    fs::{self, File},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, XattrFlags, mkdirat, mknodat, openat};
use tempfile::TempDir;

pub(crate) fn place() -> TempDir {
    tempfile::Builder::new().prefix("trees-test-").tempdir().unwrap()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn open(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

pub(crate) fn copy(from: &Path, into: &Path) -> trees::Copied {
    trees::copy(open(from).as_fd(), open(into).as_fd()).unwrap()
}

pub(crate) fn facts(tree: &Path) -> trees::Facts {
    trees::facts(open(tree).as_fd()).unwrap()
}

/// A fixed time with nanoseconds, so that digests are the same in every run.
pub(crate) fn set_time(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let spec = rustix::fs::Timespec {
        tv_sec: i64::try_from(since.as_secs()).unwrap(),
        tv_nsec: i64::from(since.subsec_nanos()),
    };
    let times = rustix::fs::Timestamps { last_access: spec, last_modification: spec };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub(crate) fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

pub(crate) fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 65536];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

pub(crate) fn whiteout(path: &Path) {
    mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
}

/// One of everything that a tree may contain. As root with owners of its own.
pub(crate) fn make_everything(tree: &Path) {
    // For the whole process, and the same for all tests.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    fs::create_dir_all(tree.join("etc/deep/er")).unwrap();
    fs::write(tree.join("etc/hostname"), "box\n").unwrap();
    fs::write(tree.join("etc/empty"), "").unwrap();
    fs::write(tree.join("etc/deep/er/tool"), vec![b'x'; 70_000]).unwrap();
    fs::set_permissions(tree.join("etc/deep/er/tool"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::write(
        tree.join("etc/large"),
        (0..2_500_000_u32).map(|number| (number % 251) as u8).collect::<Vec<_>>(),
    )
    .unwrap();
    fs::hard_link(tree.join("etc/hostname"), tree.join("etc/deep/hostname-again")).unwrap();
    fs::hard_link(tree.join("etc/hostname"), tree.join("zz-hostname")).unwrap();
    symlink("/etc/shadow", tree.join("link")).unwrap();
    symlink(".", tree.join("etc/here")).unwrap();
    mknodat(CWD, tree.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    mknodat(CWD, tree.join("socket"), FileType::Socket, Mode::RWXU, 0).unwrap();
    whiteout(&tree.join("etc/gone"));
    fs::create_dir(tree.join("var")).unwrap();
    set_attribute(&tree.join("var"), "user.overlay.opaque", b"y");
    set_attribute(&tree.join("etc/hostname"), "user.note", b"\0any\xff");
    let sparse = File::create(tree.join("var/sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", (5 << 20) + 17).unwrap();
    fs::write(tree.join(std::ffi::OsStr::new("name with \n and \u{e9}")), "odd").unwrap();
    let name = CString::new(b"not \xff utf-8".to_vec()).unwrap();
    let top = open(tree);
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(openat(&top, &name, flags, Mode::RUSR).unwrap());
    if is_root() {
        rustix::fs::chownat(&top, "link", Some(user(1000)), Some(group(1001)), AtFlags::SYMLINK_NOFOLLOW)
            .unwrap();
        std::os::unix::fs::chown(tree.join("etc/deep/er/tool"), Some(12), Some(34)).unwrap();
        fs::set_permissions(tree.join("etc/deep/er/tool"), fs::Permissions::from_mode(0o6755)).unwrap();
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        set_attribute(&tree.join("etc/large"), "security.capability", &capability);
    }
    fs::set_permissions(tree.join("etc/deep"), fs::Permissions::from_mode(0o511)).unwrap();
    for (seconds, path) in (1_700_000_000..).zip(all(tree).into_iter().rev()) {
        set_time(&path, seconds);
    }
}

fn user(id: u32) -> rustix::fs::Uid {
    rustix::fs::Uid::from_raw(id)
}

fn group(id: u32) -> rustix::fs::Gid {
    rustix::fs::Gid::from_raw(id)
}

/// Every path in a tree, directories before their contents, by name.
pub(crate) fn all(tree: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut names: Vec<_> = fs::read_dir(tree).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        found.push(path.clone());
        if path.symlink_metadata().unwrap().is_dir() {
            found.extend(all(&path));
        }
    }
    found
}

/// The `stat` of everything in a tree, and which names belong to one file.
pub(crate) fn described(tree: &Path) -> Vec<String> {
    let paths = all(tree);
    let first = |inode: u64| paths.iter().position(|path| path.symlink_metadata().unwrap().ino() == inode);
    paths
        .iter()
        .map(|path| {
            let found = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(tree).unwrap();
            let is_whiteout = found.mode() & 0o170_000 == 0o020_000;
            let size = if found.is_dir() { 0 } else { found.len() };
            let twin = if is_whiteout || found.is_dir() { None } else { first(found.ino()) };
            let time = (found.mtime(), found.mtime_nsec());
            let time = if is_whiteout { (0, 0) } else { time };
            format!(
                "{name:?} {:o} {}:{} {size} {time:?} {:?} {twin:?}",
                found.mode(),
                found.uid(),
                found.gid(),
                found.rdev()
            )
        })
        .collect()
}

/// Nested directories, with a file in each, deeper than any path.
pub(crate) fn make_deep(tree: &Path, levels: usize) {
    let mut here = open(tree);
    for _level in 0..levels {
        mkdirat(&here, "d", Mode::RWXU).unwrap();
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&here, "e", flags, Mode::RUSR).unwrap();
        rustix::io::write(&file, b"x").unwrap();
        here = openat(&here, "d", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
}

/// Removes a tree that the standard library would find too deep.
pub(crate) fn remove(tree: &Path) {
    assert!(std::process::Command::new("rm").arg("-rf").arg(tree).status().unwrap().success());
}
