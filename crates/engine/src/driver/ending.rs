//! How an instance ends: politely first, by force at a deadline, and with its last output read.

use std::{sync::Arc, time::Duration};

use guest_protocol::Request;
use sandbox::{BackendError, KillReason};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use crate::{client::GuestError, config::Deadlines, shared::Life};

/// Returns when nothing of the instance is left and every exec has an outcome, or the wait for those was given up.
///
/// `stop_by`: when force is used; it may move nearer meanwhile. `None` means that the instance has already ended.
pub(super) async fn end(
    life: &Arc<Life>,
    stop_by: Option<watch::Receiver<Instant>>,
    why: KillReason,
    was_paused: bool,
    deadlines: Deadlines,
) -> Result<(), BackendError> {
    // Set only once, so the first attempt to end it names the reason.
    life.end.set(why).unwrap_or(());
    if let Some(stop_by) = stop_by {
        if was_paused {
            thaw(life, deadlines).await;
        }
        ask(life, stop_by, deadlines).await;
    }
    life.over.cancel();
    let stopped = life.instance.stop().await;
    life.pumps.close();
    if timeout(deadlines.last_words, life.pumps.wait()).await.is_err() {
        life.abandoned.cancel();
        // The pumps record how their execs ended, and finish.
        if timeout(deadlines.last_words, life.pumps.wait()).await.is_err() {
            tracing::warn!(sandbox = %life.client.label(), "execs of a stopped sandbox did not settle");
        }
    }
    stopped
}

/// A frozen workload cannot react to SIGTERM. If it does not thaw, it is killed as it is.
async fn thaw(life: &Life, deadlines: Deadlines) {
    match timeout(deadlines.last_words, life.instance.resume()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(sandbox = %life.client.label(), %error, "could not resume before a stop");
        }
        Err(_) => tracing::warn!(sandbox = %life.client.label(), "could not resume before a stop in time"),
    }
}

async fn ask(life: &Life, mut stop_by: watch::Receiver<Instant>, deadlines: Deadlines) {
    loop {
        let by = *stop_by.borrow_and_update();
        tokio::select! {
            () = life.instance.ended() => return,
            () = could_not_be_asked(life, by.saturating_duration_since(Instant::now())) => return,
            () = sleep_until(by + deadlines.last_words) => {
                return tracing::info!(sandbox = %life.client.label(), "ended by force");
            }
            // Another caller is in more of a hurry: the guest is asked again, with less grace.
            Ok(()) = stop_by.changed() => {}
        }
    }
}

/// Returns only if the guest refuses. Otherwise it may answer at once, at the end, or not at all; only the end of the
/// instance counts.
async fn could_not_be_asked(life: &Life, grace: Duration) {
    let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    match life.client.call(&Request::Shutdown { grace_ms, signal: life.stop_signal }).await {
        Ok(_) | Err(GuestError::Io(_) | GuestError::Closed | GuestError::Silent { .. }) => {
            std::future::pending::<()>().await;
        }
        Err(error) => {
            tracing::warn!(sandbox = %life.client.label(), %error, "the guest could not be asked to end");
        }
    }
}
