//! A file system in a file, mounted for one sandbox and visible to nobody else.
//!
//! The loop device frees itself, and the mount is attached nowhere on the host, so both vanish with the sandbox's last
//! process, however it ends.

mod look;

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, ResolveFlags},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
        fsmount, fsopen,
    },
};

pub use self::look::{LookedInto, look_into};
use crate::{
    cage::{FileIdentity, HandedLayer},
    sys,
};

/// Another process may take a free loop device between our asking for it and taking it.
const LOOP_TRIES: usize = 32;
/// How long an image may stay locked by an ending use: the kernel detaches it after the last process is gone.
const LOCK_TIME: Duration = Duration::from_secs(2);
/// Pause between two tries to lock an image. Nothing notifies us when a loop device releases its file.
const LOCK_RETRY: Duration = Duration::from_millis(2);

/// Mounts every image among `layers`; `None` stands for the others.
pub(crate) fn mount_all(layers: &[HandedLayer]) -> io::Result<Vec<Option<OwnedFd>>> {
    layers
        .iter()
        .map(|layer| match layer {
            HandedLayer::Directory { .. } | HandedLayer::Devices { .. } => Ok(None),
            HandedLayer::Image { path, directories, files } => mount(path, directories, files).map(Some),
            HandedLayer::ReadOnlyImage { path, identity } => mount_read_only(path, *identity).map(Some),
        })
        .collect()
}

/// Mounts without writing to the file or the file system, not even to repair one that was interrupted.
fn mount_read_only(image: &Path, identity: Option<FileIdentity>) -> io::Result<OwnedFd> {
    // A pipe must not make us wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(image, flags, Mode::empty())?);
    if let Some(identity) = identity {
        identity.check(file.as_fd())?;
    }
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let device = patiently(|| attach(&file, Writes::Refused))?;
    mount_ext4(&device, &["ro", "noload"], MountAttrFlags::MOUNT_ATTR_RDONLY)
}

/// The image's content is untrusted: its devices and set-user-id programs do not work, and on an error it becomes
/// read-only, whatever it requests itself (it could request a panic of the host).
fn mount_ext4(device: &LoopDevice, options: &[&str], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", &device.path)?;
    fsconfig_set_string(&context, "errors", "remount-ro")?;
    for option in options {
        fsconfig_set_flag(&context, *option)?;
    }
    fsconfig_create(&context)?;
    let attributes = attributes | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn mount(image: &Path, directories: &[(String, u32)], files: &[(String, String)]) -> io::Result<OwnedFd> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    let device = patiently(|| attach(&file, Writes::Allowed))?;
    let mount = mount_ext4(&device, &[], MountAttrFlags::empty())?;
    fill(mount.as_fd(), directories, files)?;
    Ok(mount)
}

/// Mounts a file system that others may have mounted too: one file is on one loop device, however many use it, so that
/// all see the same. A process that attaches it meanwhile holds its lock, and is found at the next check. Space freed
/// in one of `ours` is returned to the host.
pub(crate) fn mount_shared(file: &File, writes: Writes, is_ours: bool) -> io::Result<OwnedFd> {
    let device = find_or_attach(file, writes)?;
    let options: &[&str] = match (writes, is_ours) {
        (Writes::Refused, _) => &["ro"],
        (Writes::Allowed, true) => &["discard"],
        (Writes::Allowed, false) => &[],
    };
    mount_ext4(&device, options, MountAttrFlags::empty())
}

/// The device that shows this file; attached if there is none.
fn find_or_attach(file: &File, writes: Writes) -> io::Result<LoopDevice> {
    patiently(|| match find_attached(file, writes)? {
        Some(device) => Ok(device),
        None => attach(file, writes),
    })
}

/// Retries for a while as long as the image is locked: an earlier use of it may be ending.
fn patiently(mut attach: impl FnMut() -> io::Result<LoopDevice>) -> io::Result<LoopDevice> {
    let began = Instant::now();
    loop {
        match attach() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < LOCK_TIME => {
                std::thread::sleep(LOCK_RETRY);
            }
            attached => return attached,
        }
    }
}

/// Locks the image through the same open file that the loop device gets. The device keeps that file open, so the kernel
/// holds the lock for as long as the image is attached, whichever process dies meanwhile. Two devices that write to one
/// image would destroy it; any number may read it.
fn lock(image: &File, writes: Writes) -> io::Result<()> {
    let operation = match writes {
        Writes::Allowed => FlockOperation::NonBlockingLockExclusive,
        Writes::Refused => FlockOperation::NonBlockingLockShared,
    };
    rustix::fs::flock(image, operation).map_err(|error| match error {
        Errno::WOULDBLOCK => Errno::BUSY.into(),
        error => error.into(),
    })
}

/// Whether nothing uses this image, judging by its locks.
pub fn is_image_free(image: &Path) -> io::Result<bool> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    match lock(&file, Writes::Allowed) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
        locked => locked.map(|()| true),
    }
}

/// The loop device that already shows this file with the right access.
fn find_attached(file: &File, writes: Writes) -> io::Result<Option<LoopDevice>> {
    let metadata = file.metadata()?;
    let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
    for entry in std::fs::read_dir("/sys/block")?.flatten() {
        let number =
            entry.file_name().to_str().and_then(|name| name.strip_prefix("loop")?.parse::<u32>().ok());
        let Some(number) = number.filter(|_| entry.path().join("loop").exists()) else { continue };
        let path = PathBuf::from(format!("/dev/loop{number}"));
        // Opened before it is queried: while it is open, it cannot switch to another file.
        let Ok(open) = open_device(&path, number) else { continue };
        let shown = sys::loop_backing(open.as_fd());
        if shown.is_ok_and(|shown| shown == (identity, writes == Writes::Refused)) {
            return Ok(Some(LoopDevice { path, _open: open }));
        }
    }
    Ok(None)
}

