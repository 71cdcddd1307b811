//! The task of one context: starts its interpreter, gives it cells one by one, and turns its output into their events.
//!
//! ```text
//! cell waits → begins (Closed to the one before) → output, records → `d` → State, Exited → late output → …
//!                                                └→ the interpreter ends → State, Exited
//! ```

use std::{rc::Rc, time::Duration};

use guest_protocol::{Failure, FailureKind, Response, Rich, StartFailure, StateLoss};
use tokio::{task::spawn_local, time::Instant};

use super::{
    cell::{self, Waiting},
    channel::{Channel, Garbled, Word},
    context::{Context, INTERRUPTED, Inner},
    fork::Forking,
    interpreter::{self, Ends, Interpreter},
};
use crate::{
    Guest,
    exec::{self, Chunk, Ended, Exec, Output},
    files::changed::Tracker,
    limits::{FORKED_WITHIN, OUTPUT_CHUNK_BYTES, READY_WITHIN, SILENT_FOR},
};

/// Exit code of a cell whose interpreter could not be restarted.
const NO_INTERPRETER: u8 = 127;

pub(super) struct Task {
    pub(super) guest: Rc<Guest>,
    pub(super) context: Rc<Context>,
    pub(super) live: Option<Live>,
    /// Including those of ended interpreters: processes they left behind may still print.
    pub(super) outputs: Vec<Output>,
    /// The cell that ran last, which owns late output.
    pub(super) last: Option<Rc<Exec>>,
    /// Number of the cell that started last.
    number: u64,
    /// Tracks the running cell's file changes, if requested.
    tracker: Option<Tracker>,
}

/// The current interpreter.
pub(super) struct Live {
    pub(super) interpreter: Rc<Interpreter>,
    pub(super) channel: Channel,
    /// The time by which it must have sent something.
    pub(super) deadline: Option<Instant>,
    pub(super) forking: Option<Forking>,
    /// Abandoned forks whose answers may still come.
    pub(super) n_late_forks: u32,
}

/// The next thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Start,
    Begin,
    Fork,
    Bury,
    Leave,
}

enum News {
    Due(Due),
    Heard(Chunk),
    Printed(usize, Chunk),
    DeadlinePassed,
    /// Something was written, or there is room again.
    LookAgain,
}

impl Task {
    pub(super) fn new(guest: &Rc<Guest>, context: &Rc<Context>) -> Self {
        Self {
            guest: Rc::clone(guest),
            context: Rc::clone(context),
            live: None,
            outputs: Vec::new(),
            last: None,
            number: 0,
            tracker: None,
        }
    }

    /// A task for an interpreter that runs already.
    pub(super) fn of(guest: &Rc<Guest>, context: &Rc<Context>, ends: Ends) -> Self {
        let mut task = Self::new(guest, context);
        task.take_over(ends);
        context.change(|inner| inner.has_begun = true);
        task
    }

    fn take_over(&mut self, Ends { interpreter, channel, outputs }: Ends) {
        self.outputs = outputs;
        self.context.change(|inner| {
            inner.interpreter = Some(Rc::clone(&interpreter));
            inner.was_reset = false;
        });
        let deadline = Some(Instant::now() + READY_WITHIN);
        self.live = Some(Live { interpreter, channel, deadline, forking: None, n_late_forks: 0 });
    }

    pub(super) async fn run(mut self) {
        loop {
            match self.news().await {
                News::Due(Due::Start) => self.start().await,
                News::Due(Due::Begin) => self.begin().await,
                News::Due(Due::Fork) => self.fork(),
                News::Due(Due::Bury) => self.bury().await,
                News::Due(Due::Leave) => return self.leave(),
                News::Heard(Chunk::Bytes(bytes)) => self.listen(&bytes).await,
                News::Heard(Chunk::Closed) => self.fell_silent(),
                News::Printed(position, chunk) => self.printed(position, chunk),
                News::DeadlinePassed => self.is_late(),
                News::Heard(Chunk::Empty) | News::LookAgain => {}
            }
            if self.live.is_none() && (self.outputs.is_empty() || self.guest.is_stopping.get()) {
                self.close_last();
            }
        }
    }

