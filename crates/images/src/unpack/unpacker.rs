//! The unpacking of layers, in this process or by a helper.

use std::{
    fmt::Debug,
    fs::{self, File},
    io,
    os::fd::AsFd as _,
    path::Path,
};

use super::{UnpackOptions, Unpacked, unpack_layer};
use crate::error::{Error, Result};

/// Unpacks layers and removes them, on a thread that may block. A helper in a user namespace implements this by calling
/// [`unpack_layer`] there, where it may give files to all the ids of the namespace, and remove what such ids own.
pub trait Unpacker: Debug + Send + Sync {
    /// Unpacks `blob` into the empty directory `into`.
    fn unpack(&self, blob: File, into: &Path, options: &UnpackOptions) -> Result<Unpacked>;

    /// Removes the directory and all in it.
    fn remove(&self, directory: &Path) -> io::Result<()>;
}

/// Unpacks in this process, with its rights.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Unpacker for InProcess {
    fn unpack(&self, blob: File, into: &Path, options: &UnpackOptions) -> Result<Unpacked> {
        let directory = File::open(into).map_err(Error::io("open", into))?;
        unpack_layer(blob, directory.as_fd(), options)
    }

    fn remove(&self, directory: &Path) -> io::Result<()> {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                open_up(directory)?;
                fs::remove_dir_all(directory)
            }
            removed => removed,
        }
    }
}

/// A directory of an image may forbid even its owner to look inside.
fn open_up(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // Of the entry itself, not of what a link points to.
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}
