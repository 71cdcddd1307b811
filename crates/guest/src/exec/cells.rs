//! The parts of execs that cells use: the same ids, windows and events, without a process of their own.

use std::rc::Rc;

use bytes::Bytes;
use guest_protocol::{ExecEvent, Response, Rich};

use super::{Ended, Exec, Execs};
use crate::{
    Guest,
    code::CellPart,
    limits::{INTERRUPTED_EXTRA_BYTES, WINDOW_BYTES},
};

impl Exec {
    pub(crate) fn of_cell(id: String, cell: CellPart) -> Self {
        Self { cell: Some(cell), ..Self::new(id) }
    }

    /// Waits for the answer to its start.
    pub(crate) async fn answer(&self) -> Response {
        self.until(|inner| inner.answer.clone()).await
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.inner.borrow().answer.is_some()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.is_ended()
    }

    /// Wakes every task that waits for this exec.
    pub(crate) fn nudge(&self) {
        self.changed.notify_waiters();
    }

    pub(crate) fn oom_kills_before(&self) -> u64 {
        self.oom_kills_before.get()
    }

    /// Waits until it has ended.
    pub(crate) async fn end(&self) {
        self.until(|inner| inner.ended.map(drop)).await;
    }
}

impl Execs {
    pub(crate) fn add(&self, exec: &Rc<Exec>) {
        self.known.borrow_mut().insert(exec.id.clone(), Rc::clone(exec));
    }

    /// Stores the answer of a failed start, and returns it.
    pub(crate) fn refused(&self, id: &str, answer: Response) -> Response {
        self.remember_failure(id, answer.clone());
        answer
    }

    /// Records that the exec did not start after all.
    pub(crate) fn refuse(&self, exec: &Exec, answer: Response) {
        self.known.borrow_mut().remove(&exec.id);
        self.remember_failure(&exec.id, answer.clone());
        exec.change(|inner| inner.answer = Some(answer));
    }

    pub(crate) fn has_started(&self, exec: &Exec, pid: i32) {
        self.push(exec, ExecEvent::Started { pid });
        exec.change(|inner| inner.answer = Some(Response::Started { pid }));
    }

    pub(crate) fn push_rich(&self, exec: &Exec, bytes: Bytes) {
        self.push(exec, ExecEvent::Rich(bytes));
    }

    pub(crate) fn push_record(&self, exec: &Exec, record: &Rich) {
        // Our own small records always serialise.
        if let Ok(mut line) = serde_json::to_vec(record) {
            line.push(b'\n');
            self.push_rich(exec, line.into());
        }
    }

    pub(crate) fn push_output(&self, exec: &Exec, event: ExecEvent) {
        self.push(exec, event);
    }

    /// From now on memory kills count as this exec's.
    pub(crate) fn has_begun(&self, guest: &Guest, exec: &Exec) {
        exec.oom_kills_before.set(guest.oom_kills());
    }

    /// The end of a cell, after its last record.
    pub(crate) fn has_ended(&self, exec: &Exec, ended: Ended, oom_kills: u64) {
        exec.change(|inner| {
            inner.ended = Some(ended);
            inner.oom_kills = oom_kills.saturating_sub(exec.oom_kills_before.get());
            inner.has_exited = true;
        });
        self.push(exec, ExecEvent::Exited(exec.report()));
    }

    /// No process belongs to this exec any more.
    pub(crate) fn close(&self, exec: &Exec) {
        exec.change(|inner| inner.is_closed = true);
        self.push(exec, ExecEvent::Closed);
    }

    /// Room for a cell's events. An interrupted cell gets a little more, so that its interpreter is heard even while
    /// the host takes nothing.
    pub(crate) fn has_room_for_cell(&self, exec: &Exec) -> bool {
        let is_interrupted = exec.cell.as_ref().is_some_and(CellPart::is_interrupted);
        let bytes = exec.inner.borrow().window.bytes();
        self.has_room(exec) || (is_interrupted && bytes < WINDOW_BYTES + INTERRUPTED_EXTRA_BYTES)
    }
}
