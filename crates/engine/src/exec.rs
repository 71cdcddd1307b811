//! Execs: started by the driver, followed by a task of their own, seen from here.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use guest_protocol::{Request, Response, SignalScope};
use sandbox::{
    Action, Error, ErrorKind, ExecId, ExecSpec, ExecState, KillReason, Result, SandboxId, TerminalSize,
};
use store::{EntryKind, ExecRecord};
use tracing::{Instrument as _, Span, field::Empty};

use crate::{
    ByteStream, CellView, Engine, EntryBody, ExecView, Follow, Principal, SandboxRef,
    client::GuestError,
    core::{Changeable, Core},
    driver::Command,
    error,
    feed::Happening,
    lifecycle::{ask, with_timeout},
    live::LiveExec,
    metrics::ExecKind,
    outcome::SIGKILL,
    request_hash,
    shared::{ActivityGuard, Life, Shared},
};

/// Highest signal number of Linux.
const MAX_SIGNAL: i32 = 64;
/// How much of a cell's first line lists show.
const MAX_SHOWN_CODE_CHARS: usize = 80;

impl Engine {
    /// Starts a command and returns as soon as it runs, or has failed to start (state `Done`, outcome `NotStarted`). A
    /// repeated `requestId` returns the exec of the first request.
    #[crate::boxed]
    pub async fn exec(&self, who: &Principal, which: &SandboxRef, spec: ExecSpec) -> Result<ExecView> {
        let (kind, began) = (ExecKind::of(&spec), Instant::now());
        let span = tracing::info_span!(target: "trace", "exec", exec.id = Empty, error = Empty);
        let started = self.try_exec(who, which, spec).instrument(span.clone()).await;
        match &started {
            Ok(view) => drop(span.record("exec.id", view.id.as_str())),
            Err(error) => drop(span.record("error", error.kind().as_str())),
        }
        self.core().metrics.exec_asked(kind, &started, began.elapsed());
        started
    }

    async fn try_exec(&self, who: &Principal, which: &SandboxRef, spec: ExecSpec) -> Result<ExecView> {
        spec.check().map_err(Error::from)?;
        let shared = self.core().find_to_change(who, which).await?;
        let (asked_by, request_hash) = (who.name.clone(), request_hash::of_exec(&spec));
        let (spec, span) = (Box::new(spec), Span::current());
        let asked = ask(&shared, |reply| Command::Exec { spec, asked_by, request_hash, span, reply });
        let record = asked.await?;
        Ok(view_of(&shared, record))
    }

    /// Starts what an earlier exec of the sandbox ran: the same command or code in the same place, with its
    /// environment, user and limits, and a terminal where it had one. Without a terminal its stdin is empty: nobody is
    /// there to type.
    ///
    /// The environment may hold secrets, so nobody has to be shown it for this.
    #[crate::boxed]
    pub async fn exec_again(&self, who: &Principal, which: &SandboxRef, exec: &ExecId) -> Result<ExecView> {
        let shared = self.core().find_to_change(who, which).await?;
        let record = self.exec_record(&shared, exec).await?;
        let mut spec = ExecSpec { request_id: None, ..record.spec };
        spec.stdin &= spec.terminal.is_some();
        if let Some(cell) = &mut spec.cell {
            cell.code = self.whole_code(&shared, exec, &cell.code).await?;
        }
        self.exec(who, which, spec).await
    }

    /// The code of a cell. Its record has only the beginning; the ledger has all, as the cell's first input.
    async fn whole_code(&self, shared: &Arc<Shared>, exec: &ExecId, beginning: &str) -> Result<String> {
        let mut entries = self.entries_of(Arc::clone(shared), exec, 1, Follow::No).await?;
        let mut code = Vec::new();
        while let Some(entry) = entries.next().await {
            match entry?.body {
                EntryBody::Stdin(part) if code.len() < sandbox::MAX_CODE_BYTES => {
                    code.extend_from_slice(&part);
                }
                EntryBody::Started { .. } => {}
                _ => break,
            }
        }
        String::from_utf8(code).ok().filter(|code| code.starts_with(beginning)).ok_or_else(|| {
            let message = format!("the code of exec {exec} is no longer in the log");
            Error::new(ErrorKind::NotFound, message).with_hint("Write it anew.")
        })
    }

    /// Oldest first.
    #[crate::boxed]
    pub async fn execs(&self, who: &Principal, which: &SandboxRef) -> Result<Vec<ExecView>> {
        let shared = self.core().find_to_look(who, which).await?;
        let stored = self.core().store.execs(shared.subject.id.clone()).await.map_err(error::from_store)?;
        let newest = |record: ExecRecord| shared.execs.get(&record.id).map_or(record, |exec| exec.record());
        let records: Vec<_> = stored.into_iter().map(newest).collect();
        // The last entry of an old exec is read from its file.
        let views = tokio::task::spawn_blocking(move || {
            records.into_iter().map(|record| view_of(&shared, record)).collect()
        });
        views
            .await
            .map_err(|error| Error::new(ErrorKind::Internal, "could not list the execs").with_source(error))
    }