    fn due(&self, inner: &Inner) -> Option<Due> {
        let Some(live) = &self.live else {
            let wants_one = inner.is_wanted || !inner.waiting.is_empty();
            return match () {
                () if inner.is_removed => Some(Due::Leave),
                () if wants_one && !self.guest.is_stopping.get() => Some(Due::Start),
                () => None,
            };
        };
        let is_free = inner.is_ready && inner.running.is_none() && live.forking.is_none();
        match () {
            () if live.interpreter.ended.get().is_some() => Some(Due::Bury),
            () if is_free && inner.fork.is_some() => Some(Due::Fork),
            () if is_free && !inner.waiting.is_empty() => Some(Due::Begin),
            () => None,
        }
    }

    /// The cell whose events the output becomes now.
    pub(super) fn owner(&self) -> Option<Rc<Exec>> {
        let inner = self.context.inner.borrow();
        let first = || inner.waiting.front().filter(|_| !inner.is_ready).map(|waiting| &waiting.exec);
        inner.running.as_ref().or(self.last.as_ref()).or_else(first).cloned()
    }

    async fn news(&mut self) -> News {
        let owner = self.owner();
        let has_room = owner.as_deref().is_none_or(|owner| self.guest.execs.has_room_for_cell(owner));
        // Output printed while there is no cell waits for the first one.
        let reads_output = has_room && owner.is_some();
        let (first, second) = (self.outputs.first(), self.outputs.get(1));
        let live = self.live.as_ref();
        let channel = live.map(|live| &live.channel);
        let hears = has_room && channel.is_some_and(|channel| !channel.is_deaf);
        let writes = channel.is_some_and(Channel::has_unwritten);
        let deadline = live.and_then(|live| live.deadline);
        let news = tokio::select! {
            biased;
            due = self.context.until(|inner| self.due(inner)) => News::Due(due),
            chunk = of(channel, Channel::next), if hears => News::Heard(chunk),
            chunk = of(first, Output::next), if reads_output && first.is_some() => News::Printed(0, chunk),
            chunk = of(second, Output::next), if reads_output && second.is_some() => News::Printed(1, chunk),
            () = of(channel, Channel::write_on), if writes => News::LookAgain,
            () = room(&self.guest, owner.as_deref()), if !has_room => News::LookAgain,
            () = until(deadline), if deadline.is_some() => News::DeadlinePassed,
        };
        if self.outputs.len() > 1 && !matches!(news, News::Printed(_, Chunk::Closed)) {
            // The other one goes first next time: a flood on one stream must not silence the other.
            self.outputs.swap(0, 1);
            if let News::Printed(position, chunk) = news {
                return News::Printed(1 - position, chunk);
            }
        }
        news
    }

    async fn start(&mut self) {
        self.close_last();
        self.outputs.clear();
        let (ends, newborn) = match interpreter::fork(&self.guest, &self.context) {
            Ok(started) => started,
            Err(answer) => return self.could_not_start(answer),
        };
        let sent = ends.channel.send_parts(self.context.driver.parts);
        self.take_over(ends);
        if sent.is_err() {
            self.is_garbled();
        }
        if let Err(answer) = newborn.has_begun().await {
            self.live = None;
            self.outputs.clear();
            return self.could_not_start(answer);
        }
        let (pid, unanswered) = self.context.change(|inner| {
            inner.has_begun = true;
            inner.is_wanted = false;
            inner.failure = None;
            let unanswered = inner.waiting.iter().filter(|waiting| !waiting.exec.is_answered());
            let unanswered: Vec<_> = unanswered.map(|waiting| Rc::clone(&waiting.exec)).collect();
            (inner.interpreter.as_ref().map_or(0, |interpreter| interpreter.pid), unanswered)
        });
        for exec in unanswered {
            self.guest.execs.has_started(&exec, pid);
        }
    }

    /// Answers everyone who waits for the interpreter. A context that never had one is removed.
    fn could_not_start(&mut self, answer: Response) {
        let answer = interpreter::explain(self.context.driver, answer);
        let (reason, message) = match &answer {
            Response::NotStarted { reason, message } => (*reason, message.clone()),
            _ => (StartFailure::Other, String::new()),
        };
        let waiting = self.context.change(|inner| {
            inner.interpreter = None;
            inner.is_wanted = false;
            inner.failure = Some(Failure::new(kind_of(reason), message.clone()));
            inner.is_removed |= !inner.has_begun;
            std::mem::take(&mut inner.waiting)
        });
        for waiting in waiting {
            self.guest.contexts.let_go(&waiting);
            let exec = waiting.exec;
            if !exec.is_answered() {
                self.guest.execs.refuse(&exec, answer.clone());
                continue;
            }
            self.guest.execs.push_record(&exec, &Rich::Warning { message: message.clone() });
            let ended = Ended { code: Some(NO_INTERPRETER), signal: None };
            self.end_cell(&exec, ended, Some(StateLoss::Exited), self.guest.oom_kills());
            self.guest.execs.close(&exec);
        }
    }

