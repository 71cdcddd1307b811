//! Follows a command or a cell to its end: one pass over its ledger, for a waiting caller.

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::{self, BoxStream},
};
use guest_protocol::SignalScope;
use sandbox::{ContextName, Error, ErrorKind, ExecId, ExecOutcome, Result, SandboxState};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    ByteStream, Engine, Entry, EntryBody, ExecView, Follow, Principal, SandboxRef, outcome::SIGKILL,
    request_hash,
};

const SIGINT: i32 = 2;
/// The guest ends an exec whose time is up. If the guest is frozen or gone, a follower waits this much longer.
const OVERDUE_AFTER: Duration = Duration::from_secs(10);
/// How long a follower waits for the end of a command that was just killed.
const KILL_PATIENCE: Duration = Duration::from_secs(2);
/// The same for an interrupted cell. The guest kills an unresponsive interpreter sooner than this.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(6);
/// The record of an end is written right after its ledger entry.
pub const RECORD_PATIENCE: Duration = Duration::from_secs(10);

/// How an exec is followed.
#[derive(Debug, Default)]
pub struct RunOptions {
    /// Written to stdin, which is closed then. If an earlier request with the same id has begun to write, nothing is
    /// written again.
    pub stdin: Option<Bytes>,
    /// Ends the exec: a command is killed with its whole group, a cell is interrupted, so that it keeps its variables
    /// if it can.
    pub cancelled: Option<CancellationToken>,
    /// The exec's time limit. If its end is not reported for some time after that, the run is overdue.
    pub limit: Option<Duration>,
    /// The follower leaves after this time. The exec continues.
    pub leave_after: Option<Duration>,
}

/// Why following stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    Ended(ExecOutcome),
    /// The exec was ended by [`RunOptions::cancelled`]; its outcome, if that came in time.
    Cancelled(Option<ExecOutcome>),
    /// The exec is past its time limit, and its sandbox does not report its end.
    Overdue,
    /// The exec still runs.
    Left,
}

impl RunEnd {
    pub fn outcome(&self) -> Option<&ExecOutcome> {
        match self {
            Self::Ended(outcome) => Some(outcome),
            Self::Cancelled(outcome) => outcome.as_ref(),
            Self::Overdue | Self::Left => None,
        }
    }
}

/// A future awaited beside the output; pending if there is nothing to wait for.
type Waiting<T> = OptionFuture<BoxFuture<'static, T>>;

/// A followed exec. [`Run::next`] returns its entries, [`Run::end`] its end.
pub struct Run {
    exec: Followed,
    entries: BoxStream<'static, Result<Entry>>,
    feeding: Waiting<Result<u64>>,
    cancelled: Waiting<()>,
    /// The exec was told to end, and has had its time for that.
    ending: Waiting<()>,
    overdue: Waiting<()>,
    leaving: Waiting<()>,
    /// The last one seen.
    outcome: Option<ExecOutcome>,
    stdin_error: Option<Error>,
    state: State,
}

/// The exec and its follower.
#[derive(Clone)]
struct Followed {
    engine: Engine,
    who: Principal,
    which: SandboxRef,
    id: ExecId,
    is_cell: bool,
    /// The context that a cell runs in.
    context: Option<ContextName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Going,
    /// The caller has cancelled; the exec's end is pending.
    Cancelling,
    Ended,
    Cancelled,
    Overdue,
    Left,
}

impl Engine {
    /// Follows an exec from its first entry to its end.
    #[crate::boxed]
    pub async fn run_to_end(&self, who: &Principal, exec: &ExecView, options: RunOptions) -> Result<Run> {
        let RunOptions { stdin, cancelled, limit, leave_after } = options;
        let followed = Followed {
            engine: self.clone(),
            who: who.clone(),
            which: SandboxRef::from(&exec.sandbox),
            id: exec.id.clone(),
            is_cell: exec.cell.is_some(),
            context: exec.cell.as_ref().and_then(|cell| cell.context.clone()),
        };
        let which = &followed.which;
        let entries = self.exec_entries(who, which, &exec.id, 1, Follow::Yes).await?;
        let stdin = match stdin {
            Some(bytes) if self.is_fed(who, exec, &bytes).await? => None,
            stdin => stdin,
        };
        Ok(Run {
            entries,
            feeding: stdin.map(|bytes| followed.clone().feed(bytes).boxed()).into(),
            cancelled: cancelled.map(|token| token.cancelled_owned().boxed()).into(),
            ending: None.into(),
            overdue: limit.map(|limit| followed.clone().overdue(limit).boxed()).into(),
            leaving: leave_after.map(|time| sleep(time).boxed()).into(),
            exec: followed,
            outcome: None,
            stdin_error: None,
            state: State::Going,
        })
    }