/// A new image has none of these. The last directory is made after everything else, and nobody inside can reach it: if
/// it exists, the image was filled before, and the workload's changes are left alone.
fn fill(top: BorrowedFd<'_>, directories: &[(String, u32)], files: &[(String, String)]) -> io::Result<()> {
    let Some(((mark, mode), directories)) = directories.split_last() else { return Ok(()) };
    if let Some((parent, name)) = parent_of(top, mark)?
        && rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    {
        return Ok(());
    }
    for (directory, mode) in directories {
        make_directory(top, directory, *mode)?;
    }
    for (name, text) in files {
        make_file(top, name, text)?;
    }
    make_directory(top, mark, *mode)
}

/// The directory that contains `path`, and its name there; `None` if that directory is missing. No link is followed and
/// nothing outside `top` is ever reached: we are the host's root here, and links inside belong to the workload.
fn parent_of<'a>(top: BorrowedFd<'_>, path: &'a str) -> io::Result<Option<(OwnedFd, &'a str)>> {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(top, parent, flags, Mode::empty(), within) {
        Err(Errno::NOENT) => Ok(None),
        opened => Ok(Some((opened?, name))),
    }
}

fn make_directory(top: BorrowedFd<'_>, path: &str, mode: u32) -> io::Result<()> {
    let (parent, name) = parent_of(top, path)?.ok_or(Errno::NOENT)?;
    let mode = Mode::from_raw_mode(mode);
    match rustix::fs::mkdirat(&parent, name, mode) {
        Err(Errno::EXIST) => Ok(()),
        // Set again, since our umask may have removed bits.
        made => Ok(made.and_then(|()| rustix::fs::chmodat(parent, name, mode, AtFlags::empty()))?),
    }
}

fn make_file(top: BorrowedFd<'_>, path: &str, text: &str) -> io::Result<()> {
    let (parent, name) = parent_of(top, path)?.ok_or(Errno::NOENT)?;
    // `EXCL`: a link with that name is not followed either.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644)) {
        Err(Errno::EXIST) => Ok(()),
        opened => File::from(opened?).write_all(text.as_bytes()),
    }
}

struct LoopDevice {
    path: PathBuf,
    /// Keeps the device from freeing itself until it is mounted.
    _open: File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    Allowed,
    Refused,
}

/// Attaches the image to a device of its own. `ResourceBusy` if a conflicting device has it.
fn attach(image: &File, writes: Writes) -> io::Result<LoopDevice> {
    lock(image, writes)?;
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    for _try in 0..LOOP_TRIES {
        let number = sys::free_loop_device(control.as_fd())?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open_device(&path, number)?;
        match sys::configure_loop_device(device.as_fd(), image.as_fd(), writes == Writes::Refused) {
            Ok(()) => return Ok(LoopDevice { path, _open: device }),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Creates the device node if nothing else does, as in containers.
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn fill_again(top: &Path) -> io::Result<()> {
        let directories =
            ["root", "root/upper", "root/upper/etc", "usr", "usr/work"].map(|name| (name.to_owned(), 0o755));
        let files = [("root/upper/etc/hostname".to_owned(), "cell\n".to_owned())];
        fill(File::open(top).unwrap().as_fd(), &directories, &files)
    }

    #[test]
    fn an_image_that_is_attached_is_locked_until_its_device_lets_go() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("disk.img");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let Ok(device) = attach(&open(), Writes::Allowed) else { return println!("no loop devices here") };
        // The given file is closed by now; only the device holds the lock.
        assert!(!is_image_free(&path).unwrap());
        for writes in [Writes::Allowed, Writes::Refused] {
            let refused = attach(&open(), writes).map(drop).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "{refused}");
        }
        let found = find_or_attach(&open(), Writes::Allowed).unwrap();
        assert_eq!(found.path, device.path);
        drop((device, found));
        let readers = [0, 1].map(|_| patiently(|| attach(&open(), Writes::Refused)).unwrap());
        assert_ne!(readers[0].path, readers[1].path);
        let refused = attach(&open(), Writes::Allowed).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "{refused}");
        drop(readers);
        drop(patiently(|| attach(&open(), Writes::Allowed)).unwrap());
    }

    #[test]
    fn an_image_is_filled_once() {
        let image = tempfile::tempdir().unwrap();
        let hostname = image.path().join("root/upper/etc/hostname");
        fill_again(image.path()).unwrap();
        assert_eq!(fs::read_to_string(&hostname).unwrap(), "cell\n");
        fs::remove_file(&hostname).unwrap();
        fill_again(image.path()).unwrap();
        assert!(!hostname.exists());
    }

    #[test]
    fn one_that_was_left_half_filled_is_finished_and_no_link_in_it_is_followed() {
        let (image, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(image.path().join("root/upper/etc")).unwrap();
        fill_again(image.path()).unwrap();
        assert!(image.path().join("usr/work").is_dir());

        fs::remove_dir(image.path().join("usr/work")).unwrap();
        fs::remove_dir_all(image.path().join("root/upper/etc")).unwrap();
        symlink(host.path(), image.path().join("root/upper/etc")).unwrap();
        assert_eq!(fill_again(image.path()).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
    }
}
