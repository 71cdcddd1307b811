//! One simulated command: its numbered events, kept until the host has them, and what can be done to it.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use guest_protocol::{
    ExecEvent, ExecStatus, ExecSummary, ExitReport, Failure, FailureKind, Frame, Response, Rich, SignalScope,
    TerminalSize,
};
use tokio::{io::DuplexStream, sync::watch};

use super::wire::{FrameReader, FrameWriter, Result};

/// Unacknowledged output of one exec; past it the program waits, as on a full pipe.
pub(super) const WINDOW_BYTES: usize = 1024 * 1024;
/// What one event costs besides its bytes.
const EVENT_OVERHEAD_BYTES: usize = 128;
/// Most bytes of output in one event, as one read from a pipe gives.
pub(super) const OUTPUT_CHUNK_BYTES: usize = 64 * 1024;
pub(super) const SIGINT: i32 = 2;
pub(super) const SIGKILL: i32 = 9;
pub(super) const SIGTERM: i32 = 15;
const MAX_SIGNAL: i32 = 64;
/// Signals that end no program by default: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
const HARMLESS_SIGNALS: [i32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Code(u8),
    Signal(i32),
}

/// Why the guest itself killed an exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    TimeLimit,
    DiskLimit,
    Shutdown,
    Request,
}

#[derive(Debug)]
pub(super) struct Exec {
    pub(super) id: String,
    pub(super) pid: i32,
    pub(super) command: Vec<String>,
    pub(super) has_terminal: bool,
    pub(super) state: watch::Sender<ExecState>,
    /// Our end of its stdin, while it is open.
    stdin: tokio::sync::Mutex<Option<DuplexStream>>,
}

#[derive(Debug, Default)]
pub(super) struct ExecState {
    events: VecDeque<ExecEvent>,
    acked: u64,
    held_bytes: usize,
    pub(super) ended: Option<Ended>,
    pub(super) is_closed: bool,
    causes: Vec<Cause>,
    pub(super) oom_kills: u64,
    /// Grows with each attach; only the newest is served.
    attach: u64,
    is_attached: bool,
    pub(super) size: Option<TerminalSize>,
    pub(super) ignored_signals: BTreeSet<i32>,
    /// How often SIGINT was sent, whether or not it was ignored.
    pub(super) n_interrupts: u32,
    /// The signal that ends the first process, and the one that ends the whole group.
    pub(super) killed: Option<i32>,
    pub(super) group_killed: Option<i32>,
    /// Processes left in the background, which hold the output open.
    pub(super) n_children: usize,
}

impl ExecState {
    fn last(&self) -> u64 {
        self.acked + self.events.len() as u64
    }

    fn event(&self, number: u64) -> Option<&ExecEvent> {
        let position = number.checked_sub(self.acked + 1)?;
        self.events.get(usize::try_from(position).ok()?)
    }

    fn push(&mut self, event: ExecEvent) {
        self.held_bytes += cost(&event);
        self.events.push_back(event);
    }

    fn ack(&mut self, number: u64) {
        while self.acked < number
            && let Some(event) = self.events.pop_front()
        {
            self.acked += 1;
            self.held_bytes -= cost(&event);
        }
    }

    /// Whether the host has everything there ever will be.
    pub(super) fn is_taken(&self) -> bool {
        self.is_closed && self.events.is_empty()
    }

    fn report(&self, ended: Ended) -> ExitReport {
        let (code, signal) = match ended {
            Ended::Code(code) => (Some(code), None),
            Ended::Signal(signal) => (None, Some(signal)),
        };
        ExitReport {
            code,
            signal,
            timed_out: self.causes.contains(&Cause::TimeLimit),
            oom_kills: self.oom_kills,
            shutdown: self.causes.contains(&Cause::Shutdown),
            disk_limit: self.causes.contains(&Cause::DiskLimit),
        }
    }
}

fn cost(event: &ExecEvent) -> usize {
    EVENT_OVERHEAD_BYTES
        + match event {
            ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) | ExecEvent::Rich(bytes) => bytes.len(),
            _ => 0,
        }
}

impl Exec {
    pub(super) fn new(
        id: &str,
        pid: i32,
        command: Vec<String>,
        terminal: Option<TerminalSize>,
        stdin: Option<DuplexStream>,
    ) -> Self {
        let state = ExecState { size: terminal, ..ExecState::default() };
        Self {
            id: id.to_owned(),
            pid,
            command,
            has_terminal: terminal.is_some(),
            state: watch::Sender::new(state),
            stdin: tokio::sync::Mutex::new(stdin),
        }
    }

