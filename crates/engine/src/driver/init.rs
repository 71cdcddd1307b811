//! The sandbox's init program: an exec like others, started at every start before the sandbox is reported as running.

use std::sync::Arc;

use sandbox::{Error, ErrorKind, ExecOutcome, InitSpec, KillReason, NotStarted, Result};
use store::ExecRecord;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};
use tracing::Span;

use super::{
    Driver, ending,
    work::{Done, WorkKind},
};
use crate::{Force, error, pump::ExecTask, secrets, shared::Activity};

impl Driver {
    pub(super) fn begin_init(&mut self, first: bool, init: &InitSpec) {
        // The execs of an earlier run are over, so there is room for it.
        let begun = self.new_exec(init.exec(), None).map(|exec| {
            let (reply, started) = oneshot::channel();
            if let Some(life) = &self.life {
                let guard = Activity::begin(&self.shared.activity, Arc::clone(&self.core.clock));
                let task = ExecTask::new(&self.core, &self.shared, life, &exec);
                life.pumps.spawn(task.run_new(None, reply, guard, Span::current()));
            }
            started
        });
        let (life, deadlines, label) = (self.life.clone(), self.core.config.deadlines, self.shared.label());
        self.begin(WorkKind::Making, async move {
            let started = async {
                let record = begun?.await.map_err(|_dropped| error::closing())??;
                check(&record)
            };
            let result = started.await.map_err(not_begun);
            if result.is_err()
                && let Some(life) = life
            {
                let now = watch::Sender::new(Instant::now());
                let why = KillReason::SandboxStopped;
                if let Err(error) = ending::end(&life, Some(now.subscribe()), why, false, deadlines).await {
                    tracing::warn!(sandbox = %label, %error, "could not stop an instance whose init did not start");
                }
            }
            Done::Begun { first, result }
        });
    }

    /// The init program did not start, so the sandbox is not reported as running.
    pub(super) async fn not_begun(&mut self, first: bool, error: &Error) {
        if first {
            // The stop is tried once more, should it have failed.
            return self.begin_removing(Some(error.clone()), Force::No);
        }
        self.life = None;
        secrets::release(&self.core, &self.record);
        self.not_started(error).await;
    }

    /// Whether it is the init program, which nobody waits for.
    pub(super) fn is_init(&self, exec: &ExecRecord) -> bool {
        self.record.plan.init.as_ref().is_some_and(|init| init.exec() == exec.spec)
    }
}

fn check(record: &ExecRecord) -> Result<()> {
    match &record.outcome {
        Some(outcome @ ExecOutcome::NotStarted { reason, .. }) => {
            let error = Error::new(ErrorKind::InvalidRequest, outcome.to_string());
            match reason {
                NotStarted::NotFound => {
                    Err(error.with_hint("Give the full path of a program inside the sandbox."))
                }
                _ => Err(error),
            }
        }
        // It may have finished already: then it had little to do.
        _ => Ok(()),
    }
}

fn not_begun(error: Error) -> Error {
    error.reworded(|words| format!("could not start init: {words}"))
}
