//! `sandbox_logs_read`, `sandbox_logs_stream`: what all commands of a sandbox printed, in the order of time.

mod cursor;
mod merge;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Duration};

use engine::{ExecView, Follow, SandboxRef};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use sandbox::{ErrorKind, ExecId, ExecState, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout_at};

use self::{
    cursor::Cursor,
    merge::{Line, Merge, Origin},
};
use crate::mcp::{
    Answer, Call, Failure, Tool, ToolResult, Truncated, output::until_character_border,
    tools::telling::while_waiting,
};

/// Entries in one answer.
const MAX_READ: usize = 10_000;
const MAX_STREAMED: u32 = 1000;
const DEFAULT_STREAMED: u32 = 100;
const MAX_FOLLOW: Duration = Duration::from_secs(600);
/// Ledger entries at the end of each exec that a tail looks at first; all are read only where these do not suffice.
const TAIL_SPAN: u64 = 1024;
/// Two commands that print at the same moment reach their ledgers within this time; only then is their order known.
const SETTLE: Duration = Duration::from_millis(20);

/// Characters that suggest that a text was meant as a regular expression.
const REGEX_SIGNS: [char; 8] = ['|', '*', '^', '$', '\\', '[', '+', '?'];

pub(super) fn tools() -> Vec<Tool> {
    tools! { Logs;
        "sandbox_logs_read", "Read sandbox logs", READS, read:
            "Read the output of commands in a sandbox, line by line, filtered by source, time, text and session.";
        "sandbox_logs_stream", "Follow sandbox logs", FOLLOWS, follow:
            "Read log lines after a cursor; follow waits for new ones up to followTimeoutMs.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadArguments {
    #[serde(flatten)]
    fields: LogFields,
    /// Only the last matching lines
    #[schemars(range(min = 1))]
    tail: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct StreamArguments {
    #[serde(flatten)]
    fields: LogFields,
    /// nextCursor of an earlier call
    from_cursor: Option<String>,
    follow: Option<bool>,
    /// Default 0: do not wait
    follow_timeout_ms: Option<u64>,
    /// Default 100
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LogFields {
    /// Sandbox
    name: String,
    /// ISO time, inclusive
    since: Option<String>,
    /// ISO time, exclusive
    until: Option<String>,
    /// Default stdout, stderr, output (of terminals); system: starts and ends
    sources: Option<Vec<LogSource>>,
    /// Plain text that a line contains
    grep: Option<String>,
    /// execSessionIds
    session_ids: Option<Vec<SessionId>>,
    /// For the whole answer
    #[schemars(range(min = 1))]
    max_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum LogSource {
    Stdout,
    Stderr,
    Output,
    System,
    All,
}

/// Ours are texts. Numbers, as microsandbox has them, are taken and name nothing here.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum SessionId {
    Exec(String),
    Number(u64),
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Logs {
    entries: Vec<LogEntry>,
    next_cursor: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LogEntry {
    timestamp: String,
    source: &'static str,
    session_id: String,
    text: String,
    cursor: String,
}

impl From<Line> for LogEntry {
    fn from(line: Line) -> Self {
        Self {
            timestamp: Timestamp::from_millisecond(line.position.at_ms).unwrap_or_default().to_string(),
            source: match line.origin {
                Origin::Stdout => "stdout",
                Origin::Stderr => "stderr",
                Origin::Output => "output",
                Origin::System => "system",
            },
            session_id: line.position.exec.id.to_string(),
            text: line.text,
            cursor: Cursor::Behind(line.position).to_string(),
        }
    }
}

/// The conditions for a line to be wanted. Looked at before anything is counted.
#[derive(Debug)]
struct Filter {
    since_ms: Option<i64>,
    until_ms: Option<i64>,
    sources: Vec<LogSource>,
    grep: Option<String>,
    sessions: Option<Vec<ExecId>>,
    warnings: Vec<String>,
}

impl Filter {
    fn new(fields: &mut LogFields) -> Result<Self, Failure> {
        let time = |name: &str, text: Option<String>| text.map(|text| time_of(name, &text)).transpose();
        let default = || vec![LogSource::Stdout, LogSource::Stderr, LogSource::Output];
        let sessions = fields.session_ids.take().filter(|ids| !ids.is_empty());
        let unknown = sessions.iter().flatten().filter_map(SessionId::unknown);
        let warnings = unknown
            .map(|id| format!("sessionIds: {id} is not an execSessionId and matches nothing."))
            .collect();
        Ok(Self {
            since_ms: time("since", fields.since.take())?,
            until_ms: time("until", fields.until.take())?,
            sources: fields.sources.take().filter(|sources| !sources.is_empty()).unwrap_or_else(default),
            grep: fields.grep.take().filter(|text| !text.is_empty()),
            sessions: sessions.map(|ids| ids.iter().filter_map(SessionId::exec).collect()),
            warnings,
        })
    }

    /// Returns a warning if nothing was found and the text looks like a regular expression.
    fn warning_of_nothing(&self) -> Option<String> {
        let text = self.grep.as_deref().filter(|text| text.contains(REGEX_SIGNS))?;
        let shown: String = text.chars().take(64).collect();
        Some(format!(
            "No line contains {shown:?}: grep is plain text here, not a regular expression. Give one word of it."
        ))
    }

    fn wants_exec(&self, view: &ExecView) -> bool {
        let is_named = self.sessions.as_ref().is_none_or(|ids| ids.contains(&view.id));
        let is_late = self.until_ms.is_some_and(|until| view.created_at.as_millisecond() >= until);
        is_named && !is_late
    }

    /// No line after this one is wanted.
    fn is_behind(&self, line: &Line) -> bool {
        self.until_ms.is_some_and(|until| line.position.at_ms >= until)
    }

    fn wants(&self, line: &Line) -> bool {
        let source = match line.origin {
            Origin::Stdout => LogSource::Stdout,
            Origin::Stderr => LogSource::Stderr,
            Origin::Output => LogSource::Output,
            Origin::System => LogSource::System,
        };
        (self.sources.contains(&source) || self.sources.contains(&LogSource::All))
            && self.since_ms.is_none_or(|since| line.position.at_ms >= since)
            && self.grep.as_ref().is_none_or(|text| line.text.contains(text.as_str()))
    }
}

impl SessionId {
    fn exec(&self) -> Option<ExecId> {
        match self {
            Self::Exec(id) => id.parse().ok(),
            Self::Number(_) => None,
        }
    }

    fn unknown(&self) -> Option<String> {
        match self {
            Self::Exec(id) if self.exec().is_none() => Some(id.chars().take(64).collect()),
            Self::Exec(_) => None,
            Self::Number(number) => Some(number.to_string()),
        }
    }
}

fn time_of(name: &str, text: &str) -> Result<i64, Failure> {
    let read = text.parse::<Timestamp>();
    read.map(Timestamp::as_millisecond).map_err(|error| {
        let shown: String = text.chars().take(64).collect();
        Failure::invalid(format!("{name}: invalid date: {shown:?}: {error}"))
            .with_hint("Write times as 2026-01-31T12:00:00Z.")
    })
}

/// The entries gathered for one answer.
struct Page {
    entries: VecDeque<LogEntry>,
    n_bytes: usize,
    max_bytes: usize,
    limit: usize,
    /// The position at which reading stopped, whether the line was wanted or not.
    cursor: Cursor,
    /// Older lines had to make room.
    has_let_go: bool,
    truncated: Vec<Truncated>,
    warnings: Vec<String>,
}

impl Page {
    fn new(limit: usize, max_bytes: usize, cursor: Cursor) -> Self {
        Self {
            entries: VecDeque::new(),
            n_bytes: 0,
            max_bytes,
            limit,
            cursor,
            has_let_go: false,
            truncated: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds a line behind the others; `false` when there is no room for it.
    fn push(&mut self, line: Line) -> bool {
        let is_first = self.entries.is_empty();
        if self.entries.len() >= self.limit || (!is_first && self.n_bytes + line.text.len() > self.max_bytes)
        {
            return false;
        }
        self.cursor = Cursor::Behind(line.position.clone());
        let line = self.cut(line);
        self.n_bytes += line.text.len();
        self.entries.push_back(line.into());
        true
    }

    /// Adds a line and lets go of the oldest ones until there is room for it.
    fn push_last(&mut self, line: Line) {
        self.cursor = Cursor::Behind(line.position.clone());
        let line = self.cut(line);
        while self.entries.len() >= self.limit
            || (!self.entries.is_empty() && self.n_bytes + line.text.len() > self.max_bytes)
        {
            let oldest = self.entries.pop_front();
            self.has_let_go = true;
            self.n_bytes -= oldest.map_or(0, |oldest| oldest.text.len());
        }
        self.n_bytes += line.text.len();
        self.entries.push_back(line.into());
    }

    fn cut(&mut self, mut line: Line) -> Line {
        let n_total = line.text.len();
        if n_total > self.max_bytes {
            line.text.truncate(until_character_border(&line.text.as_bytes()[..self.max_bytes]).len());
            let returned_bytes = line.text.len() as u64;
            let hint = Some(format!("Call again with maxBytes {n_total} to read the whole line."));
            let field = "entries.0.text".to_owned();
            self.truncated = vec![Truncated { field, returned_bytes, total_bytes: n_total as u64, hint }];
        }
        line
    }

    fn answer(self, filter: Filter) -> Answer<Logs> {
        let nothing = if self.entries.is_empty() { filter.warning_of_nothing() } else { None };
        let mut warnings = filter.warnings;
        warnings.extend(self.warnings);
        warnings.extend(nothing);
        warnings.dedup();
        let logs = Logs { entries: self.entries.into(), next_cursor: self.cursor.to_string() };
        Answer::new(logs).warn_all(warnings).truncate(self.truncated)
    }
}

async fn read(call: Call, mut arguments: ReadArguments) -> ToolResult<Logs> {
    let filter = Filter::new(&mut arguments.fields)?;
    let which = call.sandbox(&arguments.fields.name)?;
    let max_bytes = call.max_bytes(arguments.fields.max_bytes);
    let log = Log::open(&call, &which, &filter).await?;
    let Some(tail) = arguments.tail else {
        let mut page = Page::new(MAX_READ, max_bytes, Cursor::Beginning);
        if log.read_page(&call, &filter, &mut page).await? {
            page.warnings.push(format!(
                "There is more: call sandbox_logs_stream with fromCursor {} to read it, or set tail.",
                page.cursor
            ));
        }
        return Ok(page.answer(filter));
    };
    let limit = usize::try_from(tail).unwrap_or(usize::MAX).min(MAX_READ);
    for span in [Some(TAIL_SPAN.max(limit as u64)), None] {
        let mut page = Page::new(limit, max_bytes, Cursor::Beginning);
        if log.read_tail(&call, &filter, span, &mut page).await? {
            return Ok(page.answer(filter));
        }
    }
    // The second time everything is read, which is always enough.
    Ok(Page::new(limit, max_bytes, Cursor::Beginning).answer(filter))
}

async fn follow(call: Call, mut arguments: StreamArguments) -> ToolResult<Logs> {
    let filter = Filter::new(&mut arguments.fields)?;
    let which = call.sandbox(&arguments.fields.name)?;
    let max_bytes = call.max_bytes(arguments.fields.max_bytes);
    let limit = arguments.limit.unwrap_or(DEFAULT_STREAMED).min(MAX_STREAMED) as usize;
    let cursor = arguments.from_cursor.as_deref().map_or(Ok(Cursor::Beginning), str::parse)?;
    let patience = Duration::from_millis(arguments.follow_timeout_ms.unwrap_or(0)).min(MAX_FOLLOW);
    let patience = if arguments.follow.unwrap_or(false) { patience } else { Duration::ZERO };
    let page = Page::new(limit, max_bytes, cursor);
    let followed = while_waiting(&call, Some(patience), follow_for(&call, &which, &filter, page, patience));
    let page = followed.await?;
    Ok(page.answer(filter))
}

async fn follow_for(
    call: &Call,
    which: &SandboxRef,
    filter: &Filter,
    mut page: Page,
    patience: Duration,
) -> Result<Page, Failure> {
    let until = Instant::now() + patience;
    loop {
        let log = Log::open(call, which, filter).await?;
        log.read_page(call, filter, &mut page).await?;
        let is_enough = !page.entries.is_empty() || Instant::now() >= until;
        if is_enough || !log.wait_for_more(call, filter, until).await? {
            return Ok(page);
        }
    }
}

/// The log of a sandbox at one moment.
struct Log {
    which: SandboxRef,
    /// The execs that the filter wants.
    execs: Vec<ExecView>,
    /// Lines of later moments may still be overtaken by others; they are left for the next call.
    horizon_ms: i64,
}

impl Log {
    async fn open(call: &Call, which: &SandboxRef, filter: &Filter) -> Result<Self> {
        let mut execs = call.engine().execs(&call.who, which).await?;
        let listed_ms = Timestamp::now().as_millisecond();
        let which = execs.first().map_or_else(|| which.clone(), |view| SandboxRef::from(&view.sandbox));
        execs.retain(|view| filter.wants_exec(view));
        // Of one command, the ledger tells the order; of several that have ended, nothing more comes.
        let is_settled = execs.len() <= 1 || execs.iter().all(|view| view.state == ExecState::Done);
        if !is_settled {
            sleep(SETTLE).await;
        }
        Ok(Self { which, execs, horizon_ms: if is_settled { i64::MAX } else { listed_ms } })
    }

    /// Fills the page from its cursor on. Returns whether it is full and there is more.
    async fn read_page(&self, call: &Call, filter: &Filter, page: &mut Page) -> Result<bool, Failure> {
        let mut merge =
            Merge::new(call, self.which.clone(), &self.execs, &page.cursor, filter.since_ms, None);
        let mut is_full = false;
        while let Some(line) = self.next(call, &mut merge).await? {
            if filter.is_behind(&line) {
                break;
            } else if !filter.wants(&line) {
                page.cursor = Cursor::Behind(line.position);
            } else if !page.push(line) {
                is_full = true;
                break;
            }
        }
        page.warnings.append(&mut merge.warnings);
        Ok(is_full)
    }

    /// Fills the page with the last lines. `false` when those at the end of the execs, as far as `span` reaches, are
    /// not enough to tell.
    async fn read_tail(
        &self,
        call: &Call,
        filter: &Filter,
        span: Option<u64>,
        page: &mut Page,
    ) -> Result<bool, Failure> {
        let mut merge =
            Merge::new(call, self.which.clone(), &self.execs, &Cursor::Beginning, filter.since_ms, span);
        let is_partial = |view: &ExecView| span.is_some_and(|span| view.last_entry > span);
        let mut partial: Vec<_> =
            self.execs.iter().filter(|view| is_partial(view)).map(|view| &view.id).collect();
        while let Some(line) = self.next(call, &mut merge).await? {
            if filter.is_behind(&line) {
                break;
            }
            if let Some(begun) = partial.iter().position(|id| **id == line.position.exec.id) {
                // Before this line, lines of its exec are missing: what was gathered is not all there is.
                partial.swap_remove(begun);
                *page = Page::new(page.limit, page.max_bytes, Cursor::Beginning);
            }
            match filter.wants(&line) {
                true => page.push_last(line),
                false => page.cursor = Cursor::Behind(line.position),
            }
        }
        page.warnings.append(&mut merge.warnings);
        let is_full = page.entries.len() >= page.limit || page.has_let_go;
        Ok(span.is_none() || (partial.is_empty() && is_full) || !self.execs.iter().any(is_partial))
    }

    async fn next(&self, call: &Call, merge: &mut Merge<'_>) -> Result<Option<Line>, Failure> {
        if call.cancelled.is_cancelled() {
            return Err(Failure::new(ErrorKind::Cancelled, "the call was cancelled"));
        }
        let line = merge.next().await?;
        Ok(line.filter(|line| line.position.at_ms <= self.horizon_ms))
    }

    /// Waits until a command prints, ends, or another one is started; `false` when time is up first.
    async fn wait_for_more(&self, call: &Call, filter: &Filter, until: Instant) -> Result<bool, Failure> {
        let (engine, who) = (call.engine(), &call.who);
        let mut news: Vec<BoxStream<'static, ()>> = Vec::new();
        for view in self.execs.iter().filter(|view| view.state != ExecState::Done) {
            let from = view.last_entry + 1;
            let items = engine.exec_entries(who, &self.which, &view.id, from, Follow::Yes).await?;
            news.push(items.map(|_item| ()).boxed());
        }
        // Listened to first; then we look whether one was started since the log was opened.
        let events = engine.events(who, None, Follow::Yes).await?;
        news.push(events.filter_map(|event| std::future::ready(exec_started(event))).boxed());
        let is_new = |view: &ExecView| !self.execs.iter().any(|known| known.id == view.id);
        let now = engine.execs(who, &self.which).await?;
        if now.iter().any(|view| filter.wants_exec(view) && is_new(view)) {
            return Ok(true);
        }
        let mut news = stream::select_all(news);
        let came = tokio::select! {
            came = timeout_at(until, news.next()) => came.is_ok(),
            () = call.cancelled.cancelled() => false,
        };
        if came {
            // Lines that are printed in one go are read in one go.
            sleep(SETTLE).await;
        }
        Ok(came)
    }
}

/// Keeps only events of a started exec. Which sandbox it belongs to is looked at when the log is read again.
fn exec_started(event: Result<sandbox::Event>) -> Option<()> {
    event.is_ok_and(|event| event.kind == sandbox::EventKind::ExecStarted).then_some(())
}
