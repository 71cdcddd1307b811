//! A cell: an exec whose process is its context's interpreter.

use std::{
    cell::Cell,
    rc::{Rc, Weak},
    time::Duration,
};

use guest_protocol::{CellStart, ExecStart, Failure, FailureKind, Response, SignalScope, StateLoss};
use tokio::time::Instant;

use super::{context::Context, interpreter::Interpreter};
use crate::exec::{Cause, Exec};

/// How often an interrupt is repeated, if needed.
const INTERRUPT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The part of a cell that an ordinary exec does not have.
#[derive(Debug)]
pub(crate) struct CellPart {
    context: Weak<Context>,
    /// How long the interpreter has to end the cell after an interrupt.
    grace: Duration,
    timeout: Option<Duration>,
    pub(super) tracks_files: bool,
    is_interrupted: Cell<bool>,
}

/// A cell that waits for its turn.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) exec: Rc<Exec>,
    /// Type of its frame.
    pub(crate) kind: u8,
    pub(crate) code: String,
}

impl CellPart {
    pub(super) fn new(context: &Rc<Context>, request: &ExecStart, cell: &CellStart) -> Self {
        Self {
            context: Rc::downgrade(context),
            grace: Duration::from_millis(cell.grace_ms),
            timeout: request.timeout_ms.map(Duration::from_millis),
            tracks_files: request.track_files,
            is_interrupted: Cell::new(false),
        }
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted.get()
    }

    /// Records an interrupt; returns whether it is the first.
    pub(super) fn interrupt(&self) -> bool {
        !self.is_interrupted.replace(true)
    }

    pub(super) fn grace(&self) -> Duration {
        self.grace
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub(crate) fn signal(
        &self,
        exec: &Rc<Exec>,
        signal: i32,
        scope: SignalScope,
    ) -> Result<Response, Failure> {
        let over = || Failure::new(FailureKind::WrongState, format!("exec {} has ended", exec.id));
        let context = self.context.upgrade().filter(|_| !exec.has_ended()).ok_or_else(over)?;
        context.signal(exec, signal, scope)
    }
}

/// Ends a cell like an interrupt does, when its time is up.
pub(super) async fn limit_time(context: Rc<Context>, exec: Rc<Exec>, timeout: Duration) {
    if tokio::time::timeout(timeout, exec.end()).await.is_err() {
        exec.blame(Cause::TimeLimit);
        context.interrupt(&exec);
    }
}

/// Kills the interpreter of an interrupted cell that does not end.
pub(super) async fn end_within(
    context: Rc<Context>,
    exec: Rc<Exec>,
    interpreter: Rc<Interpreter>,
    grace: Duration,
) {
    let give_up_at = Instant::now() + grace;
    if context.driver.needs_many_interrupts() {
        let again_after = INTERRUPT_AGAIN_AFTER.min(grace / 2);
        while Instant::now() + again_after < give_up_at {
            if tokio::time::timeout(again_after, exec.end()).await.is_ok() {
                return;
            }
            interpreter.signal(libc::SIGINT);
        }
    }
    if tokio::time::timeout_at(give_up_at, exec.end()).await.is_err() {
        interpreter.kill(StateLoss::Killed);
    }
}
