//! A context: an interpreter that is kept alive, the cells that wait for it, and how it ended.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::{Rc, Weak},
};

use guest_protocol::{
    ContextStart, ContextState, ContextSummary, Failure, FailureKind, Response, Rich, SignalScope, StateLoss,
};
use tokio::{sync::Notify, task::spawn_local};

use super::{
    cell::{self, CellPart, Waiting},
    drivers::Driver,
    fork::Order,
    interpreter::Interpreter,
};
use crate::{
    Guest,
    exec::{Ended, Exec},
    processes, sys,
};

/// Exit code of an interrupted cell.
pub(crate) const INTERRUPTED: u8 = 130;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) driver: &'static Driver,
    /// The settings that its interpreter is started with.
    pub(crate) start: ContextStart,
    /// The context that it was forked from.
    parent: Option<String>,
    guest: Weak<Guest>,
    changed: Notify,
    pub(super) inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) interpreter: Option<Rc<Interpreter>>,
    /// The interpreter's program runs.
    pub(super) has_begun: bool,
    /// It accepts cells.
    pub(super) is_ready: bool,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) running: Option<Rc<Exec>>,
    /// An interpreter is wanted even though no cell waits.
    pub(super) is_wanted: bool,
    pub(super) fork: Option<Order>,
    pub(super) n_cells: u64,
    /// Why the next cell finds no variables, as a sentence.
    pub(super) lost: Option<String>,
    /// The interpreter is being killed on request, so the loss of the variables is not reported.
    pub(super) is_reset: bool,
    /// The last interpreter was killed on request, and there is no new one yet.
    pub(super) was_reset: bool,
    /// Why the last start failed.
    pub(super) failure: Option<Failure>,
    /// It ends as soon as its interpreter is gone.
    pub(super) is_removed: bool,
    /// Its task has ended.
    pub(super) is_gone: bool,
}

