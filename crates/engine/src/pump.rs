//! The task that starts one exec and records its events, until no process inside holds its output any more.
//!
//! The guest's events go to the ledger first and are acknowledged then: if the daemon dies between the two, the guest
//! sends them again, and the ledger's own count makes us skip them.

use std::{sync::Arc, time::Duration};

use guest_protocol::{
    CellStart, ExecEvent, ExecStart, FailureKind, MAX_DATA_BYTES, Request, Rlimit, SignalScope, TerminalMode,
    TerminalSize,
};
use sandbox::{CellSpec, Error, ErrorKind, EventKind, ExecOutcome, ExecState, NotStarted, Result};
use store::{EntryKind, ExecRecord, StoreError};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::{Instrument as _, Span};

use crate::{
    clerk::Clerk,
    client::{ExecStream, GuestError, StartAnswer, Wire},
    core::{Core, until},
    driver::Reply,
    entry::{ExitEntry, StartEntry, json},
    error, files,
    live::LiveExec,
    outcome::{SIGKILL, from_report, not_started},
    packages, request_hash,
    shared::{ActivityGuard, Life, Shared},
};

/// Events written before one acknowledgement. The guest's window is larger, so it does not wait for us.
const MAX_EVENTS_PER_ACK: usize = 64;
/// A command that ends sooner than this is stored once, when it is done; until then the ledger knows more.
const RECORD_RUNNING_AFTER: Duration = Duration::from_millis(50);
/// How often a guest may break the protocol on one exec before we stop asking it.
const MAX_NONSENSE: u32 = 5;
/// The first pause before trying again; each next one is twice as long, up to `Deadlines::retry`.
const FIRST_RETRY: Duration = Duration::from_millis(10);
/// A terminal without a name would be a dumb one.
const DEFAULT_TERM: &str = "xterm-256color";
/// How long an interpreter has to end an interrupted cell, before it is killed with its state.
const CELL_GRACE_MS: u64 = 2000;

pub(crate) struct ExecTask {
    clerk: Clerk,
    life: Arc<Life>,
}

/// How following a stream ended.
enum Followed {
    /// The last event is recorded.
    Closed,
    /// The instance is gone, and the wait for its last output is over.
    Abandoned,
}

impl ExecTask {
    pub(crate) fn new(
        core: &Arc<Core>,
        shared: &Arc<Shared>,
        life: &Arc<Life>,
        exec: &Arc<LiveExec>,
    ) -> Self {
        Self { clerk: Clerk::new(core, shared, exec, &life.abandoned), life: Arc::clone(life) }
    }

    /// Records, starts and follows a new exec. The caller is answered when it runs, or has failed to.
    ///
    /// `code`: a cell's whole code, which is nowhere else until the ledger has it. `span`: of the request.
    pub(crate) async fn run_new(
        mut self,
        code: Option<String>,
        reply: Reply<ExecRecord>,
        guard: ActivityGuard,
        span: Span,
    ) {
        let closing = self.clerk.core.closing.clone();
        let work = async {
            let started = self.start(code.clone()).instrument(span).await;
            self.go_on(started, code, reply, guard, None).await;
        };
        until(&closing, work).await;
    }

    /// The same for the first exec of a new sandbox, which was recorded with it, and whose ledger is open. It starts
    /// while the sandbox is recorded as running; `told` resolves when that was told.
    pub(crate) async fn run_first(
        mut self,
        in_default_shell: bool,
        code: Option<String>,
        reply: Reply<ExecRecord>,
        guard: ActivityGuard,
        told: oneshot::Receiver<()>,
        span: Span,
    ) {
        let closing = self.clerk.core.closing.clone();
        let work = async {
            if in_default_shell {
                self.take_shell().await;
            }
            let starting = async {
                let in_guest = tracing::info_span!(target: "trace", "start in guest");
                let answer = self.start_inside(code.clone()).instrument(in_guest).await;
                self.started(answer).await
            };
            let started = starting.instrument(span).await;
            self.go_on(started, code, reply, guard, Some(told)).await;
        };
        until(&closing, work).await;
    }

