//! Following a command to its end: one pass over its ledger gives the output, the outcome and the time it took.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use engine::{Entry, EntryBody, Follow, SignalScope};
use futures_util::{FutureExt, StreamExt, future::OptionFuture};
use sandbox::{Error, ErrorKind, ExecOutcome, Result};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::launch::{Launched, byte_stream};
use crate::{
    links::ChangedFiles,
    mcp::{call::Call, envelope::Failure, output::Capture},
};

pub(crate) const SIGKILL: i32 = 9;
/// The guest ends a command whose time is up. Where it does not, being frozen or gone, we do not wait much longer.
const OVERDUE_AFTER: Duration = Duration::from_secs(10);
/// How long the end of a command that was just killed is waited for.
const KILL_PATIENCE: Duration = Duration::from_secs(2);
/// How often a caller who asked for it hears that the command still runs.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// The record of an end comes right after its ledger entry.
const RECORD_PATIENCE: Duration = Duration::from_secs(10);

/// Why following stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Ended,
    /// The caller went away; the command was killed.
    Cancelled,
    /// Time is up and nobody tells how it ended.
    Overdue,
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) end: End,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
    pub(crate) outcome: Option<ExecOutcome>,
    pub(crate) warnings: Vec<String>,
    pub(crate) files: ChangedFiles,
    started_ms: Option<i64>,
    ended_ms: Option<i64>,
}

impl Followed {
    fn new(max_bytes: usize) -> Self {
        Self {
            end: End::Ended,
            stdout: Capture::new(max_bytes),
            stderr: Capture::new(max_bytes),
            outcome: None,
            warnings: Vec::new(),
            files: ChangedFiles::default(),
            started_ms: None,
            ended_ms: None,
        }
    }

    fn take(&mut self, entry: Result<Entry>) {
        let Entry { number, at_ms, body } = match entry {
            Ok(entry) => entry,
            Err(error) => {
                return self.warnings.push(format!("part of the output cannot be read: {error}"));
            }
        };
        match body {
            EntryBody::Started { .. } => self.started_ms = Some(at_ms),
            EntryBody::Stdout(bytes) => self.stdout.push(number, &bytes),
            EntryBody::Stderr(bytes) => self.stderr.push(number, &bytes),
            EntryBody::Exited(exit) => {
                self.ended_ms = Some(at_ms);
                self.outcome = exit.map(|exit| exit.outcome);
            }
            EntryBody::Rich(bytes) => self.files.push(&bytes),
            EntryBody::Stdin(_) | EntryBody::Closed => {}
            EntryBody::Trimmed { from } => {
                let n = number - from + 1;
                self.warnings.push(format!("{n} pieces of output are gone: the sandbox's log was full."));
            }
        }
    }

    pub(crate) fn duration_ms(&self) -> u64 {
        let span = self.started_ms.zip(self.ended_ms).map(|(from, to)| to - from);
        span.and_then(|span| u64::try_from(span).ok()).unwrap_or(0)
    }

    fn n_bytes(&self) -> usize {
        self.stdout.n_bytes() + self.stderr.n_bytes()
    }
}

/// Follows a command to its end, feeding it meanwhile. A cancelled call kills it, with all its group.
pub(crate) async fn to_the_end(
    call: &Call,
    launched: &Launched,
    stdin: Option<Bytes>,
    max_bytes: usize,
    limit: Option<Duration>,
) -> Result<Followed, Failure> {
    let (engine, who, which, exec) = (call.engine(), &call.who, &launched.which, &launched.exec.id);
    let mut items = engine.exec_entries(who, which, exec, 1, Follow::Yes).await?;
    let mut followed = Followed::new(max_bytes);
    let feeding = stdin.map(|bytes| engine.exec_stdin(who, which, exec, byte_stream(bytes), true));
    let mut feeding = pin!(OptionFuture::from(feeding).fuse());
    let mut cancelled = pin!(call.cancelled.cancelled().fuse());
    let deadline = limit.map(|limit| sleep(limit.saturating_add(OVERDUE_AFTER)));
    let mut deadline = pin!(OptionFuture::from(deadline));
    let mut killed = pin!(OptionFuture::from(None));
    let begun = Instant::now();
    let mut ticks = interval_at(begun + PROGRESS_EVERY, PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let wants_progress = call.progress.is_wanted();
    loop {
        tokio::select! {
            // The command's output comes last, so that one that never stops printing can still be stopped.
            biased;
            () = &mut cancelled => {
                followed.end = End::Cancelled;
                let signal = engine.exec_signal(&call.ender(), which, exec, SIGKILL, SignalScope::Group).await;
                note_failed_kill(signal);
                killed.set(OptionFuture::from(Some(sleep(KILL_PATIENCE))));
            }
            Some(()) = &mut killed => break,
            Some(()) = &mut deadline => {
                followed.end = End::Overdue;
                break;
            }
            _ = ticks.tick(), if wants_progress => tell(call, &followed, begun, limit).await,
            Some(fed) = &mut feeding => followed.warnings.extend(unfed(fed)),
            item = items.next() => match item {
                Some(item) => {
                    followed.take(item);
                    tokio::task::consume_budget().await;
                }
                None => break,
            },
        }
    }
    if followed.outcome.is_none() && followed.end == End::Ended {
        followed.outcome = Some(recorded_outcome(call, launched).await?);
    }
    Ok(followed)
}

/// For a log without an end: damaged, trimmed, or cut short because the daemon closes.
async fn recorded_outcome(call: &Call, launched: &Launched) -> Result<ExecOutcome> {
    let (which, exec) = (&launched.which, &launched.exec.id);
    let view = call.engine().wait_exec(&call.who, which, exec, Some(RECORD_PATIENCE)).await?;
    view.outcome.ok_or_else(|| {
        Error::new(ErrorKind::Unavailable, format!("the log of exec {exec} ended before the command"))
            .with_hint("Call sandbox_exec_poll with its execSessionId to see how it goes on.")
    })
}

fn note_failed_kill(signal: Result<()>) {
    match signal {
        Ok(()) => {}
        // It was faster.
        Err(error) if error.kind() == ErrorKind::WrongState => {}
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a cancelled command was not killed");
        }
    }
}

/// What to say about stdin that the command did not take.
fn unfed(fed: Result<u64>) -> Option<String> {
    match fed {
        Ok(_) => None,
        // A command need not read all that it is given, and may be gone before we write.
        Err(error) if matches!(error.kind(), ErrorKind::WrongState | ErrorKind::NotFound) => None,
        Err(error) => Some(format!("stdin was not written in full: {error}")),
    }
}

async fn tell(call: &Call, followed: &Followed, begun: Instant, limit: Option<Duration>) {
    let seconds = begun.elapsed().as_secs_f64();
    let message = format!("running for {seconds:.0} s, {} bytes printed", followed.n_bytes());
    call.progress.tell(seconds, limit.map(|limit| limit.as_secs_f64()), message).await;
}
