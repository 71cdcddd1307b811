//! The clerk: records an exec's events in the ledger, the store and the event log.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use sandbox::{EventKind, ExecOutcome, ExecState, KillReason, NotStarted};
use store::{EntryKind, ExecRecord, LedgerError, StoreError};
use tokio::{task::yield_now, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    core::{Core, until},
    disk::may_block,
    entry::{ExitEntry, json},
    live::LiveExec,
    outcome::event_of,
    shared::Shared,
};

/// The first pause before the store is tried again; each next one is twice as long, up to `Deadlines::retry`.
const FIRST_RETRY: Duration = Duration::from_millis(10);
/// How often a full disk is checked again.
const RETRY_FULL_DISK: Duration = Duration::from_millis(250);
/// Bytes of output between two checks for trimmed ledgers.
const LOOK_FOR_TRIMS_EVERY: usize = 1024 * 1024;

/// Execs of one sandbox whose record and output are kept.
const MAX_KEPT_EXECS: u32 = 4096;
/// Old execs are cleared after this many have ended.
const CLEAR_AFTER_EXECS: usize = 256;

pub(crate) struct Clerk {
    pub(crate) core: Arc<Core>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) exec: Arc<LiveExec>,
    /// Nobody waits any longer: whatever cannot be written now is left to the next daemon.
    given_up: CancellationToken,
    pub(crate) running_recorded: bool,
    bytes_since_trim: usize,
    /// An end that could not be recorded before everybody gave up.
    unwritten: Option<Unwritten>,
}

/// The parts of an end that are still to be written.
struct Unwritten {
    /// The ledger's entry, with the number of the guest's event, if it is missing there too.
    entry: Option<(u64, Bytes)>,
}

