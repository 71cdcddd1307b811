//! Expiry: how long a sandbox lives, and how long it may idle. Both come from the record, so both survive a restart.

use std::time::Duration;

use futures_util::FutureExt;
use guest_protocol::{Process, Request, Response};
use jiff::Timestamp;
use sandbox::{EventKind, OnExpiry, SandboxState};

use super::{Driver, alarm::Alarm, work::Then};
use crate::{Force, clock::later};

/// The last activity is recorded this many times per idle limit, so that a crash loses little of it.
const IDLE_CHECKS: u32 = 4;
/// The shortest interval between idle checks, however short the idle limit is.
const SHORTEST_IDLE_CHECK: Duration = Duration::from_millis(10);
/// Consecutive failed probes before the sandbox counts as idle; they are spread over one more idle limit, so that a
/// guest that is only temporarily slow does not lose its work.
const MAX_FAILED_PROBES: u32 = IDLE_CHECKS;
/// Process 1 inside is our guest, not work.
const GUEST_PID: i32 = 1;

/// The driver's timer.
pub(super) struct Watchman {
    pub(super) alarm: Alarm,
    idle_checked_at: Timestamp,
    /// When the guest first failed to report liveness, and how many times since.
    failing: Option<(Timestamp, u32)>,
}

/// The guest's answer about living processes inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probed {
    Alive,
    Quiet,
    Unknown,
}

impl Watchman {
    /// Checks at once: the time without a daemon counts too.
    pub(super) fn new() -> Self {
        Self { alarm: Alarm::default(), idle_checked_at: Timestamp::MIN, failing: None }
    }
}

impl Driver {
    pub(super) fn arm_clock(&mut self) {
        let at = self.next_deadline();
        self.expiry.alarm.set(&*self.core.clock, at);
        let at = self.next_grant_end();
        self.grant_end.set(&*self.core.clock, at);
    }

    /// Whether a running instance exists.
    pub(super) fn is_awake(&self) -> bool {
        matches!(self.record.state, SandboxState::Running | SandboxState::Paused)
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let ttl = self.record.expires_at.filter(|_| {
            self.is_awake()
                || self.record.state == SandboxState::Stopped
                    && self.record.lifetime.on_expiry == OnExpiry::Remove
        });
        let idle = self.record.lifetime.idle.filter(|_| self.is_awake()).map(|idle| {
            let deadline = later(self.shared.activity.last_at(), idle);
            let check = later(self.expiry.idle_checked_at, (idle / IDLE_CHECKS).max(SHORTEST_IDLE_CHECK));
            let soonest = later(self.expiry.idle_checked_at, SHORTEST_IDLE_CHECK);
            if self.expiry.failing.is_some() { check } else { deadline.min(check).max(soonest) }
        });
        match (ttl, idle) {
            (Some(ttl), Some(idle)) => Some(ttl.min(idle)),
            (ttl, idle) => ttl.or(idle),
        }
    }

    pub(super) async fn look_at_the_clock(&mut self) {
        let now = self.core.clock.now();
        if self.record.expires_at.is_some_and(|at| at <= now) {
            return self.expire("its lifetime ended".to_owned()).await;
        }
        let Some(idle) = self.record.lifetime.idle.filter(|_| self.is_awake()) else { return };
        self.expiry.idle_checked_at = now;
        if self.is_touched() {
            self.shared.activity.touch(now);
            self.expiry.failing = None;
        } else if later(self.shared.activity.last_at(), idle) <= now {
            self.probe_for_work();
        }
        self.remember_activity().await;
    }

    fn is_touched(&self) -> bool {
        self.shared.activity.n_in_flight() > 0 || self.n_running_execs() > 0
    }

    async fn remember_activity(&mut self) {
        let last = self.shared.activity.last_at();
        if last > self.record.last_active_at {
            self.record.last_active_at = last;
            let manifest = self.manifest;
            self.save_if_possible().await;
            // The manifest does not contain this.
            self.manifest = manifest;
            self.publish();
        }
    }

    /// A process that an exec left behind is work too; only the guest knows of it.
    fn probe_for_work(&mut self) {
        let Some(life) = self.life.clone() else { return };
        let probe = async move {
            match life.client.call(&Request::Processes).await {
                Ok(Response::Processes { processes }) => {
                    let is_work = |process: &Process| process.pid != GUEST_PID && process.state != 'Z';
                    if processes.iter().any(is_work) { Probed::Alive } else { Probed::Quiet }
                }
                Ok(_) => Probed::Unknown,
                Err(error) => {
                    tracing::warn!(sandbox = %life.client.label(), %error, "could not ask for processes");
                    Probed::Unknown
                }
            }
        };
        self.idle_probe = Some(probe.boxed());
    }

    pub(super) async fn probed(&mut self, probed: Probed) {
        let now = self.core.clock.now();
        if probed == Probed::Alive || self.is_touched() {
            self.expiry.failing = None;
            self.shared.activity.touch(now);
            return self.remember_activity().await;
        }
        let Some(idle) = self.record.lifetime.idle.filter(|_| self.is_awake()) else { return };
        if probed == Probed::Unknown && self.may_still_work(now, idle) {
            return;
        }
        self.expiry.failing = None;
        // A request may have come and gone while the guest was asked.
        if later(self.shared.activity.last_at(), idle) <= now {
            self.expire(format!("it was idle for {idle:?}")).await;
        }
    }

    /// A guest that cannot answer proves neither rest nor work: an unreachable sandbox must not live forever.
    fn may_still_work(&mut self, now: Timestamp, idle: Duration) -> bool {
        let (since, n_failed) = self.expiry.failing.unwrap_or((now, 0));
        self.expiry.failing = Some((since, n_failed + 1));
        n_failed + 1 < MAX_FAILED_PROBES || now < later(since, idle)
    }

    async fn expire(&mut self, why: String) {
        self.tell(EventKind::SandboxExpired, why.clone()).await;
        match (self.record.state, self.record.lifetime.on_expiry) {
            (SandboxState::Stopped, _) => self.begin_removing(None, Force::No),
            (_, OnExpiry::Stop) => self.begin_stopping(None, Then::Rest, Some(why)).await,
            (_, OnExpiry::Remove) => self.begin_stopping(None, Then::Remove, Some(why)).await,
        }
    }
}
