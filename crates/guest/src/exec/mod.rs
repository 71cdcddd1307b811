//! Execs: one command each, with numbered events kept until the host has them.
//!
//! ```text
//! ExecStart → fork ─→ Started … Stdout/Stderr … Exited … (output of those left behind) … Closed → acked → forgotten
//!                └──→ NotStarted (answered, remembered for a while)
//! ```

mod attach;
mod cells;
mod output;
mod plan;
mod rlimits;
mod start;
mod stdin;
mod terminal;
pub(crate) mod user;
mod window;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap, VecDeque},
    os::fd::OwnedFd,
    rc::Rc,
};

use guest_protocol::{
    ExecEvent, ExecStatus, ExecSummary, ExitReport, Failure, FailureKind, Response, SignalScope,
    StartFailure, TerminalSize,
};
use tokio::{io::unix::AsyncFd, sync::Notify};

pub(crate) use attach::attach;
pub(crate) use output::{Chunk, Output, Stream, drain, drop_scratch, read_chunk, room, tell_files};
pub(crate) use plan::{DEFAULT_PATH, Refusal, candidates, check_id, command, not_started, path_of};
pub(crate) use start::{
    Newborn, empty_stdin, nonblocking, nowhere, our_read_end, reason_of, spawn, start, start_command,
};
pub(crate) use stdin::{BodyLeft, feed_stdin};
pub(crate) use user::{User, find as find_user};

use self::{stdin::Stdin, window::Window};
use crate::{
    code::CellPart,
    limits::{
        MAX_EXEC_ID_BYTES, MAX_REMEMBERED_FAILURES, TOTAL_WINDOW_BYTES, WINDOW_BYTES, WINDOW_FLOOR_BYTES,
    },
    processes, sys,
};

/// Longest workload text in a message.
const MAX_SHOWN_CHARS: usize = 4096;

/// How a process ended, as `wait` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: Option<u8>,
    pub(crate) signal: Option<i32>,
}

/// Why the guest itself killed an exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    TimeLimit,
    DiskLimit,
    Shutdown,
    Request,
}

/// One command that was started.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) id: String,
    /// Its first process; also the id of its session and its process group. A cell has none of its own.
    pid: Option<i32>,
    /// Present for a cell.
    pub(crate) cell: Option<CellPart>,
    /// Wakes every task that waits for this exec: for events, room, its end, another attach.
    changed: Notify,
    inner: RefCell<Inner>,
    stdin: tokio::sync::Mutex<Stdin>,
    terminal: Option<Rc<AsyncFd<OwnedFd>>>,
    oom_kills_before: Cell<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The answer to `ExecStart`, once it is known.
    answer: Option<Response>,
    window: Window,
    ended: Option<Ended>,
    has_exited: bool,
    is_closed: bool,
    causes: Vec<Cause>,
    oom_kills: u64,
    /// Grows with each attach; the connection with the current number is served.
    attach: u64,
    is_attached: bool,
}

impl Exec {
    fn new(id: String) -> Self {
        Self {
            id,
            pid: None,
            cell: None,
            changed: Notify::new(),
            inner: RefCell::default(),
            stdin: tokio::sync::Mutex::new(Stdin::closed()),
            terminal: None,
            oom_kills_before: Cell::new(0),
        }
    }