impl Clerk {
    pub(crate) fn new(
        core: &Arc<Core>,
        shared: &Arc<Shared>,
        exec: &Arc<LiveExec>,
        given_up: &CancellationToken,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            shared: Arc::clone(shared),
            exec: Arc::clone(exec),
            given_up: given_up.clone(),
            running_recorded: false,
            bytes_since_trim: 0,
            unwritten: None,
        }
    }

    /// Appends, waiting for space if the disk is full: unwritten output is not acknowledged, so the process inside
    /// waits too, and nothing is lost. Gives up only with the sandbox. Returns whether it is written.
    pub(crate) async fn append(&self, kind: EntryKind, number: u64, data: &[u8]) -> bool {
        if self.unwritten.as_ref().is_some_and(|unwritten| unwritten.entry.is_some()) {
            // Its end is written first.
            self.lost(kind);
            return false;
        }
        let mut has_told = false;
        loop {
            let at_ms = self.core.clock.now().as_millisecond();
            let append = || self.exec.append(at_ms, kind, number, data);
            let error = match self.core.disk.write(data.len(), append).await {
                Some(Err(error)) => error,
                Some(Ok(_)) | None => {
                    self.count(kind, data.len());
                    return true;
                }
            };
            if !has_told {
                has_told = true;
                tracing::error!(exec = %self.exec.id, error = &error as &dyn std::error::Error, "output waits for the ledger");
            }
            if matches!(error, LedgerError::TooLong { .. }) || self.has_given_up() {
                self.lost(kind);
                return false;
            }
            tokio::select! {
                () = self.given_up.cancelled() => {}
                () = sleep(RETRY_FULL_DISK) => {}
            }
        }
    }

    fn count(&self, kind: EntryKind, bytes: usize) {
        if matches!(kind, EntryKind::Stdout | EntryKind::Stderr | EntryKind::Rich) {
            self.core.metrics.output(bytes);
        }
    }

    fn lost(&self, kind: EntryKind) {
        if matches!(kind, EntryKind::Stdout | EntryKind::Stderr | EntryKind::Rich) {
            self.exec.lose_output(1);
        }
    }

    fn has_given_up(&self) -> bool {
        self.given_up.is_cancelled() || self.is_sandbox_gone()
    }

    /// An end that the guest did not report: the entry is ours.
    pub(crate) async fn settle(&mut self, outcome: ExecOutcome) {
        let entry = ExitEntry { report: None, outcome };
        self.end(self.exec.last_guest_event(), entry).await;
        self.leave().await;
    }

    /// The exec was lost with its instance, or the guest has forgotten it.
    pub(crate) async fn lose(&mut self, reason: KillReason) {
        let record = self.exec.record();
        if record.state == ExecState::Done {
            self.append(EntryKind::Closed, self.exec.last_guest_event(), &[]).await;
            return self.leave().await;
        }
        let outcome = if record.state == ExecState::Starting && self.exec.last_guest_event() == 0 {
            let message = "the sandbox or the daemon stopped before it started".to_owned();
            ExecOutcome::NotStarted { reason: NotStarted::Lost, message }
        } else {
            ExecOutcome::Killed { reason }
        };
        self.settle(outcome).await;
    }

    /// Writes an end to the ledger and publishes it: to waiting callers, the store and the events. `number`: of the
    /// guest's event.
    pub(crate) async fn end(&mut self, number: u64, entry: ExitEntry) {
        let data = json(&entry);
        let is_in_ledger = self.append(EntryKind::Exited, number, &data).await;
        let outcome = entry.outcome;
        let now = self.core.clock.now();
        self.shared.activity.touch(now);
        let record = self.exec.change(|record| {
            record.state = ExecState::Done;
            record.outcome = Some(outcome.clone());
            record.ended_at = Some(now);
            record.last_entry = is_in_ledger.then(|| self.exec.last_number());
            record.n_lost = self.exec.n_lost();
        });
        self.core.metrics.exec_ended(&outcome);
        self.shared.exec_ended.notify_one();
        self.running_recorded = true;
        // Whoever waits is answered before this thread writes the record: the ledger has the end.
        yield_now().await;
        let is_in_store = self.store(record).await;
        if !is_in_ledger || !is_in_store {
            self.unwritten = Some(Unwritten { entry: (!is_in_ledger).then_some((number, data)) });
        }
        self.tell(EventKind::ExecEnded, outcome.to_string()).await;
        if let Some(kind) = event_of(&outcome) {
            self.tell(kind, outcome.to_string()).await;
        }
    }

    pub(crate) async fn record_running(&mut self) {
        self.running_recorded = true;
        if let Err(error) = self.core.store.update_exec(self.exec.record()).await {
            // The ledger has it, and so will the record of its end.
            tracing::warn!(exec = %self.exec.id, %error, "could not record that an exec runs");
        }
    }

    pub(crate) async fn tell(&self, kind: EventKind, detail: impl Into<String>) {
        self.core.feed.exec(&self.shared.subject.id, &self.exec.id);
        self.core.emit(&self.shared.subject, &self.shared.name(), kind, Some(&self.exec.id), detail).await;
    }

    /// Writes the record of an end; retries while it can. Returns whether it is written, or no longer exists.
    async fn store(&self, record: ExecRecord) -> bool {
        let mut pause = FIRST_RETRY;
        loop {
            match self.core.store.update_exec(record.clone()).await {
                Ok(()) | Err(StoreError::Missing { .. } | StoreError::Closed) => return true,
                Err(error) => {
                    tracing::warn!(exec = %self.exec.id, %error, "could not record how an exec ended");
                }
            }
            if self.has_given_up() {
                return false;
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(self.core.config.deadlines.retry);
        }
    }

    /// The ledger is complete. If an end could not be written, the exec is kept in memory, and read from there, until
    /// it can.
    pub(crate) async fn leave(&mut self) {
        let Some(unwritten) = self.unwritten.take().filter(|_| !self.is_sandbox_gone()) else {
            return self.let_go().await;
        };
        tracing::warn!(exec = %self.exec.id, "the end of an exec waits to be recorded");
        let mut later = Self::new(&self.core, &self.shared, &self.exec, &CancellationToken::new());
        let closing = self.core.closing.clone();
        self.core.drivers.spawn(async move { until(&closing, later.write_end(unwritten)).await });
    }

    fn is_sandbox_gone(&self) -> bool {
        self.shared.status.borrow().gone.is_some()
    }

    async fn write_end(&mut self, unwritten: Unwritten) {
        if let Some((number, data)) = unwritten.entry
            && self.append(EntryKind::Exited, number, &data).await
        {
            self.exec.change(|record| record.last_entry = Some(self.exec.last_number()));
        }
        self.store(self.exec.record()).await;
        self.let_go().await;
    }

    async fn let_go(&mut self) {
        self.exec.close();
        match self.shared.ledger() {
            Ok(ledger) => ledger.finish(&self.exec.id),
            Err(error) => tracing::warn!(exec = %self.exec.id, %error, "no ledger to finish"),
        }
        self.look_for_trims(LOOK_FOR_TRIMS_EVERY).await;
        self.forget();
        if (self.shared.n_ended.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(CLEAR_AFTER_EXECS) {
            self.clear_old_execs().await;
        }
    }

    /// Bounds the number of kept execs, however short their logs are.
    async fn clear_old_execs(&self) {
        let surplus = self.core.store.surplus_execs(self.shared.subject.id.clone(), MAX_KEPT_EXECS).await;
        let (Ok(surplus), Ok(ledger)) = (surplus, self.shared.ledger()) else { return };
        // An exec whose output is still open is busy and stays for the next time.
        let gone: Vec<_> = may_block(|| surplus.into_iter().filter(|id| ledger.remove(id).is_ok()).collect());
        if gone.is_empty() {
            return;
        }
        let detail = format!("dropped the {} oldest execs; {MAX_KEPT_EXECS} are kept", gone.len());
        if let Err(error) = self.core.store.remove_execs(gone).await {
            tracing::warn!(sandbox = %self.shared.subject.id, %error, "records of old execs stay");
        }
        self.core
            .emit(&self.shared.subject, &self.shared.name(), EventKind::LedgerTrimmed, None, detail)
            .await;
    }

    pub(crate) fn forget(&self) {
        self.shared.execs.remove(&self.exec.id);
        self.exec.nudge();
        self.shared.exec_ended.notify_one();
    }

    /// Removes the records of execs whose whole ledger was trimmed; other trims become events.
    pub(crate) async fn look_for_trims(&mut self, n_bytes: usize) {
        self.bytes_since_trim = self.bytes_since_trim.saturating_add(n_bytes);
        if self.bytes_since_trim < LOOK_FOR_TRIMS_EVERY {
            return;
        }
        self.bytes_since_trim = 0;
        let trim = || self.shared.ledger().map(|ledger| ledger.trim());
        let trimmed = match self.core.disk.write(0, trim).await {
            Ok(Ok(trimmed)) => trimmed,
            Ok(Err(error)) => {
                return tracing::warn!(exec = %self.exec.id, %error, "could not trim the ledger");
            }
            Err(error) => return tracing::warn!(exec = %self.exec.id, %error, "could not trim the ledger"),
        };
        for trimmed in trimmed {
            let detail = format!("dropped entries up to {} of {}", trimmed.through, trimmed.exec);
            self.core
                .emit(
                    &self.shared.subject,
                    &self.shared.name(),
                    EventKind::LedgerTrimmed,
                    Some(&trimmed.exec),
                    detail,
                )
                .await;
            if trimmed.whole
                && let Err(error) = self.core.store.remove_execs(vec![trimmed.exec.clone()]).await
            {
                tracing::warn!(exec = %trimmed.exec, %error, "the record of a trimmed exec stays");
            }
        }
    }
}