    #[crate::boxed]
    pub async fn exec_view(&self, who: &Principal, which: &SandboxRef, exec: &ExecId) -> Result<ExecView> {
        let shared = self.core().find_to_look(who, which).await?;
        let record = self.exec_record(&shared, exec).await?;
        Ok(view_of(&shared, record))
    }

    /// The sandbox of an exec, for callers who know only the exec. Ids are unique over all sandboxes; an exec in an
    /// invisible sandbox does not exist.
    #[crate::boxed]
    pub async fn exec_sandbox(&self, who: &Principal, exec: &ExecId) -> Result<SandboxId> {
        // The record is stored before the exec begins.
        let record = self.core().store.exec(exec.clone()).await.map_err(error::from_store)?;
        let sandbox = record.map(|record| record.sandbox);
        let is_seen = |id: &SandboxId| self.core().find(who, &SandboxRef::from(id)).is_ok();
        sandbox.filter(is_seen).ok_or_else(|| error::no_such_session(exec))
    }

    /// Returns when the exec is done, or its current state when `time` has passed.
    #[crate::boxed]
    pub async fn wait_exec(
        &self,
        who: &Principal,
        which: &SandboxRef,
        exec: &ExecId,
        time: Option<Duration>,
    ) -> Result<ExecView> {
        let shared = self.core().find_to_look(who, which).await?;
        if let Some(live) = shared.execs.get(exec) {
            let closing = self.core().closing.clone();
            let done = async {
                tokio::select! { done = live.done() => done, () = closing.cancelled() => Err(error::closing()) }
            };
            let record = match with_timeout(time, done).await {
                Some(done) => done?,
                None => live.record(),
            };
            return Ok(view_of(&shared, record));
        }
        let record = self.exec_record(&shared, exec).await?;
        Ok(view_of(&shared, record))
    }

    /// Writes to the exec's stdin, and closes it if `close`. Returns the number of bytes written.
    ///
    /// The bytes are recorded in the ledger too. A caller who goes away stops the rest.
    #[crate::boxed]
    pub async fn exec_stdin(
        &self,
        who: &Principal,
        which: &SandboxRef,
        exec: &ExecId,
        bytes: ByteStream,
        close: bool,
    ) -> Result<u64> {
        let shared = self.core().find_to_change(who, which).await?;
        let (life, live, _guard) = self.running(&shared, exec, "write to its stdin").await?;
        let spec = live.record().spec;
        if !spec.stdin && spec.terminal.is_none() {
            return Err(Error::new(ErrorKind::WrongState, format!("exec {exec} was started without stdin"))
                .with_hint("Start it with stdin open."));
        }
        let _turn = live.stdin.lock().await;
        let request = Request::ExecStdin { id: exec.to_string(), close };
        let bytes = recorded(bytes, &live, self.core());
        let answer = life.client.upload(&request, bytes, None).await;
        match answer.map_err(|error| error::from_guest(error, &shared.label()))? {
            Response::Written { bytes } => Ok(bytes),
            Response::Done => Ok(0),
            _ => Err(error::from_guest(GuestError::Nonsense("another answer than written"), &shared.label())),
        }
    }

    #[crate::boxed]
    pub async fn exec_signal(
        &self,
        who: &Principal,
        which: &SandboxRef,
        exec: &ExecId,
        signal: i32,
        scope: SignalScope,
    ) -> Result<()> {
        if !(1..=MAX_SIGNAL).contains(&signal) {
            return Err(Error::invalid(format!("{signal} is not a signal: use 1 to {MAX_SIGNAL}")));
        }
        let shared = self.core().find_to_change(who, which).await?;
        let (life, live, _guard) = self.running(&shared, exec, "signal it").await?;
        if signal == SIGKILL {
            live.request_kill();
        }
        let request = Request::ExecSignal { id: exec.to_string(), signal, scope };
        life.client.call(&request).await.map_err(|error| error::from_guest(error, &shared.label()))?;
        Ok(())
    }

    #[crate::boxed]
    pub async fn exec_resize(
        &self,
        who: &Principal,
        which: &SandboxRef,
        exec: &ExecId,
        size: TerminalSize,
    ) -> Result<()> {
        let TerminalSize { rows, cols } = size;
        if rows == 0 || cols == 0 {
            return Err(sandbox::InvalidExec::TerminalSize { rows, cols }.into());
        }
        let shared = self.core().find_to_change(who, which).await?;
        let (life, live, _guard) = self.running(&shared, exec, "resize its terminal").await?;
        if live.record().spec.terminal.is_none() {
            return Err(Error::new(ErrorKind::WrongState, format!("exec {exec} has no terminal"))
                .with_hint("Start it with a terminal."));
        }
        let guests_size = guest_protocol::TerminalSize { rows, cols };
        let request = Request::ExecResize { id: exec.to_string(), size: guests_size };
        life.client.call(&request).await.map_err(|error| error::from_guest(error, &shared.label()))?;
        // Whoever looks on draws it as large as it is.
        live.change(|record| record.spec.terminal = Some(size));
        self.core().feed.tell(|| Happening::Exec(shared.subject.id.clone(), exec.clone()));
        Ok(())
    }