    /// Whether the exec has got its input from an earlier call of the same request, so that it must not be written
    /// again. Other input makes this another request, which is refused.
    #[crate::boxed]
    pub async fn is_fed(&self, who: &Principal, exec: &ExecView, input: &[u8]) -> Result<bool> {
        let Some(request) = &exec.request_id else { return Ok(false) };
        let which = SandboxRef::from(&exec.sandbox);
        let mut entries = self.exec_entries(who, &which, &exec.id, 1, Follow::No).await?;
        let (mut rest, mut is_fed) = (input, false);
        while let Some(entry) = entries.next().await {
            match entry {
                Ok(Entry { body: EntryBody::Stdin(part), .. }) => {
                    let n_same = part.len().min(rest.len());
                    if part[..n_same] != rest[..n_same] {
                        return Err(request_hash::taken(request));
                    }
                    (rest, is_fed) = (&rest[n_same..], true);
                }
                // A trimmed log is one of much output, so an earlier call has fed the exec. What that call wrote may be
                // gone from the log, and later input must not be compared in its place.
                Ok(Entry { body: EntryBody::Trimmed { .. }, .. }) => return Ok(true),
                Ok(_) => {}
                // Part of the log is gone, so there is nothing to compare with.
                Err(_) => rest = &[],
            }
            if is_fed && rest.is_empty() {
                break;
            }
        }
        Ok(is_fed)
    }
}

impl Run {
    /// The next entry; an error if one is missing, and the rest follows. `None` when following has stopped. Safe to
    /// drop and call again.
    #[crate::boxed]
    pub async fn next(&mut self) -> Option<Result<Entry>> {
        while matches!(self.state, State::Going | State::Cancelling) {
            tokio::select! {
                // Output comes last, so that an exec that never stops printing can still be stopped.
                biased;
                Some(()) = &mut self.cancelled => {
                    self.cancelled = None.into();
                    self.state = State::Cancelling;
                    self.ending = Some(self.exec.clone().end().boxed()).into();
                }
                Some(()) = &mut self.ending => self.state = State::Cancelled,
                Some(()) = &mut self.overdue => self.state = State::Overdue,
                Some(()) = &mut self.leaving => self.state = State::Left,
                Some(fed) = &mut self.feeding => {
                    self.feeding = None.into();
                    self.stdin_error = fed.err().filter(|error| !is_its_own_matter(error));
                }
                entry = self.entries.next() => {
                    let Some(entry) = entry else {
                        self.state = if self.state == State::Going { State::Ended } else { State::Cancelled };
                        continue;
                    };
                    if let Some(outcome) = entry.as_ref().ok().and_then(Entry::outcome) {
                        self.outcome = Some(outcome.clone());
                    }
                    tokio::task::consume_budget().await;
                    return Some(entry);
                }
            }
        }
        None
    }

    /// Why stdin was not written in full. It is not an error if the exec ended first, or did not want all of it.
    pub fn stdin_error(&self) -> Option<&Error> {
        self.stdin_error.as_ref()
    }

    /// How it ended, after everything that [`Run::next`] has not returned.
    #[crate::boxed]
    pub async fn end(mut self) -> Result<RunEnd> {
        while self.next().await.is_some() {}
        Ok(match self.state {
            State::Overdue => RunEnd::Overdue,
            State::Left => RunEnd::Left,
            State::Cancelling | State::Cancelled => RunEnd::Cancelled(self.outcome),
            State::Going | State::Ended => RunEnd::Ended(match self.outcome {
                Some(outcome) => outcome,
                None => self.exec.recorded_outcome().await?,
            }),
        })
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("exec", &self.exec.id).field("state", &self.state).finish_non_exhaustive()
    }
}

impl Followed {
    async fn feed(self, bytes: Bytes) -> Result<u64> {
        let bytes: ByteStream = stream::iter((!bytes.is_empty()).then_some(Ok(bytes))).boxed();
        self.engine.exec_stdin(&self.who, &self.which, &self.id, bytes, true).await
    }

    /// Tells the exec to end, and gives it time for that.
    async fn end(self) {
        let (signal, patience) =
            if self.is_cell { (SIGINT, INTERRUPT_PATIENCE) } else { (SIGKILL, KILL_PATIENCE) };
        // A revoked key can do nothing any more, but its running execs must end.
        let ender = Principal { key: None, session: None, ..self.who };
        let sent = self.engine.exec_signal(&ender, &self.which, &self.id, signal, SignalScope::Group).await;
        match sent {
            Err(error) if error.kind() != ErrorKind::WrongState => {
                tracing::warn!(exec = %self.id, error = &error as &dyn std::error::Error, "a cancelled exec was not ended");
            }
            // Sent, or it has already ended.
            _ => {}
        }
        sleep(patience).await;
    }

    /// Returns when the exec is overdue. The time of a cell begins with its turn.
    async fn overdue(self, limit: Duration) {
        loop {
            sleep(limit.saturating_add(OVERDUE_AFTER)).await;
            if !self.waits_for_turn().await {
                return;
            }
        }
    }

    /// Whether other cells of its context come first.
    async fn waits_for_turn(&self) -> bool {
        let Some(context) = &self.context else { return false };
        let view = self.engine.sandbox(&self.who, &self.which).await;
        let contexts = self.engine.contexts(&self.who, &self.which).await.unwrap_or_default();
        view.is_ok_and(|view| view.state == SandboxState::Running)
            && contexts.iter().any(|known| known.name == context.as_str() && known.queued > 0)
    }

    /// For a ledger without an end: damaged, trimmed, or cut short because the daemon closes.
    async fn recorded_outcome(&self) -> Result<ExecOutcome> {
        let exec = &self.id;
        let view = self.engine.wait_exec(&self.who, &self.which, exec, Some(RECORD_PATIENCE)).await?;
        view.outcome.ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, format!("the log of exec {exec} ended before the exec did"))
                .with_hint("It may still be running; read its log again.")
        })
    }
}

/// A command need not read all of its input, and may end before it gets any.
fn is_its_own_matter(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WrongState | ErrorKind::NotFound)
}
