//! Mounts: created detached, then attached.
//!
//! Functions that take a path to mount on are for the stage only, where every name is ours; see [`crate::mount_target`]
//! for the rest.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
        OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
        fsopen, mount, mount_bind, mount_change, move_mount, open_tree, unmount,
    },
};

use crate::{
    cage::{MountFlag, PtsOptions},
    sys,
};

/// The kernel accepts one page of options, including the final zero and the ",volatile" to come.
const MAX_OPTION_BYTES: usize = 4096 - 16;
/// Longest value of a single option, including the final zero.
const MAX_STRING_BYTES: usize = 256;

fn flags_of(flags: &[MountFlag]) -> MountFlags {
    flags.iter().fold(MountFlags::empty(), |all, one| {
        all | match one {
            MountFlag::ReadOnly => MountFlags::RDONLY,
            MountFlag::NoSuid => MountFlags::NOSUID,
            MountFlag::NoDev => MountFlags::NODEV,
            MountFlag::NoExec => MountFlags::NOEXEC,
        }
    })
}

fn attributes_of(flags: &[MountFlag]) -> MountAttrFlags {
    flags.iter().fold(MountAttrFlags::empty(), |all, one| {
        all | match one {
            MountFlag::ReadOnly => MountAttrFlags::MOUNT_ATTR_RDONLY,
            MountFlag::NoSuid => MountAttrFlags::MOUNT_ATTR_NOSUID,
            MountFlag::NoDev => MountAttrFlags::MOUNT_ATTR_NODEV,
            MountFlag::NoExec => MountAttrFlags::MOUNT_ATTR_NOEXEC,
        }
    })
}

fn options(text: impl Into<Vec<u8>>) -> io::Result<CString> {
    CString::new(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

pub(crate) fn hide() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?)
}

