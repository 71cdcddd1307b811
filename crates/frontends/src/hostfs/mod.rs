//! Files of the host, for those who may touch them: beneath allowed directories only, and always by descriptor.
//!
//! A path is text only until the directory it lies beneath is found. From there the kernel resolves it and refuses to
//! leave; nothing is checked first and opened later.

mod beneath;
mod copy;
mod error;
mod location;
mod new_file;
mod policy;
mod source;

use engine::Principal;
use hostfiles::{Fidelity, Limits, Rules};
use sandbox::{Error, ErrorKind, Thing};

pub use self::policy::{HostPolicy, HostRoot};
pub(crate) use self::{
    copy::{Copied, copy_out},
    location::Access,
    new_file::NewFile,
    source::{Report, Source, identify},
};

/// The rules and limits of one copy.
const RULES: Rules = Rules {
    fidelity: Fidelity::Plain,
    limits: Limits { entries: 100_000, bytes: 16 * 1024 * 1024 * 1024, depth: 128 },
};

/// A caller who asks for files of the host, and the policy for those it may touch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostCaller<'a> {
    pub(crate) who: &'a Principal,
    pub(crate) policy: &'a HostPolicy,
}

impl HostCaller<'_> {
    /// Adds how a path that was refused can be allowed: by the command line of `warren mcp` for clients on stdio, who
    /// say where they stand, and by that of the daemon for those on HTTP.
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
