//! How many files the daemon may hold open: several for each sandbox, and one for each connection.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises our own soft limit to the hard one. Returns what it was: the spawner and every sandbox keep that.
pub(super) fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::info!(from = current, to = maximum, "may open more files"),
        Err(error) => tracing::warn!(limit = current, "could not raise the limit of open files: {error}"),
    }
    current
}