    /// The stored record learns of it with the exec's next change.
    async fn take_shell(&self) {
        let own = self.clerk.shared.status.borrow().record.plan.shell.clone();
        let shell = match own {
            Some(own) => own,
            None => match files::default_shell(&self.life.client).await {
                Ok(shell) => shell,
                // Whatever is wrong with the guest, the exec says it.
                Err(_) => return,
            },
        };
        self.clerk.exec.change(|record| {
            if let Some(program) = record.spec.command.first_mut() {
                *program = shell;
            }
        });
    }

    /// Answers the caller, and follows what runs.
    async fn go_on(
        &mut self,
        started: Result<Option<Wire>, Stop>,
        code: Option<String>,
        reply: Reply<ExecRecord>,
        guard: ActivityGuard,
        told: Option<oneshot::Receiver<()>>,
    ) {
        drop(guard);
        match started {
            Ok(Some(wire)) => {
                drop(reply.send(Ok(self.clerk.exec.record())));
                self.clerk.core.counters.count_exec();
                if let Some(told) = told {
                    // An error means that the sandbox is being taken back.
                    drop(told.await);
                }
                self.clerk.tell(EventKind::ExecStarted, "").await;
                self.write_code(code).await;
                self.follow(Some(wire)).await;
            }
            // It did not start; that is an outcome.
            Ok(None) => drop(reply.send(Ok(self.clerk.exec.record()))),
            Err(Stop::Known(earlier)) => drop(reply.send(*earlier)),
            Err(Stop::Failed(error)) => drop(reply.send(Err(error))),
            Err(Stop::Unclear(error)) => {
                drop(code);
                drop(reply.send(Err(error)));
                self.take_back().await;
            }
        }
    }

    /// Follows an exec that an earlier daemon started.
    pub(crate) async fn run_again(mut self) {
        let closing = self.clerk.core.closing.clone();
        until(&closing, self.follow(None)).await;
    }

    /// Ends an exec of an earlier daemon that the guest does not know.
    pub(crate) async fn run_lost(mut self) {
        let closing = self.clerk.core.closing.clone();
        until(&closing, self.clerk.lose(self.life.kill_reason())).await;
    }

    /// The record comes before the effect. The ledger, whose files take the host's file system longest, is opened
    /// meanwhile; nobody is told that the exec runs before it is.
    async fn start(&mut self, code: Option<String>) -> Result<Option<Wire>, Stop> {
        let opening = self.open_ledger();
        let recording = tracing::info_span!(target: "trace", "record");
        let inserted =
            self.clerk.core.store.insert_exec(self.clerk.exec.record()).instrument(recording).await;
        if let Err(error) = inserted {
            drop(opened(opening).await);
            return Err(self.not_recorded(error).await);
        }
        let starting = tracing::info_span!(target: "trace", "start in guest");
        let answer = self.start_inside(code).instrument(starting).await;
        if let Err(error) = opened(opening).await {
            return Err(self.no_ledger(error).await);
        }
        self.started(answer).await
    }

    async fn started(&mut self, answer: Result<StartAnswer, GuestError>) -> Result<Option<Wire>, Stop> {
        let outcome = match answer {
            Ok(StartAnswer::Started { pid, wire }) => {
                self.runs(pid);
                return Ok(Some(wire));
            }
            Ok(StartAnswer::NotStarted { reason, message }) => not_started(reason, error::readable(&message)),
            Err(GuestError::Refused(failure)) => {
                let reason = match failure.kind {
                    FailureKind::LimitReached => NotStarted::LimitReached,
                    _ => NotStarted::Other,
                };
                ExecOutcome::NotStarted { reason, message: error::readable(&failure.message) }
            }
            Err(error @ GuestError::RequestTooLong { .. }) => {
                let error = error::from_guest(error, &self.clerk.shared.label());
                let message = error.to_string();
                self.clerk.exec.refuse(&error);
                self.clerk.settle(ExecOutcome::NotStarted { reason: NotStarted::Other, message }).await;
                return Err(Stop::Failed(error));
            }
            // It may run, or begin to run later: frozen between its fork and its exec, it outlasts any deadline.
            Err(error) => return Err(Stop::Unclear(error::from_guest(error, &self.clerk.shared.label()))),
        };
        self.clerk.settle(outcome).await;
        Ok(None)
    }

