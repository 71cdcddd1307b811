//! The log of a sandbox: the ledgers of all its execs in the order of time.
//!
//! An exec is opened when the merge reaches the time of its start and let go at its end, so only those that ran at the
//! same time are open at once, each with two ledger entries in memory. What is behind a cursor or a time is found by
//! reading. Of an exec that ended before it, only the last entry is looked at, because what it left in the background
//! may have printed since; one that has later entries is read from its first. So a page costs an open file for every
//! exec of the sandbox, and a pass over those that are not over yet.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use bytes::Bytes;
use engine::{Entry, EntryBody, ExecView, Follow, OutputStream, SandboxRef};
use futures_util::{StreamExt, stream::BoxStream};
use sandbox::{ErrorKind, ExecId, Result};

use super::cursor::{Cursor, LogPosition, Rank};
use crate::mcp::{
    Call,
    tools::sessions::text::{Edge, n_continuing},
};

/// The longest line; longer ones come in parts.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// A character has at most three bytes behind its first.
const MAX_AHEAD: usize = 3;
/// A command is shown up to this length where its start is told.
const MAX_COMMAND_CHARS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Stdout,
    Stderr,
    /// Output to a terminal, where stdout and stderr are one.
    Output,
    /// Starts and ends.
    System,
}

/// One line; or part of one, where it was printed in pieces or is very long.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) position: LogPosition,
    pub(super) origin: Origin,
    pub(super) text: String,
}

/// Reads lines in order.
pub(super) struct Merge<'a> {
    call: &'a Call,
    which: SandboxRef,
    floor_ms: i64,
    /// Oldest first.
    unopened: VecDeque<Source>,
    open: Vec<Source>,
    /// The next line of each open one: its position, and the index of its source.
    heads: BinaryHeap<Reverse<(LogPosition, usize)>>,
    /// Pieces of ledgers that are gone or cannot be read.
    pub(super) warnings: Vec<String>,
}

impl<'a> Merge<'a> {
    /// Begins behind `cursor`; `span` limits how many entries at the end of each exec are read. Lines before `floor_ms`
    /// are not needed, though some may come.
    pub(super) fn new(
        call: &'a Call,
        which: SandboxRef,
        execs: &[ExecView],
        cursor: &Cursor,
        floor_ms: Option<i64>,
        span: Option<u64>,
    ) -> Self {
        let floor_ms = floor_ms.max(cursor.position().map(|position| position.at_ms)).unwrap_or(i64::MIN);
        let mut sources: Vec<_> =
            execs.iter().map(|view| Source::new(view, cursor.position(), span)).collect();
        sources.sort_by(|one, other| one.rank.cmp(&other.rank));
        Self {
            call,
            which,
            floor_ms,
            unopened: sources.into(),
            open: Vec::new(),
            heads: BinaryHeap::new(),
            warnings: Vec::new(),
        }
    }

    /// The next line; `None` when there is none now.
    pub(super) async fn next(&mut self) -> Result<Option<Line>> {
        loop {
            let reached = self.heads.peek().map(|Reverse((position, _))| position.at_ms);
            let is_reached = |source: &Source| reached.is_none_or(|at_ms| source.rank.created_ms <= at_ms);
            if self.unopened.front().is_some_and(is_reached)
                && let Some(source) = self.unopened.pop_front()
            {
                self.open(source).await?;
                continue;
            }
            let Some(Reverse((_, index))) = self.heads.pop() else { return Ok(None) };
            let line = self.open[index].lines.pop_front();
            self.refill(index).await;
            // It has one: that is why it stood among the heads.
            if line.is_some() {
                return Ok(line);
            }
        }
    }

    async fn open(&mut self, mut source: Source) -> Result<()> {
        if source.ended_ms.is_some_and(|ended_ms| ended_ms < self.floor_ms)
            && last_at_ms(self.call, &self.which, &source.rank.id, source.last_entry)
                .await?
                .is_none_or(|last| last < self.floor_ms)
        {
            return Ok(());
        }
        source.items = entries(self.call, &self.which, &source.rank.id, source.from).await?;
        self.open.push(source);
        self.refill(self.open.len() - 1).await;
        Ok(())
    }