pub(crate) fn attach(mount: BorrowedFd<'_>, at: &Path) -> io::Result<()> {
    Ok(move_mount(mount, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// `volatile`: nothing waits for the disk, neither `fsync` inside nor the end of the sandbox, which would otherwise
/// sync the host's whole file system. A power cut loses the last seconds, as it would anyway.
pub(crate) fn overlay(
    at: &Path,
    lower: &[PathBuf],
    upper: &Path,
    work: &Path,
    short: &Path,
    flags: &[MountFlag],
) -> io::Result<()> {
    forget_volatile(work);
    let data = overlay_options(lower, upper, work);
    if data.len() <= MAX_OPTION_BYTES {
        return overlay_at_once(at, data, flags);
    }
    if lower.iter().all(|directory| fits_alone(directory)) {
        match overlay_by_parts(lower, upper, work, flags) {
            Ok(mount) => return attach(mount.as_fd(), at),
            // Kernels before 6.5 accept lower directories only all at once.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let lower = name_shortly(lower, short)?;
    rustix::process::chdir(short)?;
    let mounted = overlay_at_once(at, overlay_options(&lower, upper, work), flags);
    rustix::process::chdir("/")?;
    mounted
}

fn overlay_options(lower: &[PathBuf], upper: &Path, work: &Path) -> Vec<u8> {
    let mut data = b"lowerdir=".to_vec();
    for (position, directory) in lower.iter().enumerate() {
        if position > 0 {
            data.push(b':');
        }
        push_escaped(&mut data, directory);
    }
    for (key, directory) in [(&b",upperdir="[..], upper), (b",workdir=", work)] {
        data.extend_from_slice(key);
        push_escaped(&mut data, directory);
    }
    data.extend_from_slice(b",userxattr");
    data
}

fn overlay_at_once(at: &Path, mut data: Vec<u8>, flags: &[MountFlag]) -> io::Result<()> {
    let plain = options(data.clone())?;
    data.extend_from_slice(b",volatile");
    let volatile = options(data)?;
    match mount("overlay", at, "overlay", flags_of(flags), volatile.as_c_str()) {
        // Kernels before 5.10 do not know `volatile`.
        Err(Errno::INVAL) => Ok(mount("overlay", at, "overlay", flags_of(flags), plain.as_c_str())?),
        mounted => Ok(mounted?),
    }
}

/// Whether the kernel accepts the name as a single option, unescaped.
fn fits_alone(directory: &Path) -> bool {
    let name = directory.as_os_str().as_bytes();
    name.len() < MAX_STRING_BYTES && !name.iter().any(|byte| matches!(byte, b',' | b':' | b'\\'))
}

fn overlay_by_parts(
    lower: &[PathBuf],
    upper: &Path,
    work: &Path,
    flags: &[MountFlag],
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", "overlay")?;
    for directory in lower {
        fsconfig_set_string(&context, "lowerdir+", directory)?;
    }
    for (key, directory) in [("upperdir", upper), ("workdir", work)] {
        let mut escaped = Vec::new();
        push_escaped(&mut escaped, directory);
        fsconfig_set_string(&context, key, escaped.as_slice())?;
    }
    for flag in ["userxattr", "volatile"] {
        fsconfig_set_flag(&context, flag)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes_of(flags))
}

/// Mounts each directory at a name of a few bytes in `short`; returns the names.
fn name_shortly(directories: &[PathBuf], short: &Path) -> io::Result<Vec<PathBuf>> {
    let bytes = (directories.len() as u64 + 1) * 4096;
    tmpfs(short, bytes, 0o700, &[MountFlag::NoSuid, MountFlag::NoDev, MountFlag::NoExec])?;
    let names = (0..directories.len()).map(|number| PathBuf::from(number.to_string()));
    names
        .zip(directories)
        .map(|(name, directory)| {
            let at = short.join(&name);
            rustix::fs::mkdir(&at, Mode::RWXU)?;
            mount_bind(directory, &at)?;
            Ok(name)
        })
        .collect()
}

/// The kernel leaves a mark in the work directory of a volatile overlay and refuses to mount it again while the mark
/// exists.
fn forget_volatile(work: &Path) {
    let mark = work.join("work/incompat/volatile");
    if rustix::fs::unlink(mark.join("dirty")).is_ok() {
        for directory in [mark.as_path(), &work.join("work/incompat")] {
            let _gone = rustix::fs::rmdir(directory);
        }
    }
}

/// Commas separate options and colons separate layers, so both are escaped in names.
fn push_escaped(data: &mut Vec<u8>, path: &Path) {
    for &byte in path.as_os_str().as_bytes() {
        if matches!(byte, b',' | b':' | b'\\') {
            data.push(b'\\');
        }
        data.push(byte);
    }
}

pub(crate) fn tmpfs(at: &Path, bytes: u64, mode: u32, flags: &[MountFlag]) -> io::Result<()> {
    attach(new_tmpfs(bytes, mode, flags)?.as_fd(), at)
}

fn new_filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

pub(crate) fn new_tmpfs(bytes: u64, mode: u32, flags: &[MountFlag]) -> io::Result<OwnedFd> {
    // Empty files take kernel memory too: one inode for every four kilobytes, as the kernel would give a disk.
    let inodes = (bytes / 4096).max(64).to_string();
    let (bytes, mode) = (bytes.to_string(), format!("{mode:o}"));
    let options = [("size", bytes.as_str()), ("nr_inodes", &inodes), ("mode", &mode)];
    Ok(new_filesystem("tmpfs", &options, attributes_of(flags))?)
}

fn kernel_attributes() -> MountAttrFlags {
    attributes_of(&[MountFlag::NoSuid, MountFlag::NoDev, MountFlag::NoExec])
}

pub(crate) fn new_proc() -> io::Result<OwnedFd> {
    Ok(new_filesystem("proc", &[], kernel_attributes())?)
}

/// `None` if the host shows us only a part of its own `/sys`, and so does not let us mount a whole one.
pub(crate) fn new_sys() -> io::Result<Option<OwnedFd>> {
    match new_filesystem("sysfs", &[], kernel_attributes() | MountAttrFlags::MOUNT_ATTR_RDONLY) {
        Err(Errno::PERM) => Ok(None),
        made => Ok(Some(made?)),
    }
}

pub(crate) fn new_pts(PtsOptions { group, max }: PtsOptions) -> io::Result<OwnedFd> {
    let (group, max) = (group.map(|group| group.to_string()), max.to_string());
    let mut options = vec![("ptmxmode", "0666"), ("mode", "620"), ("max", max.as_str())];
    options.extend(group.as_deref().map(|group| ("gid", group)));
    Ok(new_filesystem("devpts", &options, attributes_of(&[MountFlag::NoSuid, MountFlag::NoExec]))?)
}

/// An empty read-only directory.
pub(crate) fn new_empty() -> io::Result<OwnedFd> {
    let read_only = kernel_attributes() | MountAttrFlags::MOUNT_ATTR_RDONLY;
    Ok(new_filesystem("tmpfs", &[("size", "4k"), ("nr_inodes", "2"), ("mode", "555")], read_only)?)
}

/// A detached copy of the mount at `from`.
pub(crate) fn copy(from: &Path, recursive: bool, flags: &[MountFlag]) -> io::Result<OwnedFd> {
    copy_at(CWD, from, recursive, flags)
}

/// A detached copy of `from`, relative to `directory`, or of `directory` itself if `from` is empty.
pub(crate) fn copy_at(
    directory: BorrowedFd<'_>,
    from: impl rustix::path::Arg,
    recursive: bool,
    flags: &[MountFlag],
) -> io::Result<OwnedFd> {
    let mut how =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    how.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    let copy = open_tree(directory, from, how)?;
    // Added to the existing flags, never replacing them: the host has locked some.
    if !flags.is_empty() {
        sys::set_mount_tree(copy.as_fd(), flags, None)?;
    }
    Ok(copy)
}

/// The mount at `at` itself, to be moved.
pub(crate) fn take(at: &Path) -> io::Result<OwnedFd> {
    Ok(open_tree(CWD, at, OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
}

pub(crate) fn pivot(root: &Path) -> io::Result<()> {
    rustix::process::chdir(root)?;
    // The old root ends up on top of the new one and is detached: no directory for it is needed.
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// Opens a path for lookups only.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}