    /// The code of a cell is its input, and is recorded in the ledger as such.
    async fn write_code(&mut self, code: Option<String>) {
        for part in code.unwrap_or_default().as_bytes().chunks(MAX_DATA_BYTES) {
            self.clerk.append(EntryKind::Stdin, 0, part).await;
            self.clerk.look_for_trims(part.len()).await;
        }
    }

    fn runs(&self, pid: i32) {
        let now = self.clerk.core.clock.now();
        self.clerk.exec.change(|record| {
            record.state = ExecState::Running;
            record.pid = Some(pid);
            record.started_at = Some(now);
        });
    }

    fn open_ledger(&self) -> JoinHandle<Result<()>> {
        let (shared, exec) = (Arc::clone(&self.clerk.shared), Arc::clone(&self.clerk.exec));
        tokio::task::spawn_blocking(move || open_ledger(&shared, &exec))
    }

    /// The store refused it: nothing was begun, so nothing stays.
    async fn not_recorded(&mut self, error: StoreError) -> Stop {
        let stop = match error {
            StoreError::RequestKnownExec { id } => {
                let earlier = self.earlier(id).await.and_then(|record| {
                    let own = self.clerk.exec.record();
                    let (known, asked) = (record.request_hash.as_deref(), own.request_hash.as_deref());
                    request_hash::check(own.spec.request_id.as_ref(), known, asked)?;
                    Ok(record)
                });
                match &earlier {
                    // A caller that sent the same request a third time waits for us.
                    Ok(record) => drop(self.clerk.exec.change(|own| *own = record.clone())),
                    Err(error) => self.clerk.exec.refuse(error),
                }
                Stop::Known(Box::new(earlier))
            }
            error => {
                let error = error::from_store(error);
                self.clerk.exec.refuse(&error);
                Stop::Failed(error)
            }
        };
        self.clear_away();
        stop
    }

    /// Without a ledger its output would be lost, so it must not run.
    async fn no_ledger(&mut self, error: sandbox::Error) -> Stop {
        let id = self.clerk.exec.id.clone();
        if let Err(error) = self.life.client.call(&self.kill_request()).await {
            tracing::debug!(exec = %id, %error, "an exec without a ledger could not be killed, or never ran");
        }
        if let Err(error) = self.clerk.core.store.remove_execs(vec![id.clone()]).await {
            tracing::warn!(exec = %id, %error, "the record of an exec without a ledger stays");
        }
        self.clerk.exec.refuse(&error);
        self.clear_away();
        Stop::Failed(error)
    }

    /// The caller was told that it failed, so it must not run; whether it began is unknown. It is killed as soon as the
    /// guest can be told, and followed to its reported end. Only then is it settled.
    async fn take_back(&mut self) {
        self.clerk.exec.request_kill();
        let (life, kill) = (Arc::clone(&self.life), self.kill_request());
        let (mut pause, mut n_nonsense) = (FIRST_RETRY, 0);
        loop {
            let told = tokio::select! {
                () = life.abandoned.cancelled() => return self.clerk.lose(life.kill_reason()).await,
                told = life.client.call(&kill) => told,
            };
            match told {
                // A refusal: it has already ended, or the guest does not know it and will not start it any more.
                Ok(_) | Err(GuestError::Refused(_)) => return self.follow(None).await,
                Err(error) => {
                    tracing::debug!(exec = %self.clerk.exec.id, %error, "killing an exec again that may have begun");
                    n_nonsense += u32::from(!error.is_lost_stream());
                }
            }
            if n_nonsense >= MAX_NONSENSE || life.over.is_cancelled() {
                return self.clerk.lose(life.kill_reason()).await;
            }
            tokio::select! {
                () = life.over.cancelled() => {}
                () = sleep(pause) => pause = self.longer(pause),
            }
        }
    }