    /// Waits until `check` returns a value.
    async fn until<T>(&self, mut check: impl FnMut(&Inner) -> Option<T>) -> T {
        loop {
            // Created before the check, so that a change between the two is not missed.
            let changed = self.changed.notified();
            if let Some(found) = check(&self.inner.borrow()) {
                return found;
            }
            changed.await;
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let result = change(&mut self.inner.borrow_mut());
        self.changed.notify_waiters();
        result
    }

    fn is_ended(&self) -> bool {
        self.inner.borrow().ended.is_some()
    }

    fn is_process(&self, pid: i32) -> bool {
        self.pid == Some(pid) && !self.is_ended()
    }

    /// The first process's number, while it still identifies this exec's group and session. The kernel reuses a number
    /// only when no process, group or session has it; so after our process ended, a process with this number is a
    /// stranger, and nothing of ours is left.
    fn owned_number(&self) -> Option<i32> {
        self.pid.filter(|pid| !self.is_ended() || sys::kill(*pid, 0).is_err())
    }

    /// Records why the guest kills it, for the report. Has no effect on one that has already ended.
    pub(crate) fn blame(&self, cause: Cause) {
        let mut inner = self.inner.borrow_mut();
        if inner.ended.is_none() && !inner.causes.contains(&cause) {
            inner.causes.push(cause);
        }
    }

    fn report(&self) -> ExitReport {
        let inner = self.inner.borrow();
        let ended = inner.ended.unwrap_or(Ended { code: None, signal: None });
        ExitReport {
            code: ended.code,
            signal: ended.signal,
            timed_out: inner.causes.contains(&Cause::TimeLimit),
            oom_kills: inner.oom_kills,
            shutdown: inner.causes.contains(&Cause::Shutdown),
            disk_limit: inner.causes.contains(&Cause::DiskLimit),
        }
    }

    /// Sends SIGKILL to the group, and to processes that left the group but not the session or the family.
    fn kill_family(&self) {
        if let Some(pid) = self.owned_number() {
            processes::kill_family(pid);
        }
    }

    fn summary(&self) -> ExecSummary {
        let inner = self.inner.borrow();
        let status = if inner.is_closed {
            ExecStatus::Closed
        } else if inner.has_exited {
            ExecStatus::Exited
        } else {
            ExecStatus::Running
        };
        ExecSummary {
            id: self.id.clone(),
            status,
            last_event: inner.window.last(),
            acked: inner.window.acked(),
        }
    }
}

/// Every exec that the host has not finished reading.
#[derive(Debug, Default)]
pub(crate) struct Execs {
    known: RefCell<BTreeMap<String, Rc<Exec>>>,
    /// Answers to starts that failed, newest last.
    failures: RefCell<VecDeque<(String, Response)>>,
    /// Bytes in all windows.
    held: Cell<usize>,
}

impl Execs {
    pub(crate) fn find(&self, id: &str) -> Result<Rc<Exec>, Failure> {
        let unknown = || Failure::new(FailureKind::NotFound, format!("no exec {}", shown(id)));
        self.known.borrow().get(id).cloned().ok_or_else(unknown)
    }

    pub(crate) fn list(&self) -> Response {
        // Execs between fork and exec are included: they will run, so a host that takes over must know them.
        let execs = self.known.borrow().values().map(|exec| exec.summary()).collect();
        Response::Execs { execs }
    }

    /// Every exec by the number of its session.
    pub(crate) fn by_session(&self) -> HashMap<i32, String> {
        let known = self.known.borrow();
        known.values().filter_map(|exec| Some((exec.owned_number()?, exec.id.clone()))).collect()
    }

    /// Records that a child was reaped; most orphans belong to no exec.
    pub(crate) fn reaped(&self, pid: i32, ended: Ended, oom_kills_now: u64) {
        for exec in self.known.borrow().values().filter(|exec| exec.is_process(pid)) {
            exec.change(|inner| {
                inner.ended = Some(ended);
                inner.oom_kills = oom_kills_now.saturating_sub(exec.oom_kills_before.get());
            });
        }
    }

    /// Whether this process is the first one of an exec.
    pub(crate) fn has_pid(&self, pid: i32) -> bool {
        self.known.borrow().values().any(|exec| exec.is_process(pid))
    }

