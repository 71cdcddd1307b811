//! Counts of what a gateway did so far.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Failure, FailureKind};

/// Longest text of a failure that is remembered, in characters.
const MAX_ERROR_CHARS: usize = 400;

/// Since the gateway was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests of clients.
    pub requests: u64,
    /// Pages and files that were answered from the cache without asking an index for their content.
    pub hits: u64,
    /// Pages and files that had to be fetched.
    pub misses: u64,
    /// Answers from the cache that were past their time, given because the index did not answer. Also counted in
    /// `hits`.
    pub stale: u64,
    /// Requests that were sent to indexes, including those which only asked whether something changed.
    pub upstream_requests: u64,
    pub bytes_fetched: u64,
    pub bytes_served: u64,
    /// Files that were thrown away since they were not what the index stated.
    pub mismatches: u64,
    pub errors: u64,
    /// The newest failure, as text for the operator. Holds no credentials.
    pub last_error: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    stats: Mutex<Stats>,
}

impl Counters {
    pub(crate) fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.lock());
    }

    /// Counts a failure. The operator is warned of an address that is not reached, since only the configuration can
    /// change that; the same again is not worth another line.
    pub(crate) fn note(&self, failure: &Failure) {
        let is_known = self.lock().last_error.as_ref().is_some_and(|last| failure.detail.starts_with(last));
        if matches!(failure.kind, FailureKind::Forbidden) && !is_known {
            tracing::warn!(
                error = %failure.detail,
                "a package index names an address that this host does not reach; packages.also_reach allows hosts"
            );
        }
        self.failed(&failure.detail);
    }

    pub(crate) fn failed(&self, text: impl AsRef<str>) {
        let text: String = text.as_ref().chars().take(MAX_ERROR_CHARS).collect();
        tracing::debug!(error = %text, "package gateway");
        let mut stats = self.lock();
        stats.errors += 1;
        stats.last_error = Some(text);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
