//! Accepts an exec: whether it may run is decided here; running it is a task of its own.

use std::sync::Arc;

use sandbox::{Action, CellSpec, Error, ErrorKind, ExecSpec, ExecState, Limit, Next, Result, Thing};
use store::ExecRecord;

use super::{Driver, Reply, refuse};
use crate::{
    error,
    live::{LiveExec, MAX_OPEN_EXECS},
    names,
    pump::ExecTask,
    shared::{Activity, Life},
};

impl Driver {
    pub(super) fn exec(&mut self, mut spec: ExecSpec, reply: Reply<ExecRecord>) {
        if let Some(earlier) =
            spec.request_id.as_ref().and_then(|request| self.shared.execs.requested(request))
        {
            tokio::spawn(async move { drop(reply.send(earlier.started().await)) });
            return;
        }
        // Kept in memory until it has begun; records have only its beginning.
        let code = spec.cell.as_mut().map(CellSpec::take_code);
        match self.admit(spec) {
            Ok((life, exec)) => {
                let guard = Activity::begin(&self.shared.activity, Arc::clone(&self.core.clock));
                let task = ExecTask::new(&self.core, &self.shared, &life, &exec);
                life.pumps.spawn(task.run_new(code, reply, guard));
            }
            Err(error) => refuse(reply, error),
        }
    }

    fn admit(&mut self, spec: ExecSpec) -> Result<(Arc<Life>, Arc<LiveExec>)> {
        self.allow(Action::Exec)?;
        let label = self.shared.label();
        let Some(life) = self.life.clone() else {
            return Err(error::wrong_state(&label, self.record.state, Action::Exec));
        };
        if self.draining.is_some() {
            let message = format!("{label} is draining and accepts no new commands");
            return Err(Error::new(ErrorKind::WrongState, message)
                .about(Thing::Sandbox, &label.name)
                .with_next(Next::Restart(label.name)));
        }
        if self.shared.execs.len() >= MAX_OPEN_EXECS {
            let message = format!("{label} already has {MAX_OPEN_EXECS} open execs");
            return Err(Error::new(ErrorKind::LimitReached, message)
                .over(Limit::Execs, MAX_OPEN_EXECS as u64, MAX_OPEN_EXECS as u64 + 1)
                .with_hint("Wait for some of them to finish, or use another sandbox."));
        }
        Ok((life, self.new_exec(spec)?))
    }

    /// Registered here, so that a stop waits for it.
    pub(super) fn new_exec(&mut self, spec: ExecSpec) -> Result<Arc<LiveExec>> {
        let exec = Arc::new(LiveExec::new(ExecRecord {
            id: names::random_exec_id()?,
            sandbox: self.record.id.clone(),
            spec,
            state: ExecState::Starting,
            outcome: None,
            pid: None,
            created_at: self.core.clock.now(),
            started_at: None,
            ended_at: None,
            last_entry: None,
            n_lost: 0,
        }));
        self.shared.execs.insert(Arc::clone(&exec));
        Ok(exec)
    }
}
