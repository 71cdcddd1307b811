//! Time as the engine sees it, so that a test can move it.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;

/// The wall clock behind lifetimes, records and events.
pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Timestamp;

    /// Returns once `now()` has reached `at`, whether by passing time or by a jump.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
}

/// The host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// A wall clock can be set while we sleep, and a machine can be suspended; it is checked again this often.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let left = until(Timestamp::now(), at);
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
            }
        })
    }
}

/// A clock that tests move by hand.
#[derive(Debug, Clone)]
pub struct ManualClock {
    now: Arc<watch::Sender<Timestamp>>,
}

impl ManualClock {
    pub fn new(start: Timestamp) -> Self {
        Self { now: Arc::new(watch::Sender::new(start)) }
    }

    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now = later(*now, by));
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new(Timestamp::UNIX_EPOCH)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.borrow()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let mut now = self.now.subscribe();
        Box::pin(async move {
            if now.wait_for(|now| *now >= at).await.is_err() {
                // The clock is gone; time stands still forever.
                std::future::pending::<()>().await;
            }
        })
    }
}

/// `at` plus `by`, or the end of time.
pub(crate) fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// How long from `now` to `at`; zero when it has passed.
pub(crate) fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_manual_clock_wakes_whoever_waited_for_that_moment() {
        let clock = ManualClock::default();
        let alarm = clock.sleep_until(later(clock.now(), Duration::from_secs(3600)));
        let waiting = tokio::spawn(alarm);
        clock.advance(Duration::from_secs(1800));
        assert!(!waiting.is_finished());
        clock.advance(Duration::from_secs(1800));
        waiting.await.unwrap();
    }

    #[test]
    fn spans_never_overflow_or_turn_negative() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(later(now, Duration::MAX), Timestamp::MAX);
        assert_eq!(until(later(now, Duration::from_secs(5)), now), Duration::ZERO);
    }
}