    async fn begin(&mut self) {
        // Waits for the clock at most, before the cell is taken from the queue.
        self.tracker = match self.tracked_directory() {
            Some(directory) => Some(Tracker::begin(&directory).await),
            None => None,
        };
        let is_still_due = self.due(&self.context.inner.borrow()) == Some(Due::Begin);
        if !is_still_due {
            return;
        }
        let Some(Waiting { exec, kind, code }) = self.context.change(|inner| {
            let waiting = inner.waiting.pop_front();
            inner.running = waiting.as_ref().map(|waiting| Rc::clone(&waiting.exec));
            waiting
        }) else {
            return;
        };
        self.guest.contexts.let_go_bytes(code.len());
        self.take_late_output();
        self.close_last();
        let lost = self.context.inner.borrow_mut().lost.take();
        if let Some(message) = lost {
            self.guest.execs.push_record(&exec, &Rich::Warning { message });
        }
        self.guest.execs.has_begun(&self.guest, &exec);
        self.number += 1;
        let sent = self.live.as_ref().map(|live| live.channel.send_cell(kind, self.number, &code));
        if sent == Some(Err(Garbled)) {
            self.is_garbled();
        }
        if let Some(timeout) = exec.cell.as_ref().and_then(cell::CellPart::timeout) {
            spawn_local(cell::limit_time(Rc::clone(&self.context), exec, timeout));
        }
    }

    /// The directory in which the next cell will run, if its file changes are tracked.
    fn tracked_directory(&self) -> Option<String> {
        let inner = self.context.inner.borrow();
        inner.waiting.front()?.exec.cell.as_ref().filter(|cell| cell.tracks_files)?;
        // An earlier cell may have changed the directory.
        let pid = self.live.as_ref()?.interpreter.pid;
        let now = std::fs::read_link(format!("/proc/{pid}/cwd")).ok();
        let now = now.and_then(|path| path.into_os_string().into_string().ok());
        Some(now.unwrap_or_else(|| self.context.start.cwd.clone()))
    }

    /// Takes the last cell's output that has already arrived. If there is no room, the next cell gets it.
    fn take_late_output(&self) {
        let Some(last) = &self.last else { return };
        for output in &self.outputs {
            let mut pending = output.pending();
            while pending > 0 && self.guest.execs.has_room_for_cell(last) {
                let limit = usize::try_from(pending).unwrap_or(OUTPUT_CHUNK_BYTES);
                let Chunk::Bytes(bytes) = output.take(limit) else { break };
                pending = pending.saturating_sub(bytes.len() as u64);
                self.guest.execs.push_output(last, output.event(bytes));
            }
        }
    }

    fn close_last(&mut self) {
        if let Some(last) = self.last.take() {
            self.guest.execs.close(&last);
        }
    }

    fn printed(&mut self, position: usize, chunk: Chunk) {
        match (chunk, self.owner()) {
            (Chunk::Bytes(bytes), Some(owner)) => {
                if let Some(output) = self.outputs.get(position) {
                    self.guest.execs.push_output(&owner, output.event(bytes));
                }
            }
            (Chunk::Closed, _) => drop(self.outputs.remove(position)),
            _ => {}
        }
    }

    /// Handles the driver's data, after the output printed before it.
    pub(super) async fn listen(&mut self, bytes: &[u8]) {
        if let Some(owner) = self.owner() {
            exec::drain(&self.guest, &owner, &mut self.outputs).await;
        }
        let mut rest = bytes;
        loop {
            // After a protocol error the driver's further data is ignored.
            let Some(live) = self.live.as_mut().filter(|live| !live.channel.is_deaf) else { return };
            let mut rich = Vec::new();
            let word = live.channel.lines.next(&mut rest, &mut rich);
            self.pass_on(rich);
            match word {
                Ok(Some(word)) => self.obey(word).await,
                Ok(None) => return,
                Err(_garbled) => return self.is_garbled(),
            }
        }
    }

    /// Records that come while no cell runs are dropped: a cell's last record is its state.
    fn pass_on(&self, rich: Vec<u8>) {
        let running = self.context.inner.borrow().running.clone();
        if let Some(running) = running.filter(|_| !rich.is_empty()) {
            self.guest.execs.push_rich(&running, rich.into());
        }
    }

