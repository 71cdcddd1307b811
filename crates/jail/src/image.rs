//! A file system in a file, mounted for one sandbox and visible to nobody else.
//!
//! The loop device frees itself, and the mount is attached nowhere on the host, so both vanish with the sandbox's last
//! process, however it ends.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    },
};

use crate::{cage::HandedLayer, sys};

/// A free loop device may be taken by somebody else between asking for it and taking it.
const LOOP_TRIES: usize = 32;

/// Mounts every image among `layers`; `None` stands for the others.
pub(crate) fn mount_all(layers: &[HandedLayer]) -> io::Result<Vec<Option<OwnedFd>>> {
    layers
        .iter()
        .map(|layer| match layer {
            HandedLayer::Directory { .. } => Ok(None),
            HandedLayer::Image { path, directories, files } => mount(path, directories, files).map(Some),
        })
        .collect()
}

fn mount(image: &Path, directories: &[String], files: &[(String, String)]) -> io::Result<OwnedFd> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    let device = attach(&file)?;
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", &device.path)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    fill(mount.as_fd(), directories, files)?;
    Ok(mount)
}

/// An image that is used for the first time has none of these; later on all are there.
fn fill(top: BorrowedFd<'_>, directories: &[String], files: &[(String, String)]) -> io::Result<()> {
    for directory in directories {
        match rustix::fs::mkdirat(top, directory, Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) => {}
            made => made?,
        }
    }
    for (name, text) in files {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(top, name, flags, Mode::from_raw_mode(0o644)) {
            Err(Errno::EXIST) => {}
            opened => File::from(opened?).write_all(text.as_bytes())?,
        }
    }
    Ok(())
}

struct LoopDevice {
    path: PathBuf,
    /// Keeps the device from freeing itself until it is mounted.
    _open: File,
}

fn attach(image: &File) -> io::Result<LoopDevice> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    for _try in 0..LOOP_TRIES {
        let number = sys::free_loop_device(control.as_fd())?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open_device(&path, number)?;
        match sys::configure_loop_device(device.as_fd(), image.as_fd()) {
            Ok(()) => return Ok(LoopDevice { path, _open: device }),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Where nobody makes device nodes as devices appear, as in containers, we make ours.
fn open_device(path: &Path, number: u32) -> io::Result<File> {
    let open = || OpenOptions::new().read(true).write(true).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let device = rustix::fs::makedev(7, number);
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::BlockDevice, mode, device)?;
            open()
        }
        opened => opened,
    }
}
