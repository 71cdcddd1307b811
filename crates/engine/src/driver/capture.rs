//! Copies a sandbox's files while nothing in it moves.
//!
//! One piece of work: pause, copy, resume. The record says running all the while: if the daemon dies in between, the
//! next one resumes every sandbox recorded as running.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use sandbox::{
    Action, BackendError, Capability, Error, ErrorKind, Holding, Next, Result, SandboxPlan, SandboxState,
    SnapshotId, Subject, TreeCopy,
};
use store::SandboxRecord;
use tokio::time::timeout;

use super::{
    Driver, Reply, refuse,
    work::{Done, WorkKind},
};
use crate::{
    core::Core,
    error,
    shared::{Life, Shared},
};

/// The result of a copy.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) copy: TreeCopy,
    /// How long the workload was held; absent if it was not running anyway.
    pub(crate) held: Option<Duration>,
    /// The sandbox's record at that time.
    pub(crate) record: SandboxRecord,
}

/// How a capture ended.
pub(super) struct Capture {
    reply: Reply<Captured>,
    copied: Result<(TreeCopy, Option<Duration>)>,
    /// Why it is still paused although it should not be.
    still_paused: Option<Error>,
}

impl Driver {
    pub(super) fn capture(&mut self, into: SnapshotId, reply: Reply<Captured>) {
        if let Err(error) = self.allow(Action::Snapshot) {
            return refuse(reply, error);
        }
        let life = self.life.clone().filter(|_| self.record.state == SandboxState::Running);
        if life.is_some() && !self.core.backends.has(&self.record.plan, Capability::Pause) {
            let message =
                format!("{} is running, and this host cannot pause it for the copy", self.shared.label());
            let next = Next::Stop(self.shared.label().name);
            return refuse(reply, Error::new(ErrorKind::Unsupported, message).with_next(next));
        }
        let (core, shared) = (Arc::clone(&self.core), Arc::clone(&self.shared));
        let plan = self.record.plan.clone();
        self.begin(WorkKind::Capturing, async move {
            let label = shared.label();
            // Nobody writes files through the guest meanwhile; operations in progress get some time to end.
            let patience = core.config.deadlines.last_words;
            let still = timeout(patience, Arc::clone(&shared.still).write_owned()).await;
            let (copied, still_paused) = match life {
                None => {
                    let copied = copy(&core, &plan, &into, Box::pin(async { Ok(()) }), &label).await;
                    (copied.map(|copy| (copy, None)), None)
                }
                Some(life) => while_held(&core, &shared, &life, &plan, &into).await,
            };
            drop(still);
            Done::Captured(Box::new(Capture { reply, copied, still_paused }))
        });
    }

    pub(super) async fn captured(&mut self, capture: Capture) {
        let Capture { reply, copied, still_paused } = capture;
        if let Some(error) = still_paused {
            // Recorded as paused, or nobody would ever resume it.
            tracing::error!(
                sandbox = %self.record.id, error = &error as &dyn std::error::Error, "could not resume after a copy"
            );
            self.record.state = SandboxState::Paused;
            self.save_if_possible().await;
        }
        self.publish();
        let record = self.record.clone();
        drop(reply.send(copied.map(|(copy, held)| Captured { copy, held, record })));
    }
}

async fn copy(
    core: &Core,
    plan: &SandboxPlan,
    into: &SnapshotId,
    hold: Holding<'_>,
    label: &Subject,
) -> Result<TreeCopy> {
    let copied = core.backends.snapshots_of(plan)?.take(plan, into, hold).await;
    copied.map_err(|error| error::from_backend(error, label))
}

/// Copies while nothing inside moves, and resumes it whatever the result.
async fn while_held(
    core: &Core,
    shared: &Shared,
    life: &Life,
    plan: &SandboxPlan,
    into: &SnapshotId,
) -> (Result<(TreeCopy, Option<Duration>)>, Option<Error>) {
    let label = shared.label();
    // As in a requested pause: a command frozen before it runs would keep its caller waiting.
    let starting = shared.execs.starting();
    let begun = join_all(starting.iter().map(|exec| exec.started()));
    if timeout(core.config.deadlines.last_words, begun).await.is_err() {
        tracing::warn!(sandbox = %label, "copied although a command is still starting");
    }
    let since = OnceLock::new();
    let hold = Box::pin(async {
        since.get_or_init(Instant::now);
        life.instance.pause().await
    });
    let copied = copy(core, plan, into, hold, &label).await;
    let Some(since) = since.get() else { return (copied.map(|copy| (copy, None)), None) };
    let resumed = life.instance.resume().await;
    let copied = copied.map(|copy| (copy, Some(since.elapsed())));
    match resumed {
        // It ended meanwhile, which the driver finds out next.
        Ok(()) | Err(BackendError::Gone(_)) => (copied, None),
        Err(error) => (copied, Some(error::from_backend(error, &label))),
    }
}