    fn kill_request(&self) -> Request {
        let id = self.clerk.exec.id.to_string();
        Request::ExecSignal { id, signal: SIGKILL, scope: SignalScope::Group }
    }

    fn clear_away(&self) {
        let exec = &self.clerk.exec;
        exec.close();
        if let Ok(ledger) = self.clerk.shared.ledger()
            && let Err(error) = ledger.remove(&exec.id)
        {
            tracing::warn!(exec = %exec.id, %error, "the ledger of an exec that was not recorded stays");
        }
        self.clerk.forget();
    }

    async fn earlier(&self, id: sandbox::ExecId) -> Result<ExecRecord> {
        if let Some(exec) = self.clerk.shared.execs.get(&id) {
            return exec.started().await;
        }
        let record = self.clerk.core.store.exec(id.clone()).await.map_err(error::from_store)?;
        record.ok_or_else(|| error::no_such_exec(&id, &self.clerk.shared.label()))
    }

    /// Asks the guest to start it, again if the stream broke: the same id never starts twice.
    async fn start_inside(&self, code: Option<String>) -> Result<StartAnswer, GuestError> {
        let mut start = self.start_request(code);
        let code = start.cell.iter().map(|cell| &cell.code);
        let is_needed = start.command.iter().chain(code).any(|text| packages::names_a_manager(text));
        let Clerk { core, shared, exec, .. } = &self.clerk;
        packages::offer(core, shared, &self.life, exec, is_needed, &mut start.env).await;
        let deadline = Instant::now() + self.clerk.core.config.deadlines.answer;
        let mut pause = FIRST_RETRY;
        loop {
            let answer = tokio::select! {
                answer = self.life.client.start_exec(start.clone()) => answer,
                () = self.life.abandoned.cancelled() => return Err(GuestError::Closed),
            };
            match answer {
                Err(error) if error.is_lost_stream() && Instant::now() + pause < deadline => {
                    tokio::select! {
                        () = self.life.over.cancelled() => return Err(error),
                        () = sleep(pause) => pause = self.longer(pause),
                    }
                }
                answer => return answer,
            }
        }
    }

    fn start_request(&self, code: Option<String>) -> ExecStart {
        let plan = self.clerk.shared.status.borrow().record.plan.clone();
        let ExecRecord { id, spec, .. } = self.clerk.exec.record();
        let mut env = plan.env;
        if spec.terminal.is_some() {
            env.entry("TERM".to_owned()).or_insert_with(|| DEFAULT_TERM.to_owned());
        }
        env.extend(spec.env);
        let rlimit =
            |limit: sandbox::Rlimit| Rlimit { resource: limit.resource, soft: limit.soft, hard: limit.hard };
        ExecStart {
            id: id.to_string(),
            command: spec.command,
            env,
            cwd: spec.cwd.map_or(plan.cwd.clone(), |cwd| sandbox::path_from(&plan.cwd, &cwd)),
            user: spec.user.unwrap_or(plan.user),
            rlimits: with_defaults(spec.rlimits, plan.rlimits).into_iter().map(rlimit).collect(),
            terminal: spec.terminal.map(|size| TerminalSize { rows: size.rows, cols: size.cols }),
            terminal_modes: spec.terminal_modes.into_iter().map(terminal_mode).collect(),
            stdin: spec.stdin,
            timeout_ms: spec.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            // The record has only the beginning of the code, which must never run.
            cell: spec.cell.zip(code).map(|(cell, code)| cell_start(&cell, code)),
            track_files: spec.track_files,
        }
    }

