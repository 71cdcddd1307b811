//! A download that only drips is ended: it would hold its slot for an hour.

use std::time::{Duration, Instant};

/// Less than this many bytes within the window is too slow: 1 KiB a second.
const MIN_BYTES: u64 = 60 << 10;
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    bytes: u64,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, bytes: 0 }
    }

    /// Counts `bytes` that came; whether that is still fast enough.
    pub(super) fn is_kept(&mut self, bytes: u64, now: Instant) -> bool {
        self.bytes += bytes;
        if now.saturating_duration_since(self.since) < WINDOW {
            return true;
        }
        let is_kept = self.bytes >= MIN_BYTES;
        *self = Self::new(now);
        is_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drips_are_told_from_a_slow_line() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut slow = Pace::new(start);
        assert!((1..=300).all(|second| slow.is_kept(2 << 10, at(second))), "2 KiB a second");
        let mut drip = Pace::new(start);
        assert!((1..60).all(|second| drip.is_kept(100, at(second))), "not before the window is over");
        assert!(!drip.is_kept(100, at(60)));
        let mut stalling = Pace::new(start);
        assert!(stalling.is_kept(1 << 20, at(60)));
        assert!(!stalling.is_kept(1, at(120)), "a fast beginning does not pay for what follows");
    }
}
