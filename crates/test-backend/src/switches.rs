//! Failures that a test can ask for.

use std::{collections::VecDeque, sync::Mutex, time::Duration};

use sandbox::BackendError;
use tokio::sync::watch;

use crate::lock;

/// How a hostile guest behaves on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hostility {
    /// Announces a frame of 4 GiB.
    TooLong,
    /// Answers with bytes that are no frames.
    Garbage,
    /// Answers a request with a frame that belongs elsewhere.
    WrongOrder,
    /// Follows an exec properly, but leaves out an event.
    EventGap,
    /// Follows an exec properly, but sends an event twice.
    EventTwice,
    /// Never stops: output without end where an exec is followed, a body without end otherwise.
    Endless,
    /// Says nothing at all, not even who it is.
    Silence,
    /// Says who it is and then nothing.
    SilenceAfterHello,
    /// Closes in the middle of a frame.
    Truncated,
    /// Opens with something that is not a greeting.
    NoHello,
    /// Starts what it is asked to start, and does not say so.
    SilentStart,
    /// Takes its time over the first request, then behaves.
    Slow,
    /// Behaves, but where code shows a text that begins with `raw `, the rest of it is the record.
    RawRecords,
    /// Says that it speaks this version of the protocol at most, and behaves.
    Version(u32),
}

#[derive(Debug, Default)]
pub(crate) struct Switches {
    state: Mutex<State>,
    copies_held: watch::Sender<bool>,
    n_copies: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    create_failures: VecDeque<BackendError>,
    copy_failures: VecDeque<BackendError>,
    removal_failures: VecDeque<BackendError>,
    n_failing_connects: usize,
    is_away: bool,
    hostile: Option<(Hostility, usize)>,
    start_delay: Duration,
    quotas_are_measured: bool,
}

impl Switches {
    pub(crate) fn fail_next_create(&self, error: BackendError) {
        lock(&self.state).create_failures.push_back(error);
    }

    pub(crate) fn fail_next_copy(&self, error: BackendError) {
        lock(&self.state).copy_failures.push_back(error);
    }

    pub(crate) fn take_copy_failure(&self) -> Option<BackendError> {
        lock(&self.state).copy_failures.pop_front()
    }

    pub(crate) fn fail_next_removal(&self, error: BackendError) {
        lock(&self.state).removal_failures.push_back(error);
    }

    pub(crate) fn take_removal_failure(&self) -> Option<BackendError> {
        lock(&self.state).removal_failures.pop_front()
    }

    pub(crate) fn hold_copies(&self, is_held: bool) {
        self.copies_held.send_replace(is_held);
    }

    /// A copy begins, and stops where copies are held.
    pub(crate) async fn copying(&self) {
        self.n_copies.send_modify(|n| *n += 1);
        // The sender lives as long as we do, so this only ends when nothing is held.
        drop(self.copies_held.subscribe().wait_for(|is_held| !is_held).await);
    }

    pub(crate) async fn copies_begun(&self, n: usize) {
        drop(self.n_copies.subscribe().wait_for(|begun| *begun >= n).await);
    }

    pub(crate) fn take_create_failure(&self) -> Option<BackendError> {
        lock(&self.state).create_failures.pop_front()
    }

    pub(crate) fn be_away(&self, is_away: bool) {
        lock(&self.state).is_away = is_away;
    }

    pub(crate) fn check_there(&self) -> Result<(), BackendError> {
        match lock(&self.state).is_away {
            true => Err(BackendError::Unavailable { what: "the back end is away".to_owned() }),
            false => Ok(()),
        }
    }

    pub(crate) fn fail_next_connects(&self, n: usize) {
        lock(&self.state).n_failing_connects = n;
    }

    pub(crate) fn take_connect_failure(&self) -> Option<BackendError> {
        let mut state = lock(&self.state);
        state.n_failing_connects = state.n_failing_connects.checked_sub(1)?;
        Some(BackendError::failed("could not connect to the guest", "refused on request of a test"))
    }

    pub(crate) fn be_hostile(&self, hostility: Hostility, n: usize) {
        lock(&self.state).hostile = (n > 0).then_some((hostility, n));
    }

    pub(crate) fn take_hostility(&self) -> Option<Hostility> {
        let mut state = lock(&self.state);
        let (hostility, n) = state.hostile?;
        state.hostile = (n > 1).then_some((hostility, n - 1));
        Some(hostility)
    }

    pub(crate) fn delay_starts(&self, delay: Duration) {
        lock(&self.state).start_delay = delay;
    }

    pub(crate) fn measure_quotas(&self) {
        lock(&self.state).quotas_are_measured = true;
    }

    pub(crate) fn quotas_are_measured(&self) -> bool {
        lock(&self.state).quotas_are_measured
    }

    pub(crate) fn start_delay(&self) -> Duration {
        lock(&self.state).start_delay
    }
}