    /// Follows the exec to its end over as many connections as needed.
    async fn follow(&mut self, mut wire: Option<Wire>) {
        let (mut pause, mut n_nonsense) = (FIRST_RETRY, 0);
        loop {
            let from = self.clerk.exec.last_guest_event() + 1;
            let error = match self.attach(from, wire.take()).await {
                Ok(Followed::Closed) => return self.clerk.leave().await,
                Ok(Followed::Abandoned) => return self.clerk.lose(self.life.kill_reason()).await,
                Err(error) => error,
            };
            if self.clerk.exec.last_guest_event() >= from {
                pause = FIRST_RETRY;
            }
            let is_unknown =
                matches!(&error, GuestError::Refused(failure) if failure.kind == FailureKind::NotFound);
            n_nonsense += u32::from(!error.is_lost_stream());
            if is_unknown || n_nonsense >= MAX_NONSENSE || self.life.over.is_cancelled() {
                if !self.life.over.is_cancelled() {
                    tracing::warn!(exec = %self.clerk.exec.id, error = &error as &dyn std::error::Error, "an exec is lost");
                }
                return self.clerk.lose(self.life.kill_reason()).await;
            }
            tracing::debug!(exec = %self.clerk.exec.id, %error, "attaching again");
            tokio::select! {
                () = self.life.over.cancelled() => {}
                () = sleep(pause) => pause = self.longer(pause),
            }
        }
    }

    async fn attach(&mut self, from: u64, wire: Option<Wire>) -> Result<Followed, GuestError> {
        let life = Arc::clone(&self.life);
        let mut stream = tokio::select! {
            () = life.abandoned.cancelled() => return Ok(Followed::Abandoned),
            stream = life.client.attach(self.clerk.exec.id.as_str(), from, wire) => stream?,
        };
        if stream.first() > from {
            // Acknowledged, but not in the ledger: somebody truncated that.
            tracing::warn!(exec = %self.clerk.exec.id, from, first = stream.first(), "the guest has lost events");
            self.clerk.exec.lose_output(stream.first() - from);
        }
        self.read(&mut stream).await
    }

    /// Opens a connection for the next request: this one is taken for as long as the exec lives. Not while a short
    /// command runs, which would wait for the guest meanwhile.
    fn warm(&self) {
        let client = Arc::clone(&self.life.client);
        tokio::spawn(async move { client.warm().await });
    }

    async fn read(&mut self, stream: &mut ExecStream) -> Result<Followed, GuestError> {
        let life = Arc::clone(&self.life);
        let record_running_at = Instant::now() + RECORD_RUNNING_AFTER;
        loop {
            let (mut number, event) = tokio::select! {
                biased;
                () = life.abandoned.cancelled() => return Ok(Followed::Abandoned),
                event = stream.next() => event?,
                () = sleep_until(record_running_at), if !self.clerk.running_recorded => {
                    self.warm();
                    self.clerk.record_running().await;
                    continue;
                }
            };
            let mut is_last = matches!(event, ExecEvent::Closed);
            self.write(number, event).await?;
            for _ in 1..MAX_EVENTS_PER_ACK {
                let Some((next, event)) = stream.take_arrived()?.filter(|_| !is_last) else { break };
                is_last = matches!(event, ExecEvent::Closed);
                self.write(next, event).await?;
                number = next;
            }
            if !is_last {
                // What is not acknowledged yet stays with the guest, and in the end the process waits.
                tokio::select! {
                    () = self.clerk.exec.reader_is_near() => {}
                    () = life.over.cancelled() => {}
                }
            }
            let after = self.clerk.core.config.deadlines.answer;
            let acknowledged = timeout(after, stream.acknowledge(number)).await;
            if is_last {
                self.warm();
                // If the guest does not receive it, it keeps a closed exec a little longer: no harm.
                return Ok(Followed::Closed);
            }
            acknowledged.unwrap_or(Err(GuestError::Silent { after }))?;
        }
    }

