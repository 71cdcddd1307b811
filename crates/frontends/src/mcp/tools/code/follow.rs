//! Following a cell to its end. A caller who cancels interrupts it, so that its variables stay where they can.

use std::{pin::pin, time::Duration};

use engine::{Entry, Follow, SignalScope};
use futures_util::{FutureExt, StreamExt, future::OptionFuture};
use sandbox::{Error, ErrorKind, ExecOutcome, Result, SandboxState};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::{
    code::{Cell, Collected, PictureCaps},
    mcp::{
        call::Call,
        envelope::Failure,
        output::from_character_border,
        tools::exec::{End, Launched},
    },
};

pub(super) const SIGINT: i32 = 2;
/// The guest stops a cell whose time is up, and kills its interpreter a little later. Where it does neither, being frozen
/// or gone, we do not wait much longer.
const OVERDUE_AFTER: Duration = Duration::from_secs(10);
/// How long the end of a cell that was just interrupted is waited for; the guest kills what does not react before.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(6);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Newest output that one word of progress carries.
const MAX_NEWS_BYTES: usize = 2048;
/// The record of an end comes right after its ledger entry.
const RECORD_PATIENCE: Duration = Duration::from_secs(10);
/// Pictures in one answer. Larger ones are read at their address.
const PICTURES: PictureCaps = PictureCaps { each_bytes: 1024 * 1024, all_bytes: 4 * 1024 * 1024 };

/// Follows a cell to its end.
pub(super) async fn to_the_end(
    call: &Call,
    launched: &Launched,
    cell: Cell,
    max_bytes: usize,
    limit: Option<Duration>,
) -> Result<(Collected, End), Failure> {
    let (engine, who, which, exec) = (call.engine(), &call.who, &launched.which, &launched.exec.id);
    let mut items = engine.exec_entries(who, which, exec, 1, Follow::Yes).await?;
    let mut collected = Collected::new(cell.clone(), max_bytes, PICTURES);
    let mut end = End::Ended;
    let mut cancelled = pin!(call.cancelled.cancelled().fuse());
    let patience = limit.map(|limit| limit.saturating_add(OVERDUE_AFTER));
    let mut deadline = pin!(OptionFuture::from(patience.map(sleep)));
    let mut interrupted = pin!(OptionFuture::from(None));
    let mut news = News::new(call, limit);
    let mut ticks = interval_at(news.begun + PROGRESS_EVERY, PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Output comes last, so that code that never stops printing can still be stopped.
            biased;
            () = &mut cancelled => {
                end = End::Cancelled;
                note_failed(engine.exec_signal(&call.ender(), which, exec, SIGINT, SignalScope::Group).await);
                interrupted.set(OptionFuture::from(Some(sleep(INTERRUPT_PATIENCE))));
            }
            Some(()) = &mut interrupted => break,
            Some(()) = &mut deadline => {
                if !waits_for_turn(call, launched, &cell).await {
                    end = End::Overdue;
                    break;
                }
                deadline.set(OptionFuture::from(patience.map(sleep)));
            }
            _ = ticks.tick(), if news.is_wanted => news.tell(call, collected.n_bytes()).await,
            item = items.next() => match item {
                Some(item) => {
                    news.take(&item);
                    collected.take(&item);
                    tokio::task::consume_budget().await;
                }
                None => break,
            },
        }
    }
    if collected.outcome().is_none() && end == End::Ended {
        collected.set_outcome(recorded_outcome(call, launched).await?);
    }
    Ok((collected, end))
}

/// Whether other cells of its context come first: the time of a cell begins with the cell.
async fn waits_for_turn(call: &Call, launched: &Launched, cell: &Cell) -> bool {
    let Some(context) = &cell.context else { return false };
    let (engine, who, which) = (call.engine(), &call.who, &launched.which);
    let is_running = engine.sandbox(who, which).await.is_ok_and(|view| view.state == SandboxState::Running);
    let contexts = engine.contexts(who, which).await.unwrap_or_default();
    is_running && contexts.iter().any(|known| known.name == context.as_str() && known.queued > 0)
}

/// For a log without an end: damaged, trimmed, or cut short because the daemon closes.
async fn recorded_outcome(call: &Call, launched: &Launched) -> Result<ExecOutcome> {
    let (which, exec) = (&launched.which, &launched.exec.id);
    let view = call.engine().wait_exec(&call.who, which, exec, Some(RECORD_PATIENCE)).await?;
    view.outcome.ok_or_else(|| {
        Error::new(ErrorKind::Unavailable, format!("the log of exec {exec} ended before the code"))
            .with_hint("Call sandbox_exec_poll with its execSessionId to see how it goes on.")
    })
}

fn note_failed(signal: Result<()>) {
    match signal {
        Ok(()) => {}
        // It was faster.
        Err(error) if error.kind() == ErrorKind::WrongState => {}
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "cancelled code was not interrupted");
        }
    }
}

/// What a caller who waits has not heard yet.
struct News {
    is_wanted: bool,
    begun: Instant,
    limit: Option<Duration>,
    fresh: Vec<u8>,
}

impl News {
    fn new(call: &Call, limit: Option<Duration>) -> Self {
        Self { is_wanted: call.progress.is_wanted(), begun: Instant::now(), limit, fresh: Vec::new() }
    }

    fn take(&mut self, entry: &Result<Entry>) {
        let printed = entry.as_ref().ok().and_then(Entry::output).filter(|_| self.is_wanted);
        let Some((_, bytes)) = printed else { return };
        self.fresh.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_NEWS_BYTES)..]);
        let excess = self.fresh.len().saturating_sub(MAX_NEWS_BYTES);
        self.fresh.drain(..excess);
    }

    async fn tell(&mut self, call: &Call, n_bytes: usize) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let mut message = format!("running for {seconds:.0} s, {n_bytes} bytes printed");
        if !self.fresh.is_empty() {
            let fresh = std::mem::take(&mut self.fresh);
            message.push('\n');
            message.push_str(&String::from_utf8_lossy(from_character_border(&fresh)));
        }
        call.progress.tell(seconds, self.limit.map(|limit| limit.as_secs_f64()), message).await;
    }
}