impl Context {
    pub(super) fn new(
        guest: &Rc<Guest>,
        driver: &'static Driver,
        start: ContextStart,
        parent: Option<String>,
    ) -> Self {
        let guest = Rc::downgrade(guest);
        Self { driver, start, parent, guest, changed: Notify::new(), inner: RefCell::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.start.name
    }

    /// Waits until `check` returns a value.
    pub(super) async fn until<T>(&self, mut check: impl FnMut(&Inner) -> Option<T>) -> T {
        loop {
            // Created before the check, so that a change between the two is not missed.
            let changed = self.changed.notified();
            if let Some(found) = check(&self.inner.borrow()) {
                return found;
            }
            changed.await;
        }
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let result = change(&mut self.inner.borrow_mut());
        self.changed.notify_waiters();
        result
    }

    /// Records that its interpreter was reaped, if it is this one.
    pub(super) fn reaped(&self, pid: i32, ended: Ended, oom_kills: u64) {
        let is_mine =
            |interpreter: &&Rc<Interpreter>| interpreter.pid == pid && interpreter.ended.get().is_none();
        let interpreter = self.inner.borrow().interpreter.as_ref().filter(is_mine).cloned();
        let Some(interpreter) = interpreter else { return };
        interpreter.ended.set(Some((ended, oom_kills)));
        if self.ends_families() {
            // At once: a fork bomb must not wait until a host has taken the last output.
            processes::kill_left_behind(pid);
        }
        self.changed.notify_waiters();
    }

    /// Whether processes that an interpreter leaves behind are killed. A shutdown gives them a grace period instead.
    pub(super) fn ends_families(&self) -> bool {
        self.guest.upgrade().is_some_and(|guest| !guest.is_stopping.get())
    }

    /// Whether this process is its interpreter.
    pub(super) fn has_pid(&self, pid: i32) -> bool {
        let inner = self.inner.borrow();
        inner
            .interpreter
            .as_ref()
            .is_some_and(|interpreter| interpreter.pid == pid && interpreter.ended.get().is_none())
    }

    /// The living interpreter and the cell that it runs.
    fn alive(&self) -> (Option<Rc<Interpreter>>, Option<Rc<Exec>>) {
        let inner = self.inner.borrow();
        (inner.interpreter.clone(), inner.running.clone())
    }

    pub(super) fn signal(
        self: &Rc<Self>,
        exec: &Rc<Exec>,
        signal: i32,
        scope: SignalScope,
    ) -> Result<Response, Failure> {
        let (interpreter, running) = self.alive();
        match (interpreter, running) {
            (Some(interpreter), Some(running)) if Rc::ptr_eq(&running, exec) => match (signal, scope) {
                (libc::SIGINT, _) => self.interrupt(exec),
                (libc::SIGKILL, _) => interpreter.kill(StateLoss::Killed),
                (_, SignalScope::Group) => interpreter.signal(signal),
                (_, SignalScope::Process) => drop(sys::kill(interpreter.pid, signal)),
            },
            _ if is_an_end(signal) => self.give_up(exec),
            _ => {
                let message = format!("exec {} waits for its turn in context {}", exec.id, self.name());
                return Err(Failure::new(FailureKind::WrongState, message));
            }
        }
        Ok(Response::Done)
    }

    /// Asks the running cell to end; kills the interpreter when it does not.
    pub(super) fn interrupt(self: &Rc<Self>, exec: &Rc<Exec>) {
        let (Some(interpreter), Some(running)) = self.alive() else { return };
        let Some(cell) = exec.cell.as_ref().filter(|_| Rc::ptr_eq(&running, exec)) else { return };
        if cell.interrupt() {
            // A task that waits for room checks again.
            exec.nudge();
            let (context, exec) = (Rc::clone(self), Rc::clone(exec));
            spawn_local(cell::end_within(context, exec, Rc::clone(&interpreter), cell.grace()));
        }
        interpreter.signal(libc::SIGINT);
        // A stopped interpreter would never receive it.
        interpreter.signal(libc::SIGCONT);
    }

    /// Ends a waiting cell, which then never runs.
    fn give_up(&self, exec: &Rc<Exec>) {
        let Some(guest) = self.guest.upgrade() else { return };
        let position =
            |inner: &Inner| inner.waiting.iter().position(|waiting| Rc::ptr_eq(&waiting.exec, exec));
        let was_waiting =
            self.change(|inner| position(inner).and_then(|position| inner.waiting.remove(position)));
        if let Some(waiting) = was_waiting {
            guest.contexts.let_go(&waiting);
            never_ran(&guest, exec);
        }
    }

    /// Ends all waiting cells.
    pub(super) fn give_up_waiting(&self) {
        let waiting: Vec<Rc<Exec>> =
            self.inner.borrow().waiting.iter().map(|waiting| Rc::clone(&waiting.exec)).collect();
        for exec in waiting {
            self.give_up(&exec);
        }
    }

    /// Kills the interpreter; the running cell ends with it.
    pub(super) fn kill(&self, reason: StateLoss) {
        if let Some(interpreter) = self.alive().0 {
            interpreter.kill(reason);
        }
    }

    /// Asks for the end, as a shutdown does: politely while a cell's code runs, at once otherwise.
    pub(super) fn terminate(&self, signals: &[i32]) {
        let (interpreter, running) = self.alive();
        let Some(interpreter) = interpreter else { return };
        for signal in signals {
            interpreter.signal(*signal);
        }
        if running.is_none() && interpreter.ended.get().is_none() {
            sys::kill(interpreter.pid, libc::SIGKILL).ok();
        }
    }

    /// The number of waiting cells, whether it refuses new ones, and the interpreter's pid once its program runs.
    pub(super) fn queue_state(&self) -> (usize, bool, Option<i32>) {
        let inner = self.inner.borrow();
        let alive = inner.interpreter.as_ref().filter(|_| inner.has_begun);
        (inner.waiting.len(), inner.is_removed, alive.map(|interpreter| interpreter.pid))
    }

    pub(super) fn wait(&self, waiting: Waiting) {
        self.change(|inner| inner.waiting.push_back(waiting));
    }

    /// Requests an interpreter before any cell does.
    pub(super) fn want(&self) {
        self.change(|inner| inner.is_wanted = true);
    }

    /// Waits until it accepts cells, or never will.
    pub(super) async fn ready(&self) -> Result<(), Failure> {
        let removed = || {
            let message = format!("context {} was removed before it was ready", self.name());
            Failure::new(FailureKind::WrongState, message)
        };
        self.until(|inner| match (inner.is_ready, &inner.failure) {
            (true, _) => Some(Ok(())),
            (false, Some(failure)) => Some(Err(failure.clone())),
            (false, None) => inner.is_gone.then(|| Err(removed())),
        })
        .await
    }

    pub(super) async fn without_interpreter(&self) {
        self.until(|inner| inner.interpreter.is_none().then_some(())).await;
    }

    pub(super) async fn gone(&self) {
        self.until(|inner| inner.is_gone.then_some(())).await;
    }

    /// Ends the interpreter, and the variables with it.
    pub(super) fn reset(&self) {
        self.change(|inner| {
            inner.is_reset = inner.interpreter.is_some();
            inner.lost = None;
        });
        self.kill(StateLoss::Killed);
    }

    /// Accepts no more cells, and ends with its interpreter.
    pub(super) fn retire(&self) {
        self.change(|inner| inner.is_removed = true);
        self.kill(StateLoss::Killed);
    }

    /// Hands a fork to the task. Only an idle interpreter can be forked.
    pub(super) fn order_fork(&self, order: Order) -> Result<(), Failure> {
        let wrong =
            |why: &str| Err(Failure::new(FailureKind::WrongState, format!("context {} {why}", self.name())));
        {
            let inner = self.inner.borrow();
            if inner.interpreter.is_none() {
                return wrong("has no interpreter to fork: run a cell in it first");
            }
            if inner.running.is_some() || !inner.waiting.is_empty() {
                return wrong("runs a cell; it can be forked when that has ended");
            }
            if inner.fork.is_some() || inner.is_removed {
                return wrong("is being forked or removed already");
            }
        }
        self.change(|inner| inner.fork = Some(order));
        Ok(())
    }

    /// The interpreter's session, and the cell that owns its processes.
    pub(super) fn session(&self) -> Option<(i32, String)> {
        let inner = self.inner.borrow();
        let pid = inner.interpreter.as_ref()?.pid;
        Some((pid, inner.running.as_ref()?.id.clone()))
    }

    pub(crate) fn summary(&self) -> ContextSummary {
        let inner = self.inner.borrow();
        let alive = inner.interpreter.as_ref().filter(|interpreter| interpreter.ended.get().is_none());
        let pid = alive.map(|interpreter| interpreter.pid);
        let state = match pid {
            None if inner.n_cells == 0 && inner.lost.is_none() && !inner.has_begun => ContextState::Starting,
            // A requested reset is not a loss.
            None if inner.was_reset => ContextState::Idle,
            None => ContextState::Lost,
            Some(_) if !inner.is_ready => ContextState::Starting,
            Some(_) if inner.running.is_some() => ContextState::Busy,
            Some(_) => ContextState::Idle,
        };
        ContextSummary {
            name: self.start.name.clone(),
            language: self.driver.language.to_owned(),
            state,
            pid,
            cells: inner.n_cells,
            queued: u32::try_from(inner.waiting.len()).unwrap_or(u32::MAX),
            cwd: self.start.cwd.clone(),
            parent: self.parent.clone(),
            memory_bytes: pid.map_or(0, processes::memory_of),
        }
    }
}

/// Signals that end a program by default.
fn is_an_end(signal: i32) -> bool {
    [libc::SIGINT, libc::SIGTERM, libc::SIGKILL, libc::SIGHUP, libc::SIGQUIT].contains(&signal)
}

/// All events of a cell that never ran, if its start was already answered.
fn never_ran(guest: &Guest, exec: &Exec) {
    if !exec.is_answered() {
        let message = "it was ended before its turn came";
        return guest
            .execs
            .refuse(exec, crate::exec::not_started(guest_protocol::StartFailure::Other, message));
    }
    exec.cell.as_ref().map(CellPart::interrupt);
    guest.execs.push_record(exec, &Rich::State { kept: true, lost: None, interrupted: true });
    guest.execs.has_ended(exec, Ended { code: Some(INTERRUPTED), signal: None }, guest.oom_kills());
    guest.execs.close(exec);
}
