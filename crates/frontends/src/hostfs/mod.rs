//! Files of the host, for those who may touch them: beneath allowed directories only, and always by descriptor.
//!
//! A path is text only until the directory it lies beneath is found. From there the kernel resolves it and refuses to
//! leave; nothing is checked first and opened later.

mod archive;
mod beneath;
mod copy;
mod patch;
mod place;
mod policy;
mod sink;
mod source;

use engine::Principal;
use sandbox::{Error, ErrorKind, Thing};

pub use self::policy::{HostPolicy, HostRoot};
pub(crate) use self::{
    archive::NewFile,
    copy::{Copied, Source, copy_out},
    patch::{Report, identify},
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

/// Who asks for files of the host, and which they may touch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostCaller<'a> {
    pub(crate) who: &'a Principal,
    pub(crate) policy: &'a HostPolicy,
}

impl HostCaller<'_> {
    /// Adds how a path that was refused can be allowed: by the command line of `warren mcp` for clients on stdio, who say where
    /// they stand, and by that of the daemon for those on HTTP.
    fn how_to_allow(self, error: Error) -> Error {
        if error.kind() != ErrorKind::Denied || !error.is_about(Thing::HostPath) {
            return error;
        }
        let command = if self.policy.working_directory.is_some() { "warren mcp" } else { "warren serve" };
        error.with_hint(format!(
            "Only the host's user can allow it: `{command} --allow-host-path DIR` to read below DIR, \
             `{command} --allow-host-path DIR:rw` to write too."
        ))
    }
}
