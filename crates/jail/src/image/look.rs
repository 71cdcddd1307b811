//! The files in an image for whoever is not in its sandbox, read-only, whether it is mounted or not.
//!
//! A file system must never be mounted twice from two devices: both would write to it without knowing of each other. So the
//! device that shows the image already is looked for first. Mounting that one again gives the very file system that the sandbox
//! has, with all that it wrote and the disk has not seen yet.

use std::{
    fs::OpenOptions,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::mount::MountAttrFlags;

use super::{Writes, find_or_attach, mount_ext4};

/// The top of the file system in an image; it goes with this.
#[derive(Debug)]
pub struct LookedInto(OwnedFd);

impl AsFd for LookedInto {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Shows what is in the ext4 file system of the file `image`. For root only.
pub fn look_into(image: &Path) -> io::Result<LookedInto> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    let device = find_or_attach(&file, Writes::Allowed)?;
    // The mount is read-only; the file system itself may not be, since it is the one that its sandbox writes to.
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    mount_ext4(&device, &[], attributes).map(LookedInto)
}
