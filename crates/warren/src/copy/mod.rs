//! Files and trees between this machine and a sandbox, as `docker cp` would have it.
//!
//! What comes out of a sandbox is hostile: a tree is unpacked into a fresh directory, where no link can lead elsewhere, and moved
//! into place from there.

mod download;
mod place;
mod progress;
mod tree;
mod upload;

pub(crate) use self::{
    download::{download, stream_out},
    place::Place,
    progress::Progress,
    upload::{stream_in, upload},
};