    /// Reads on in one source until it has a line, or is at its end.
    async fn refill(&mut self, index: usize) {
        let source = &mut self.open[index];
        while source.lines.is_empty() && source.read_entry(&mut self.warnings).await {}
        match source.lines.front() {
            Some(line) => self.heads.push(Reverse((line.position.clone(), index))),
            // Its file is closed; the position in the list stays, so that indices do.
            None => source.items = None,
        }
    }
}

/// `None` when its log was trimmed away since it was listed.
async fn entries(call: &Call, which: &SandboxRef, exec: &ExecId, from: u64) -> Result<Option<Items>> {
    match call.engine().exec_entries(&call.who, which, exec, from, Follow::No).await {
        Ok(items) => Ok(Some(items)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn last_at_ms(call: &Call, which: &SandboxRef, exec: &ExecId, number: u64) -> Result<Option<i64>> {
    let Some(mut items) = entries(call, which, exec, number.max(1)).await? else { return Ok(None) };
    let mut last = None;
    while let Some(item) = items.next().await {
        if let Ok(entry) = item {
            last = Some(entry.at_ms);
        }
    }
    Ok(last)
}

type Items = BoxStream<'static, Result<Entry>>;

/// One exec.
struct Source {
    rank: Rank,
    command: String,
    has_terminal: bool,
    ended_ms: Option<i64>,
    last_entry: u64,
    from: u64,
    /// Entries before this were read by whoever holds the cursor.
    consumed: Option<LogPosition>,
    items: Option<Items>,
    ahead: VecDeque<Entry>,
    lines: VecDeque<Line>,
    stdout: Option<Edge>,
    stderr: Option<Edge>,
}

impl Source {
    fn new(view: &ExecView, consumed: Option<&LogPosition>, span: Option<u64>) -> Self {
        let rank = Rank { created_ms: view.created_at.as_millisecond(), id: view.id.clone() };
        let mut from = span.map_or(1, |span| view.last_entry.saturating_sub(span) + 1);
        if let Some(position) = consumed.filter(|position| position.exec.id == rank.id) {
            from = from.max(position.number);
        }
        let edge = (from == 1).then(Edge::default);
        Self {
            rank,
            command: view.command.join(" ").chars().take(MAX_COMMAND_CHARS).collect(),
            has_terminal: view.terminal,
            ended_ms: view.ended_at.map(|at| at.as_millisecond()),
            last_entry: view.last_entry,
            from,
            consumed: consumed.cloned(),
            items: None,
            ahead: VecDeque::new(),
            lines: VecDeque::new(),
            stdout: edge.clone(),
            stderr: edge,
        }
    }

    /// Reads one entry and cuts it to lines; `false` at the end.
    async fn read_entry(&mut self, warnings: &mut Vec<String>) -> bool {
        let entry = match self.ahead.pop_front() {
            Some(entry) => Some(entry),
            None => self.pull(warnings).await,
        };
        let Some(entry) = entry else { return false };
        // As far as the rest of a character that begins in this one can reach.
        let is_short = |next: &Entry| next.output().is_some_and(|(_, bytes)| bytes.len() < MAX_AHEAD);
        while self.ahead.len() < MAX_AHEAD && self.ahead.iter().all(is_short) {
            let Some(next) = self.pull(warnings).await else { break };
            self.ahead.push_back(next);
        }
        if let Some((stream, bytes)) = entry.output() {
            self.cut(&entry, stream, bytes);
            return true;
        }
        let text = match &entry.body {
            EntryBody::Started { .. } => format!("started: {}\n", self.command),
            EntryBody::Exited(Some(exit)) => format!("{}\n", exit.outcome),
            _ => "ended\n".to_owned(),
        };
        self.push(&entry, Origin::System, 0, text);
        true
    }

    async fn pull(&mut self, warnings: &mut Vec<String>) -> Option<Entry> {
        let items = self.items.as_mut()?;
        loop {
            tokio::task::consume_budget().await;
            match items.next().await? {
                Ok(entry) => match entry.body {
                    EntryBody::Stdin(_) | EntryBody::Rich(_) | EntryBody::Closed => {}
                    EntryBody::Trimmed { .. } => {
                        warnings.push(format!(
                            "The beginning of {} was dropped: the log was full.",
                            self.rank.id
                        ));
                    }
                    _ => return Some(entry),
                },
                Err(error) => {
                    warnings.push(format!("Could not read part of {}: {}.", self.rank.id, error));
                }
            }
        }
    }

    fn cut(&mut self, entry: &Entry, stream: OutputStream, printed: &Bytes) {
        let is_stdout = stream == OutputStream::Stdout;
        let edge = if is_stdout { &mut self.stdout } else { &mut self.stderr };
        let n_claimed = edge.as_ref().map_or_else(|| n_continuing(printed), |edge| edge.n_claimed(printed));
        let edge = edge.get_or_insert_default();
        edge.push(printed);
        let (mut lent, mut reach, mut may_come) = (Vec::new(), edge.clone(), self.ended_ms.is_none());
        for next in &self.ahead {
            let of_stream = next.output().filter(|(other, _)| *other == stream);
            let bytes = of_stream.map_or(&[][..], |(_, bytes)| bytes);
            let n = reach.n_claimed(bytes);
            lent.extend_from_slice(&bytes[..n]);
            reach.push(&bytes[..n]);
            if of_stream.is_none() || n < bytes.len() {
                may_come = false;
                break;
            }
        }
        // The rest of the last character is still to come: all of it is for the next reader.
        let is_left = may_come && reach.n_missing() > 0;
        let n_left = if is_left { edge.n_open().min(printed.len()) } else { 0 };
        let data = printed.slice(..printed.len() - n_left);
        let origin = match (self.has_terminal, is_stdout) {
            (true, _) => Origin::Output,
            (false, true) => Origin::Stdout,
            (false, false) => Origin::Stderr,
        };
        let mut end = n_claimed.max(self.n_consumed(entry)).min(data.len());
        while let Some(line) = next_line(&data[end..]) {
            end += line.len();
            let text = if end == data.len() && !is_left && !lent.is_empty() {
                String::from_utf8_lossy(&[line, &lent].concat()).into_owned()
            } else {
                String::from_utf8_lossy(line).into_owned()
            };
            self.push(entry, origin, end as u64, text);
        }
    }

    /// Bytes of this entry that the holder of the cursor has.
    fn n_consumed(&self, entry: &Entry) -> usize {
        let own = self.consumed.as_ref().filter(|position| position.exec.id == self.rank.id);
        own.filter(|position| position.number == entry.number)
            .map_or(0, |position| usize::try_from(position.end).unwrap_or(usize::MAX))
    }

    fn push(&mut self, entry: &Entry, origin: Origin, end: u64, text: String) {
        let position = LogPosition { at_ms: entry.at_ms, exec: self.rank.clone(), number: entry.number, end };
        let is_consumed = self.consumed.as_ref().is_some_and(|consumed| {
            if consumed.exec.id == position.exec.id {
                // In its own exec the numbers tell: clocks may be set back.
                (position.number, position.end) <= (consumed.number, consumed.end)
            } else {
                position <= *consumed
            }
        });
        if !is_consumed {
            self.lines.push_back(Line { position, origin, text });
        }
    }
}

/// The first line with its end; a very long one in parts, on character borders.
fn next_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().take(MAX_LINE_BYTES).position(|byte| *byte == b'\n').map(|position| position + 1);
    let line = match end {
        Some(end) => &bytes[..end],
        None if bytes.len() > MAX_LINE_BYTES => {
            crate::mcp::output::until_character_border(&bytes[..MAX_LINE_BYTES])
        }
        None => bytes,
    };
    (!line.is_empty()).then_some(line)
}