    pub(crate) fn signal(&self, id: &str, signal: i32, scope: SignalScope) -> Result<Response, Failure> {
        if !(1..=sys::MAX_SIGNAL).contains(&signal) {
            return Err(Failure::new(FailureKind::InvalidRequest, format!("{signal} is not a signal")));
        }
        let exec = match self.find(id) {
            Ok(exec) => exec,
            Err(unknown) => {
                self.never_start(id, signal);
                return Err(unknown);
            }
        };
        if let Some(cell) = &exec.cell {
            return cell.signal(&exec, signal, scope);
        }
        let over = || Failure::new(FailureKind::WrongState, format!("exec {id} has ended"));
        let Some(pid) = exec.owned_number() else { return Err(over()) };
        let target = match scope {
            // After the reaping, the number may belong to another process.
            SignalScope::Process if exec.is_ended() => return Err(over()),
            // Before its exec it is alone, and may not have made its group yet.
            _ if exec.inner.borrow().answer.is_none() => pid,
            SignalScope::Process => pid,
            SignalScope::Group => -pid,
        };
        sys::kill(target, signal).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => over(),
            _ => Failure::new(FailureKind::Denied, format!("could not signal exec {id}: {error}")),
        })?;
        Ok(Response::Done)
    }

    /// A host that kills an unknown exec has lost the answer to its start, and the start may still be on its way to us.
    fn never_start(&self, id: &str, signal: i32) {
        let is_kill = signal == libc::SIGKILL && id.len() <= MAX_EXEC_ID_BYTES;
        if is_kill && self.remembered_failure(id).is_none() {
            let message = "it was killed before it was started";
            self.remember_failure(id, plan::not_started(StartFailure::Other, message));
        }
    }

    pub(crate) fn resize(&self, id: &str, size: TerminalSize) -> Result<Response, Failure> {
        if size.rows == 0 || size.cols == 0 {
            let message =
                format!("a terminal of {} rows and {} columns cannot be made", size.rows, size.cols);
            return Err(Failure::new(FailureKind::InvalidRequest, message));
        }
        let exec = self.find(id)?;
        let wrong = |message| Failure::new(FailureKind::WrongState, message);
        let terminal = exec.terminal.as_ref();
        let terminal = terminal.ok_or_else(|| wrong(format!("exec {id} has no terminal")))?;
        start::set_size(terminal.get_ref(), size)
            .map_err(|error| wrong(format!("could not resize the terminal of exec {id}: {error}")))?;
        Ok(Response::Done)
    }

    /// Kills every exec's session and records why. As pid 1 the caller also kills everything else.
    pub(crate) fn kill_all(&self, cause: Cause) {
        let execs: Vec<_> = self.known.borrow().values().cloned().collect();
        for exec in execs {
            exec.blame(cause);
            exec.kill_family();
        }
    }

    /// Records why every running exec is about to end, and signals the groups.
    pub(crate) fn terminate_all(&self, signals: &[i32]) {
        for exec in self.known.borrow().values() {
            exec.blame(Cause::Shutdown);
            let Some(pid) = exec.owned_number() else { continue };
            for signal in signals {
                sys::kill(-pid, *signal).ok();
            }
        }
    }

    /// Waits until every listening host has taken its last event.
    pub(crate) async fn last_events_taken(&self) {
        let execs: Vec<_> = self.known.borrow().values().cloned().collect();
        for exec in execs {
            let taken = |inner: &Inner| inner.is_closed && inner.window.acked() == inner.window.last();
            exec.until(|inner| (!inner.is_attached || taken(inner)).then_some(())).await;
        }
    }

    fn has_room(&self, exec: &Exec) -> bool {
        let bytes = exec.inner.borrow().window.bytes();
        bytes < WINDOW_FLOOR_BYTES || (bytes < WINDOW_BYTES && self.held.get() < TOTAL_WINDOW_BYTES)
    }

    fn push(&self, exec: &Exec, event: ExecEvent) {
        if exec.inner.borrow().is_closed && event != ExecEvent::Closed {
            // Output of a cell that was abandoned while the output was on its way.
            return;
        }
        let cost = exec.change(|inner| inner.window.push(event));
        self.held.set(self.held.get() + cost);
    }

    /// Frees the events that the host has; forgets the exec if that was its last one.
    fn ack(&self, exec: &Exec, number: u64) {
        let was_full = self.held.get() >= TOTAL_WINDOW_BYTES;
        let freed = exec.change(|inner| inner.window.ack(number));
        self.held.set(self.held.get() - freed);
        let is_done = {
            let inner = exec.inner.borrow();
            inner.is_closed && inner.window.acked() == inner.window.last()
        };
        if is_done {
            self.known.borrow_mut().remove(&exec.id);
        }
        if was_full {
            for other in self.known.borrow().values() {
                other.changed.notify_waiters();
            }
        }
    }

    fn remember_failure(&self, id: &str, answer: Response) {
        let mut failures = self.failures.borrow_mut();
        if failures.len() == MAX_REMEMBERED_FAILURES {
            failures.pop_front();
        }
        failures.push_back((id.to_owned(), answer));
    }

    fn remembered_failure(&self, id: &str) -> Option<Response> {
        let failures = self.failures.borrow();
        failures.iter().find(|(known, _)| known == id).map(|(_, answer)| answer.clone())
    }
}

/// An id as it may appear in a message.
pub(crate) fn shown(id: &str) -> String {
    id.chars().take(64).flat_map(char::escape_debug).collect()
}

/// Workload text as it may appear in a message.
pub(crate) fn shown_text(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).map(|char| if char.is_control() { ' ' } else { char }).collect()
}
