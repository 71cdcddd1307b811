//! Files and trees between this machine and a sandbox or a volume, as `docker cp` would have it.
//!
//! What comes out of a sandbox is hostile: a tree is unpacked into a fresh directory, beneath a descriptor and without following
//! a single link, and moved into place from there.

mod download;
mod merge;
mod place;
mod progress;
mod sparse;
mod tree;
mod unpack;
mod upload;

pub(crate) use self::{
    download::{Links, Source, download, stream_out},
    place::Place,
    progress::Progress,
    upload::{stream_in, upload},
};