    /// Waits until `check` holds. Never ends when it never does.
    pub(super) async fn until(&self, check: impl FnMut(&ExecState) -> bool) {
        // The sender is ours, so it cannot be gone.
        self.state.subscribe().wait_for(check).await.map(drop).unwrap_or_default();
    }

    pub(super) fn started(&self) {
        self.state.send_modify(|state| state.push(ExecEvent::Started { pid: self.pid }));
    }

    /// Queues output, waiting while the host is behind.
    pub(super) async fn print(&self, stream: Stream, bytes: Bytes) {
        for start in (0..bytes.len()).step_by(OUTPUT_CHUNK_BYTES) {
            let part = bytes.slice(start..bytes.len().min(start + OUTPUT_CHUNK_BYTES));
            self.until(|state| state.held_bytes < WINDOW_BYTES).await;
            let event = match stream {
                // A terminal has one stream.
                Stream::Stderr if !self.has_terminal => ExecEvent::Stderr(part),
                _ => ExecEvent::Stdout(part),
            };
            self.state.send_modify(|state| state.push(event));
        }
    }

    pub(super) async fn rich(&self, record: &Rich) {
        // What is made here can be written.
        let mut line = serde_json::to_vec(record).unwrap_or_default();
        line.push(b'\n');
        self.rich_bytes(line.into()).await;
    }

    /// Bytes of the rich stream as they are, which need be no records.
    pub(super) async fn rich_bytes(&self, bytes: Bytes) {
        for start in (0..bytes.len()).step_by(OUTPUT_CHUNK_BYTES) {
            let part = bytes.slice(start..bytes.len().min(start + OUTPUT_CHUNK_BYTES));
            self.until(|state| state.held_bytes < WINDOW_BYTES).await;
            self.state.send_modify(|state| state.push(ExecEvent::Rich(part)));
        }
    }

    pub(super) fn ignore(&self, signal: i32) {
        self.state.send_modify(|state| {
            state.ignored_signals.insert(signal);
        });
    }

    pub(super) fn ignores(&self, signal: i32) -> bool {
        self.state.borrow().ignored_signals.contains(&signal)
    }

    /// Notes why the guest is about to end it.
    pub(super) fn blame(&self, cause: Cause) {
        self.state.send_modify(|state| state.causes.push(cause));
    }

    pub(super) fn exited(&self, ended: Ended) {
        self.state.send_modify(|state| {
            let report = state.report(ended);
            state.ended = Some(ended);
            state.push(ExecEvent::Exited(report));
        });
    }

    pub(super) fn closed(&self) {
        self.state.send_modify(|state| {
            state.is_closed = true;
            state.push(ExecEvent::Closed);
        });
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state.borrow().ended.is_some()
    }

    /// Ends the exec with all that it left behind.
    pub(super) fn kill(&self, cause: Cause) {
        self.state.send_modify(|state| {
            if state.ended.is_none() {
                state.causes.push(cause);
            }
            state.killed = Some(SIGKILL);
            state.group_killed = Some(SIGKILL);
        });
    }

    /// Asks it to end, as a shutdown does first.
    pub(super) fn terminate(&self) {
        self.state.send_modify(|state| {
            if state.ended.is_none() {
                state.causes.push(Cause::Shutdown);
            }
        });
        // Refused only when there is nothing left to signal.
        self.signal(SIGTERM, SignalScope::Group).map(drop).unwrap_or_default();
    }

    pub(super) fn signal(&self, signal: i32, scope: SignalScope) -> std::result::Result<Response, Failure> {
        if !(1..=MAX_SIGNAL).contains(&signal) {
            return Err(Failure::new(FailureKind::InvalidRequest, format!("{signal} is not a signal")));
        }
        let mut is_over = false;
        self.state.send_modify(|state| {
            state.n_interrupts += u32::from(signal == SIGINT);
            is_over = state.ended.is_some() && (scope == SignalScope::Process || state.n_children == 0);
            let is_ignored = state.ignored_signals.contains(&signal) && signal != SIGKILL;
            if is_over || is_ignored || HARMLESS_SIGNALS.contains(&signal) {
                return;
            }
            state.killed = state.killed.or(Some(signal));
            if scope == SignalScope::Group {
                state.group_killed = state.group_killed.or(Some(signal));
            }
        });
        if is_over {
            return Err(Failure::new(FailureKind::WrongState, format!("exec {} has ended", self.id)));
        }
        Ok(Response::Done)
    }

