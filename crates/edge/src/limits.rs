//! Rates: how often a sandbox may do something, and how many bytes it may send.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Connections of one sandbox that are being made at the same time; further ones wait for their turn.
pub(crate) const MAX_DIALS: usize = 64;
/// DNS questions of one sandbox that are being answered at the same time; further ones are dropped, and asked again.
pub(crate) const MAX_QUESTIONS: usize = 64;

/// Lets a number of things pass in a second, and a second's worth at once.
#[derive(Debug)]
pub(crate) struct Rate {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    per_second: f64,
    /// Things that may pass now; below zero while some wait.
    left: f64,
    at: Instant,
}

impl Rate {
    pub(crate) fn new(per_second: u64, now: Instant) -> Self {
        let per_second = as_float(per_second);
        Self { state: Mutex::new(State { per_second, left: per_second, at: now }) }
    }

    pub(crate) fn change(&self, per_second: u64) {
        let mut state = self.lock();
        state.per_second = as_float(per_second);
        state.left = state.left.min(state.per_second);
    }

    /// Whether one more may pass now.
    pub(crate) fn try_take(&self, now: Instant) -> bool {
        let mut state = self.lock();
        state.refill(now);
        let is_free = state.left >= 1.0;
        if is_free {
            state.left -= 1.0;
        }
        is_free
    }

    /// Takes `count`, and says how long to wait before going on.
    pub(crate) fn take(&self, count: u64, now: Instant) -> Duration {
        let mut state = self.lock();
        state.refill(now);
        state.left -= as_float(count);
        if state.left >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-state.left / state.per_second.max(1.0)).unwrap_or(Duration::MAX)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.left = (self.left + passed * self.per_second).min(self.per_second);
    }
}

/// Rates are far below where this loses anything.
fn as_float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seconds_worth_passes_at_once_and_the_rest_in_its_time() {
        let start = Instant::now();
        let rate = Rate::new(10, start);
        assert_eq!((0..100).filter(|_| rate.try_take(start)).count(), 10);
        assert_eq!((0..100).filter(|_| rate.try_take(start + Duration::from_millis(500))).count(), 5);
    }

    #[test]
    fn whoever_waits_waits_in_line() {
        let start = Instant::now();
        let rate = Rate::new(10, start);
        let waits: Vec<_> = (0..13).map(|_| rate.take(1, start).as_millis()).collect();
        assert_eq!(waits[..10], [0; 10]);
        assert_eq!(waits[10..], [100, 200, 300]);
    }
}
