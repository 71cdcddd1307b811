//! Files of the host, for those who may touch them: beneath allowed directories only, and always by descriptor.
//!
//! A path is text only until the directory it lies beneath is found. From there the kernel resolves it and refuses to
//! leave; nothing is checked first and opened later.

mod archive;
mod beneath;
mod copy;
mod patch;
mod place;
mod sink;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    archive::NewFile,
    copy::{Copied, Source, copy_out},
    patch::{Report, for_call, identify},
    place::Access,
};

/// Files, directories and links that one copy takes at most.
const MAX_ENTRIES: u64 = 100_000;
/// Bytes that one copy takes at most.
const MAX_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// Directories within each other: each holds a descriptor while it is copied.
const MAX_DEPTH: usize = 128;
/// Paths of what was left out that an answer names.
const MAX_NAMED_SKIPS: usize = 8;
/// Bytes read from a host file at once.
const CHUNK_BYTES: usize = 128 * 1024;
/// Chunks and orders on their way between the threads of a copy.
const QUEUE: usize = 8;