    pub(super) fn resize(&self, size: TerminalSize) -> std::result::Result<Response, Failure> {
        if size.rows == 0 || size.cols == 0 {
            let message =
                format!("a terminal of {} rows and {} columns cannot be made", size.rows, size.cols);
            return Err(Failure::new(FailureKind::InvalidRequest, message));
        }
        if !self.has_terminal {
            return Err(Failure::new(FailureKind::WrongState, format!("exec {} has no terminal", self.id)));
        }
        self.state.send_modify(|state| state.size = Some(size));
        Ok(Response::Done)
    }

    pub(super) fn summary(&self) -> ExecSummary {
        let state = self.state.borrow();
        let status = match (state.is_closed, state.ended) {
            (true, _) => ExecStatus::Closed,
            (false, Some(_)) => ExecStatus::Exited,
            (false, None) => ExecStatus::Running,
        };
        ExecSummary { id: self.id.clone(), status, last_event: state.last(), acked: state.acked }
    }

    /// Whether nobody waits for more of its events.
    pub(super) async fn last_events_taken(&self) {
        self.until(|state| !state.is_attached || state.is_taken()).await;
    }

    /// Serves `ExecStdin`. On a failure with `true` the rest of the body must still be read away.
    pub(super) async fn feed(
        &self,
        reader: &mut FrameReader,
        close: bool,
    ) -> Result<std::result::Result<Response, (Failure, bool)>> {
        let refusal =
            || Failure::new(FailureKind::WrongState, format!("stdin of exec {} is not open", self.id));
        let mut stdin = tokio::select! {
            stdin = self.stdin.lock() => stdin,
            () = reader.gone() => return Err(super::wire::Lost),
        };
        let mut written = 0;
        if stdin.is_none() || self.is_ended() {
            return Ok(Err((refusal(), true)));
        }
        while let Some(bytes) = reader.body().await? {
            let Some(pipe) = stdin.as_mut() else { return Ok(Err((refusal(), true))) };
            let is_written = tokio::select! {
                result = tokio::io::AsyncWriteExt::write_all(pipe, &bytes) => result.is_ok(),
                // What the program does not read any more is not written any more.
                () = self.until(|state| state.ended.is_some()) => false,
                () = reader.gone() => return Err(super::wire::Lost),
            };
            if !is_written {
                *stdin = None;
                return Ok(Err((refusal(), true)));
            }
            written += bytes.len() as u64;
        }
        if close && self.has_terminal {
            // A terminal has no end but the character for it.
            let end = [super::shell::END_OF_FILE];
            if let Some(pipe) = stdin.as_mut() {
                tokio::io::AsyncWriteExt::write_all(pipe, &end).await.unwrap_or_default();
            }
        } else if close {
            *stdin = None;
        }
        Ok(Ok(Response::Written { bytes: written }))
    }

    /// Serves an attach until the connection ends, the exec is forgotten or another attach takes over. `Ok(Err)` is a
    /// refusal after which the connection can go on.
    pub(super) async fn attach(
        &self,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
        from: u64,
        forget: impl Fn(),
    ) -> Result<std::result::Result<(), Failure>> {
        let (acked, last) = {
            let state = self.state.borrow();
            (state.acked, state.last())
        };
        if from == 0 || from > last + 1 {
            let message = format!("exec {} has no event {from}; the next is {}", self.id, last + 1);
            return Ok(Err(Failure::new(FailureKind::InvalidRequest, message)));
        }
        let next = from.max(acked + 1);
        let mut mine = 0;
        self.state.send_modify(|state| {
            state.attach += 1;
            state.is_attached = true;
            mine = state.attach;
        });
        let served = async {
            writer.answer(Ok(Response::Attached { next })).await?;
            tokio::select! {
                sent = self.send_events(writer, next) => sent,
                taken = self.take_acks(reader, forget) => taken,
                () = self.until(|state| state.attach != mine) => Ok(()),
            }
        }
        .await;
        self.state.send_modify(|state| state.is_attached &= state.attach != mine);
        served.map(Ok)
    }

    async fn send_events(&self, writer: &mut FrameWriter, mut next: u64) -> Result<()> {
        loop {
            let mut frame = None;
            self.until(|state| {
                // What was acknowledged while it waited to be sent is skipped.
                next = next.max(state.acked + 1);
                frame = state.event(next).map(|event| event.to_frame(next));
                frame.is_some()
            })
            .await;
            if let Some(frame) = frame {
                writer.send(&frame?).await?;
                next += 1;
            }
        }
    }

    async fn take_acks(&self, reader: &mut FrameReader, forget: impl Fn()) -> Result<()> {
        while let Some(frame) = reader.next().await? {
            let number = Frame::acked(&frame)?;
            self.state.send_modify(|state| state.ack(number));
            if self.state.borrow().is_taken() {
                forget();
                return Ok(());
            }
        }
        Ok(())
    }
}
