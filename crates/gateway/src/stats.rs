//! What a gateway did so far.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

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
    /// Answers from the cache that were past their time, given because the index did not answer. Also counted in `hits`.
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
    pub(crate) requests: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) upstream_requests: AtomicU64,
    pub(crate) bytes_fetched: AtomicU64,
    pub(crate) bytes_served: AtomicU64,
    pub(crate) mismatches: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<Option<String>>,
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Relaxed);
}

impl Counters {
    pub(crate) fn failed(&self, text: impl AsRef<str>) {
        add(&self.errors, 1);
        let text: String = text.as_ref().chars().take(MAX_ERROR_CHARS).collect();
        tracing::debug!(error = %text, "package gateway");
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            requests: self.requests.load(Relaxed),
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            stale: self.stale.load(Relaxed),
            upstream_requests: self.upstream_requests.load(Relaxed),
            bytes_fetched: self.bytes_fetched.load(Relaxed),
            bytes_served: self.bytes_served.load(Relaxed),
            mismatches: self.mismatches.load(Relaxed),
            errors: self.errors.load(Relaxed),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
