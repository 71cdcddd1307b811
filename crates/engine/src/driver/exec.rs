//! Accepts an exec: whether it may run is decided here; running it is a task of its own.

use std::sync::Arc;

use sandbox::{Action, CellSpec, Error, ExecSpec, ExecState, Limit, Next, Result};
use store::ExecRecord;
use tokio::sync::oneshot;
use tracing::Span;

use super::{Driver, Reply, refuse};
use crate::{
    FirstExec, error,
    live::{LiveExec, MAX_OPEN_EXECS},
    names,
    pump::ExecTask,
    request_hash,
    shared::{Activity, Life},
};

/// The first exec of a new sandbox, requested together with it: recorded with it, and started as soon as it can be.
pub(super) struct First {
    pub(super) exec: Arc<LiveExec>,
    /// A cell's whole code.
    code: Option<String>,
    in_default_shell: bool,
    /// The request's span.
    span: Span,
    reply: Reply<ExecRecord>,
}

/// The request that an exec comes from.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Whoever asks, in words.
    pub(super) by: String,
    pub(super) request_hash: Option<String>,
}

impl Driver {
    pub(super) fn expect_first(
        &mut self,
        first: FirstExec,
        asked_by: String,
        reply: Reply<ExecRecord>,
    ) -> Result<()> {
        let FirstExec { mut spec, in_default_shell } = first;
        let asked = Asked { by: asked_by, request_hash: request_hash::of_exec(&spec) };
        let code = spec.cell.as_mut().map(CellSpec::take_code);
        let exec = self.new_exec(spec, Some(asked))?;
        let span = tracing::info_span!(target: "trace", "exec", exec.id = exec.id.as_str());
        self.first = Some(First { exec, code, in_default_shell, span, reply });
        Ok(())
    }

    /// Starts it, if there is one. Send through what is returned when the sandbox was told to run.
    pub(super) fn begin_first(&mut self) -> Option<oneshot::Sender<()>> {
        let (First { exec, code, in_default_shell, span, reply }, life) =
            self.first.take().zip(self.life.clone())?;
        let (tell, told) = oneshot::channel();
        let guard = Activity::begin(&self.shared.activity, Arc::clone(&self.core.clock));
        let task = ExecTask::new(&self.core, &self.shared, &life, &exec);
        life.pumps.spawn(task.run_first(in_default_shell, code, reply, guard, told, span));
        Some(tell)
    }

    /// It has no sandbox to run in. Its record goes with the sandbox's, its ledger with the files.
    pub(super) fn drop_first(&mut self) {
        if let Some(First { exec, .. }) = self.first.take() {
            exec.close();
            self.shared.execs.remove(&exec.id);
        }
    }

    pub(super) fn exec(&mut self, mut spec: ExecSpec, asked: Asked, span: Span, reply: Reply<ExecRecord>) {
        if let Some(request) = &spec.request_id
            && let Some(earlier) = self.shared.execs.requested(request)
        {
            let known = earlier.progress.borrow().record.request_hash.clone();
            match request_hash::check(Some(request), known.as_deref(), asked.request_hash.as_deref()) {
                Ok(()) => drop(tokio::spawn(async move { drop(reply.send(earlier.started().await)) })),
                Err(error) => refuse(reply, error),
            }
            return;
        }
        // Kept in memory until it has begun; records have only its beginning.
        let code = spec.cell.as_mut().map(CellSpec::take_code);
        match self.admit(spec, asked) {
            Ok((life, exec)) => {
                let guard = Activity::begin(&self.shared.activity, Arc::clone(&self.core.clock));
                let task = ExecTask::new(&self.core, &self.shared, &life, &exec);
                life.pumps.spawn(task.run_new(code, reply, guard, span));
            }
            Err(error) => refuse(reply, error),
        }
    }

    fn admit(&mut self, spec: ExecSpec, asked: Asked) -> Result<(Arc<Life>, Arc<LiveExec>)> {
        self.allow(Action::Exec)?;
        let label = self.shared.label();
        let Some(life) = self.life.clone() else {
            return Err(error::wrong_state(&label, self.record.state, Action::Exec));
        };
        if self.draining.is_some() {
            let message = format!("{label} is draining and accepts no new commands");
            return Err(
                Error::wrong_state(&label, self.record.state, message).with_next(Next::Restart(label.name))
            );
        }
        if self.shared.execs.len() >= MAX_OPEN_EXECS {
            let message = format!("{label} already has {MAX_OPEN_EXECS} open execs");
            let most = MAX_OPEN_EXECS as u64;
            return Err(Error::over_limit(Limit::Execs, most, most + 1, message));
        }
        Ok((life, self.new_exec(spec, Some(asked))?))
    }

    /// Registered here, so that a stop waits for it.
    pub(super) fn new_exec(&mut self, spec: ExecSpec, asked: Option<Asked>) -> Result<Arc<LiveExec>> {
        let (asked_by, request_hash) = asked.map(|asked| (asked.by, asked.request_hash)).unzip();
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
            asked_by,
            request_hash: request_hash.flatten(),
        }));
        self.shared.execs.insert(Arc::clone(&exec));
        Ok(exec)
    }
}
