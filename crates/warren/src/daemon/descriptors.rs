//! The daemon's limit of open files: it needs several for each sandbox, and one for each connection.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises our own soft limit to the hard one. Returns the old limit, which the spawner and every sandbox keep.
pub(super) fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::info!(from = current, to = maximum, "raised the limit of open files"),
        Err(error) => tracing::warn!(limit = current, "could not raise the limit of open files: {error}"),
    }
    current
}
