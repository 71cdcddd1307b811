//! A file system in a file, mounted for one sandbox and visible to nobody else.

use std::{io, os::fd::OwnedFd};

use crate::cage::HandedLayer;

/// Mounts every image among `layers`; `None` stands for the others.
pub(crate) fn mount_all(layers: &[HandedLayer]) -> io::Result<Vec<Option<OwnedFd>>> {
    layers
        .iter()
        .map(|layer| match layer {
            HandedLayer::Directory { .. } => Ok(None),
            HandedLayer::Image { .. } => Err(io::ErrorKind::Unsupported.into()),
        })
        .collect()
}
