//! Read-only access to an image's files from outside its sandbox, whether it is mounted or not.
//!
//! A file system must never be mounted from two devices: both would write to it without knowing of each other. So the
//! device that already shows the image is looked for first. Mounting that one again gives the sandbox's own file
//! system, including writes that have not reached the disk yet.

use std::{
    fs::OpenOptions,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::mount::MountAttrFlags;

use super::{Writes, find_or_attach, mount_ext4};

/// The top of the file system in an image; unmounted when dropped.
#[derive(Debug)]
pub struct LookedInto(OwnedFd);

impl AsFd for LookedInto {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens the ext4 file system in the file `image`. For root only.
pub fn look_into(image: &Path) -> io::Result<LookedInto> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    let device = find_or_attach(&file, Writes::Allowed)?;
    // The mount is read-only; the file system itself may not be, since its sandbox may be writing to it.
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    mount_ext4(&device, &[], attributes).map(LookedInto)
}
