//! How long the sandbox lives: it is renewed, or drained, which stops it when its commands have ended.

use sandbox::{Action, Error, EventKind, Lifetime, Next, OnExpiry, Result, SandboxState};

use super::{
    Driver,
    command::{DrainCaller, Reply, refuse},
    manifest::Manifest,
    work::Then,
};
use crate::{clock, error};

impl Driver {
    pub(super) async fn drain(&mut self, caller: DrainCaller, reply: Reply<()>) {
        if self.record.state == SandboxState::Stopped {
            reply.send(Ok(())).unwrap_or(());
            return;
        }
        if let Err(error) = self.allow(Action::Stop) {
            return refuse(reply, error);
        }
        if self.record.state == SandboxState::Paused && self.n_running_execs() > 0 {
            let message = format!("{} is paused, so its commands cannot end", self.shared.label());
            let label = self.shared.label();
            let error = Error::wrong_state(&label, SandboxState::Paused, message);
            return refuse(reply, error.with_next(Next::Resume(label.name)));
        }
        self.draining.get_or_insert_default().push((caller, reply));
        self.publish();
        self.stop_if_drained().await;
    }

    pub(super) fn end_drain(&mut self, caller: DrainCaller) {
        let Some(waiting) = &mut self.draining else { return };
        waiting.retain(|(other, _)| *other != caller);
        if waiting.is_empty() {
            self.draining = None;
            self.publish();
        }
    }

    /// Callers waiting for the drain now wait for the current work.
    pub(super) fn join_drain(&mut self) {
        let drained = self.draining.take().into_iter().flatten();
        self.waiting.extend(drained.map(|(_, reply)| reply));
    }

    pub(super) async fn stop_if_drained(&mut self) {
        if self.work.is_some() || self.n_running_execs() > 0 {
            return;
        }
        if self.draining.is_some() {
            self.join_drain();
            self.begin_stopping(None, Then::Rest, None).await;
        }
    }

    pub(super) async fn renew(&mut self, lifetime: Lifetime) -> Result<()> {
        if self.record.state == SandboxState::Stopping {
            // Too late: a stop in progress is not taken back.
            let label = self.shared.label();
            let why =
                self.record.reason.as_ref().map(|reason| format!(", since {reason}")).unwrap_or_default();
            let message = format!("cannot renew {label}: it is being stopped{why}");
            return Err(Error::wrong_state(&label, SandboxState::Stopping, message)
                .with_next(Next::Restart(label.name)));
        }
        if self.record.state == SandboxState::Stopped && self.record.lifetime.on_expiry == OnExpiry::Stop {
            // Its time may have just run out. Nothing runs that could live longer.
            let label = self.shared.label();
            let message = format!("cannot renew {label}: it is stopped");
            return Err(
                Error::wrong_state(&label, SandboxState::Stopped, message).with_next(Next::Start(label.name))
            );
        }
        if self.record.state == SandboxState::Failed {
            let label = self.shared.label();
            let message = format!("cannot renew {label}: it has failed");
            return Err(Error::wrong_state(&label, SandboxState::Failed, message)
                .with_next(Next::Replace(label.name)));
        }
        let now = self.core.clock.now();
        let mut renewed = self.record.clone();
        renewed.expires_at = lifetime.ttl.map(|ttl| clock::later(now, ttl));
        renewed.lifetime = lifetime;
        renewed.last_active_at = now;
        self.core.store.update_sandbox(renewed.clone()).await.map_err(error::from_store)?;
        self.record = renewed;
        self.manifest = Manifest::Due;
        self.shared.activity.touch(now);
        self.publish();
        let until = self.record.expires_at.map_or_else(|| "forever".to_owned(), |at| format!("until {at}"));
        self.tell(EventKind::SandboxRenewed, until).await;
        Ok(())
    }
}
