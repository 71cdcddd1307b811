//! Counts of what a gateway did so far.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::error::{Failure, FailureKind};

/// Longest text of a failure that is remembered, in characters.
const MAX_ERROR_CHARS: usize = 400;
/// Most warnings about addresses that are not reached. Sandboxes choose what is asked for, and must not fill the log.
const MAX_WARNINGS: usize = 64;

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
    /// The failures of which the operator was warned.
    warned: Mutex<BTreeSet<String>>,
}

impl Counters {
    pub(crate) fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.lock());
    }

    /// Counts a failure. Warns the operator of an address that is not reached, since only the configuration can change
    /// that.
    pub(crate) fn note(&self, failure: &Failure) {
        if failure.kind == FailureKind::Forbidden && self.is_worth_a_warning(&failure.detail) {
            tracing::warn!(
                error = %failure.detail,
                "a package index names an address that this host does not reach; packages.also_reach allows hosts"
            );
        }
        self.failed(&failure.detail);
    }

    /// Whether a failure is a new one, and there is room for another warning.
    fn is_worth_a_warning(&self, detail: &str) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        warned.len() < MAX_WARNINGS && warned.insert(shortened(detail))
    }

    pub(crate) fn failed(&self, text: impl AsRef<str>) {
        let text = shortened(text.as_ref());
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

fn shortened(text: &str) -> String {
    text.chars().take(MAX_ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_warned_of_once_and_there_is_an_end_of_warnings() {
        let counters = Counters::default();
        assert!(counters.is_worth_a_warning("a") && counters.is_worth_a_warning("b"));
        assert!(!counters.is_worth_a_warning("a"), "two that take turns are no news either");
        let n_more = (0..1000).filter(|n| counters.is_worth_a_warning(&n.to_string())).count();
        assert_eq!(n_more + 2, MAX_WARNINGS);
    }
}