    /// Writes one event to the ledger and acts on it.
    async fn write(&mut self, number: u64, event: ExecEvent) -> Result<(), GuestError> {
        let state = self.clerk.exec.progress.borrow().record.state;
        let is_done = state == ExecState::Done;
        match event {
            ExecEvent::Started { pid } => {
                // For an exec that was adopted before it had begun.
                if state == ExecState::Starting {
                    self.runs(pid);
                }
                let json = json(&StartEntry { pid });
                self.clerk.append(EntryKind::Started, number, &json).await;
            }
            ExecEvent::Stdout(bytes) => {
                self.clerk.append(EntryKind::Stdout, number, &bytes).await;
                self.clerk.look_for_trims(bytes.len()).await;
            }
            ExecEvent::Stderr(bytes) => {
                self.clerk.append(EntryKind::Stderr, number, &bytes).await;
                self.clerk.look_for_trims(bytes.len()).await;
            }
            ExecEvent::Rich(bytes) => {
                self.clerk.append(EntryKind::Rich, number, &bytes).await;
                self.clerk.look_for_trims(bytes.len()).await;
            }
            ExecEvent::Exited(_) if is_done => return Err(GuestError::Nonsense("a second end of one exec")),
            ExecEvent::Exited(report) => {
                let outcome = from_report(&report, self.clerk.exec.is_kill_requested());
                self.clerk.end(number, ExitEntry { report: Some(report), outcome }).await;
            }
            ExecEvent::Closed if !is_done => return Err(GuestError::Nonsense("a close before the end")),
            ExecEvent::Closed => {
                self.clerk.append(EntryKind::Closed, number, &[]).await;
            }
        }
        Ok(())
    }

    fn longer(&self, pause: Duration) -> Duration {
        pause.saturating_mul(2).min(self.clerk.core.config.deadlines.retry)
    }
}

/// Opens the ledger of a new exec. May block.
pub(crate) fn open_ledger(shared: &Shared, exec: &LiveExec) -> Result<()> {
    let writer = shared.ledger()?.writer(&exec.id).map_err(error::from_ledger)?;
    exec.open(writer);
    Ok(())
}

fn terminal_mode(sandbox::TerminalMode { opcode, value }: sandbox::TerminalMode) -> TerminalMode {
    TerminalMode { opcode, value }
}

/// The command's own limits, and the sandbox's defaults for the others.
fn with_defaults(asked: Vec<sandbox::Rlimit>, defaults: Vec<sandbox::Rlimit>) -> Vec<sandbox::Rlimit> {
    let is_open = |limit: &sandbox::Rlimit| !asked.iter().any(|asked| asked.resource == limit.resource);
    let open: Vec<_> = defaults.into_iter().filter(is_open).collect();
    asked.into_iter().chain(open).collect()
}

fn cell_start(cell: &CellSpec, code: String) -> CellStart {
    CellStart {
        language: cell.language.to_string(),
        context: cell.context().map(|context| context.to_string()),
        grace_ms: CELL_GRACE_MS,
        code,
    }
}

async fn opened(opening: JoinHandle<Result<()>>) -> Result<()> {
    opening.await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Internal, "could not open the ledger").with_source(error))
    })
}

/// Why an exec goes no further.
enum Stop {
    /// The same request was answered before.
    Known(Box<Result<ExecRecord>>),
    Failed(sandbox::Error),
    /// The guest did not say whether it began.
    Unclear(sandbox::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_asks_for_wins_over_what_all_have() {
        let limit =
            |resource: &str, soft| sandbox::Rlimit { resource: resource.to_owned(), soft, hard: soft };
        let defaults = vec![limit("nofile", 256), limit("core", 0)];
        assert_eq!(with_defaults(vec![], defaults.clone()), defaults);
        let asked = with_defaults(vec![limit("nofile", 1)], defaults);
        assert_eq!(asked, [limit("nofile", 1), limit("core", 0)]);
    }
}
