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

/// A free loop device may be taken by somebody else between asking for it and taking it.
const LOOP_TRIES: usize = 32;
/// How long an image may stay locked by a use of it that is ending: the kernel detaches it after the last process is gone.
const LOCK_TIME: Duration = Duration::from_secs(2);
/// Between two tries to lock an image. Nothing tells when a loop device lets go of its file.
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

/// Neither the file nor what is in it is written to, not even to make a file system whole that was cut off in use.
fn mount_read_only(image: &Path, identity: Option<FileIdentity>) -> io::Result<OwnedFd> {
    // A pipe must not let us wait for somebody who writes.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(image, flags, Mode::empty())?);
    if let Some(identity) = identity {
        identity.check(file.as_fd())?;
    }
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let device = patiently(|| attach(&file, Writes::Refused))?;
    mount_ext4(&device, &["ro", "noload"], MountAttrFlags::MOUNT_ATTR_RDONLY)
}

/// What is in the image is anybody's: its devices and set-user-id programs do not work, and a broken one is only read from
/// then on, whatever it asks for itself (it could ask for a panic of the host).
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

/// Mounts a file system that others may have mounted too: one file is on one loop device, however many look at it, so that all
/// see the same. Who attaches it meanwhile has it locked, and is found at the next look.
/// What is removed from one of `ours` gives its space back to the host.
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

/// Tries again, for a while, as long as the image is locked: an earlier use of it may be on its way out.
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

/// Locks the image through the very open file that the loop device is given. The device keeps that file open, so the kernel
/// holds the lock for as long as the image is attached, whoever dies meanwhile. Two devices that write to one image would
/// destroy it; any number may read it.
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

/// Whether nothing uses this image, as far as locks tell.
pub fn is_image_free(image: &Path) -> io::Result<bool> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    match lock(&file, Writes::Allowed) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
        locked => locked.map(|()| true),
    }
}

/// The loop device that shows this file already, and lets us write as we want.
fn find_attached(file: &File, writes: Writes) -> io::Result<Option<LoopDevice>> {
    let metadata = file.metadata()?;
    let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
    for entry in std::fs::read_dir("/sys/block")?.flatten() {
        let number =
            entry.file_name().to_str().and_then(|name| name.strip_prefix("loop")?.parse::<u32>().ok());
        let Some(number) = number.filter(|_| entry.path().join("loop").exists()) else { continue };
        let path = PathBuf::from(format!("/dev/loop{number}"));
        // Open before it is asked: as long as it is, it does not come to show another file.
        let Ok(open) = open_device(&path, number) else { continue };
        let shown = sys::loop_backing(open.as_fd());
        if shown.is_ok_and(|shown| shown == (identity, writes == Writes::Refused)) {
            return Ok(Some(LoopDevice { path, _open: open }));
        }
    }
    Ok(None)
}

/// An image that is used for the first time has none of these. The last directory is made after everything else, and nobody
/// inside can reach it: where it is, the image was filled before, and what the workload has made of it is left alone.
fn fill(top: BorrowedFd<'_>, directories: &[(String, u32)], files: &[(String, String)]) -> io::Result<()> {
    let Some(((mark, mode), directories)) = directories.split_last() else { return Ok(()) };
    if let Some((place, name)) = place_of(top, mark)?
        && rustix::fs::statat(place, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
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

/// The directory in which `path` lies, and its name there; `None` where that directory is missing. No link is followed and
/// nothing outside `top` is ever reached: we are the host's root here, and links inside are the workload's.
fn place_of<'a>(top: BorrowedFd<'_>, path: &'a str) -> io::Result<Option<(OwnedFd, &'a str)>> {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(top, parent, flags, Mode::empty(), within) {
        Err(Errno::NOENT) => Ok(None),
        opened => Ok(Some((opened?, name))),
    }
}

fn make_directory(top: BorrowedFd<'_>, path: &str, mode: u32) -> io::Result<()> {
    let (place, name) = place_of(top, path)?.ok_or(Errno::NOENT)?;
    let mode = Mode::from_raw_mode(mode);
    match rustix::fs::mkdirat(&place, name, mode) {
        Err(Errno::EXIST) => Ok(()),
        // Again, since our mask may have taken some of it.
        made => Ok(made.and_then(|()| rustix::fs::chmodat(place, name, mode, AtFlags::empty()))?),
    }
}

fn make_file(top: BorrowedFd<'_>, path: &str, text: &str) -> io::Result<()> {
    let (place, name) = place_of(top, path)?.ok_or(Errno::NOENT)?;
    // `EXCL`: a link with that name is not followed either.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::openat(place, name, flags, Mode::from_raw_mode(0o644)) {
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

/// Attaches the image to a device of its own. `ResourceBusy` when it is on another one that excludes this.
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
        // The file that was given is closed by now; the device alone holds the lock.
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
