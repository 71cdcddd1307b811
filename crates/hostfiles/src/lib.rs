//! Copies between files of this host and a stream: trees become tar streams, and tar streams become trees.
//!
//! Whoever calls says which directory is meant, as an open descriptor, and words the errors. From there on everything
//! happens beneath that descriptor and no link is ever followed, also when somebody swaps a file for a link meanwhile.
//! Whatever comes out of a sandbox is hostile: it is unpacked into a fresh directory and moved into place from there.
#![forbid(unsafe_code)]

mod directory;
mod draft;
mod error;
mod inside;
mod merge;
mod pack;
mod pipe;
mod tally;
mod unpack;

pub use self::{
    directory::{kind, make_directory, quiet, step},
    draft::{Draft, replace_link},
    error::{Error, Result},
    inside::{base_name, behind_links, plain_path},
    pack::{Report, Source},
    pipe::{Pieces, PipeReader, PipeWriter, Pumped, feed, pieces, pump},
    tally::{Counts, Fidelity, Limits, Rules},
    unpack::{receive_file, receive_tree},
};