    pub(crate) async fn exec_record(&self, shared: &Shared, exec: &ExecId) -> Result<ExecRecord> {
        if let Some(live) = shared.execs.get(exec) {
            return Ok(live.record());
        }
        let record = self.core().store.exec(exec.clone()).await.map_err(error::from_store)?;
        record
            .filter(|record| record.sandbox == shared.subject.id)
            .ok_or_else(|| error::no_such_exec(exec, &shared.label()))
    }

    /// An exec that has not ended, with its instance.
    async fn running(
        &self,
        shared: &Changeable,
        exec: &ExecId,
        what: &str,
    ) -> Result<(Arc<Life>, Arc<LiveExec>, ActivityGuard)> {
        let record = self.exec_record(shared, exec).await?;
        if let Some(outcome) = &record.outcome {
            let message = format!("exec {exec} has ended ({outcome}): cannot {what}");
            return Err(Error::new(ErrorKind::WrongState, message).with_hint("Start another."));
        }
        // A paused process takes a signal or a byte when it wakes; the guest stays awake.
        let (life, guard) = shared.enter(Action::Files, &self.core().clock)?;
        match shared.execs.get(exec) {
            Some(live) => Ok((life, live, guard)),
            None => {
                let reason = KillReason::SandboxLost;
                let outcome = sandbox::ExecOutcome::Killed { reason };
                Err(Error::new(
                    ErrorKind::WrongState,
                    format!("exec {exec} has ended ({outcome}): cannot {what}"),
                )
                .with_hint("Start another."))
            }
        }
    }
}

/// Bytes for stdin, recorded in the ledger before they are sent.
fn recorded(bytes: ByteStream, exec: &Arc<LiveExec>, core: &Arc<Core>) -> ByteStream {
    let (exec, core) = (Arc::clone(exec), Arc::clone(core));
    bytes
        .then(move |chunk| {
            let (exec, core) = (Arc::clone(&exec), Arc::clone(&core));
            async move {
                let chunk = chunk?;
                exec.reader_is_near().await;
                let at_ms = core.clock.now().as_millisecond();
                for part in chunk.chunks(guest_protocol::MAX_DATA_BYTES) {
                    let append = || exec.append(at_ms, EntryKind::Stdin, 0, part);
                    let appended = core.disk.write(part.len(), append).await;
                    appended.transpose().map_err(error::from_ledger)?;
                }
                Ok(chunk)
            }
        })
        .boxed()
}

pub(crate) fn view_of(shared: &Shared, record: ExecRecord) -> ExecView {
    let last_entry = match shared.execs.get(&record.id) {
        Some(live) => live.last_number(),
        None => last_stored_entry(shared, &record.id),
    };
    let duration = |from: jiff::Timestamp| {
        record.ended_at.map(|to| u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0))
    };
    ExecView {
        exit_code: record.outcome.as_ref().map(sandbox::ExecOutcome::exit_code),
        duration_ms: record.started_at.and_then(duration),
        id: record.id,
        sandbox: record.sandbox,
        command: shown_command(&record.spec),
        // Its end is known before the store has it; the two are always shown together.
        state: if record.outcome.is_some() { ExecState::Done } else { record.state },
        outcome: record.outcome,
        pid: record.pid,
        created_at: record.created_at,
        started_at: record.started_at,
        ended_at: record.ended_at,
        terminal: record.spec.terminal.is_some(),
        terminal_size: record.spec.terminal,
        stdin: record.spec.stdin,
        last_entry,
        request_id: record.spec.request_id,
        asked_by: record.asked_by,
        cell: record.spec.cell.map(|cell| CellView { language: cell.language, context: cell.context() }),
    }
}

/// The command; for a cell, its language and the first line of its code.
fn shown_command(spec: &ExecSpec) -> Vec<String> {
    let Some(cell) = &spec.cell else { return spec.command.clone() };
    let line = cell.code.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
    vec![cell.language.to_string(), line.trim().chars().take(MAX_SHOWN_CODE_CHARS).collect()]
}

fn last_stored_entry(shared: &Shared, exec: &ExecId) -> u64 {
    let last = shared.ledger().and_then(|ledger| ledger.last_number(exec).map_err(error::from_ledger));
    last.unwrap_or_else(|error| {
        tracing::warn!(%exec, error = &error as &dyn std::error::Error, "the ledger cannot be read");
        0
    })
}