    async fn obey(&mut self, word: Word) {
        if matches!(word, Word::Done { cell, .. } if cell == self.number) {
            self.tell_files().await;
        }
        let running = self.context.inner.borrow().running.clone();
        let is_ready = self.context.inner.borrow().is_ready;
        let Some(live) = &mut self.live else { return };
        match (word, running) {
            (Word::Ready, None) if !is_ready => {
                live.deadline = None;
                self.context.change(|inner| inner.is_ready = true);
            }
            // A cell that was not even read cannot have run.
            (Word::Done { cell, code }, Some(running))
                if cell == self.number && !live.channel.has_unwritten() =>
            {
                let has_died = live.interpreter.ended.get();
                let oom_kills = self.guest.oom_kills();
                let own_kills = oom_kills.saturating_sub(running.oom_kills_before());
                let lost = has_died.map(|(ended, _)| live.interpreter.loss(ended, own_kills));
                self.end_cell(&running, Ended { code: Some(code), signal: None }, lost, oom_kills);
                self.last = Some(running);
            }
            (Word::Forked(_), _) if live.forking.is_none() && live.n_late_forks > 0 => live.n_late_forks -= 1,
            (Word::Forked(answer), _) if live.forking.is_some() => self.has_forked(answer),
            _ => self.is_garbled(),
        }
    }

    /// Reports the files that the running cell changed, before its end.
    pub(super) async fn tell_files(&mut self) {
        let tracker = self.tracker.take();
        let running = self.context.inner.borrow().running.clone();
        if let Some(running) = running {
            exec::tell_files(&self.guest, &running, tracker).await;
        }
    }

    /// The last record of a cell, and its end.
    pub(super) fn end_cell(&self, exec: &Rc<Exec>, ended: Ended, lost: Option<StateLoss>, oom_kills: u64) {
        let was_interrupted = exec.cell.as_ref().is_some_and(cell::CellPart::is_interrupted);
        let interrupted = was_interrupted && (lost.is_some() || ended.code == Some(INTERRUPTED));
        self.guest.execs.push_record(exec, &Rich::State { kept: lost.is_none(), lost, interrupted });
        self.guest.execs.has_ended(exec, ended, oom_kills);
        self.context.change(|inner| {
            inner.running = None;
            inner.n_cells += 1;
        });
    }

    fn is_garbled(&mut self) {
        if let Some(live) = &mut self.live {
            live.channel.is_deaf = true;
            live.interpreter.kill(StateLoss::Garbled);
        }
    }

    /// The other end of the channel is closed, mostly because the interpreter is about to end.
    fn fell_silent(&mut self) {
        let Some(live) = &mut self.live else { return };
        live.channel.is_deaf = true;
        let is_running = self.context.inner.borrow().running.is_some();
        if is_running && self.context.driver.can_be_replaced() {
            return;
        }
        let interpreter = Rc::clone(&live.interpreter);
        spawn_local(async move {
            tokio::time::sleep(SILENT_FOR).await;
            interpreter.kill(StateLoss::Garbled);
        });
    }

    fn is_late(&mut self) {
        let Some(live) = &mut self.live else { return };
        live.deadline = None;
        if live.forking.is_some() {
            live.n_late_forks += 1;
            self.fork_is_late(FORKED_WITHIN);
        } else {
            live.interpreter.kill(StateLoss::Killed);
        }
    }

    fn leave(&mut self) {
        self.close_last();
        self.context.give_up_waiting();
        self.guest.contexts.forget(&self.context);
        self.context.change(|inner| inner.is_gone = true);
    }
}

async fn of<T, R>(thing: Option<&T>, what: impl AsyncFnOnce(&T) -> R) -> R {
    match thing {
        Some(thing) => what(thing).await,
        None => std::future::pending().await,
    }
}

async fn room(guest: &Guest, owner: Option<&Exec>) {
    match owner {
        Some(owner) => exec::room(guest, owner).await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    let far = || Instant::now() + Duration::from_secs(3600);
    tokio::time::sleep_until(deadline.unwrap_or_else(far)).await;
}

fn kind_of(reason: StartFailure) -> FailureKind {
    match reason {
        StartFailure::NotFound | StartFailure::NotExecutable => FailureKind::NotFound,
        StartFailure::BadWorkingDirectory | StartFailure::BadUser => FailureKind::InvalidRequest,
        StartFailure::LimitReached => FailureKind::LimitReached,
        StartFailure::Other => FailureKind::Internal,
    }
}
