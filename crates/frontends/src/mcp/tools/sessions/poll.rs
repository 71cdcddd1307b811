//! `sandbox_exec_poll`: a cursor over the ledger. Nothing is kept between polls, so any reader may begin anywhere.

use std::time::Duration;

use engine::{Entry, EntryBody, ExecView, Follow, OutputStream};
use futures_util::{FutureExt, StreamExt, stream::BoxStream};
use jiff::Timestamp;
use sandbox::{ExecId, ExecOutcome, KillReason, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use super::{
    Target,
    page::{Edges, Encoding, Numbered, Page, Shows, Step, begin_of_open_character},
    text::n_continuing,
    until::Until,
};
use crate::code::FileLink;
use crate::links::ChangedFiles;
use crate::mcp::{
    Answer, Call, Nullable, ToolResult,
    tools::{
        changed_files, denials,
        lacks::{self, FailedCommand},
        telling::while_waiting,
    },
    words::KnownTools,
};

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;
const MAX_WAIT_MS: u64 = 60_000;
/// How long a poll waits for what `until` names unless it says otherwise: less than any client waits for an answer.
const DEFAULT_UNTIL_MS: u64 = 4000;
/// Ledger entries that one answer joins at most.
const MAX_ENTRIES: usize = 16_384;
/// Entries looked at, before and behind what is returned, for the other parts of a character that is cut in pieces.
const MAX_LOOK: u64 = 64;
/// Entries before the end of an exec in which its files are told: theirs, and that of a cell's state.
const MAX_FILE_ENTRIES: u64 = 4;
/// Entries before the end of an exec, and bytes of each stream in them, that are searched for what the command lacked.
const MAX_LAST_ENTRIES: u64 = 64;
const MAX_LAST_BYTES: usize = 8 * 1024;
/// A piece that ends within a character waits this long for the rest, then it is shown with a replacement character.
/// Under test it waits as long as it takes.
const HALF_CHARACTER_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 1 });

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PollArguments {
    exec_session_id: String,
    /// nextCursor of the last poll
    cursor: Option<u64>,
    /// Default 100
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
    /// For the whole answer
    #[schemars(range(min = 1))]
    max_bytes: Option<u64>,
    /// Wait up to this long for events
    #[schemars(range(max = 60_000))]
    wait_ms: Option<u64>,
    /// Wait for exit, output, or this text in the output (waitMs default 4000)
    until: Option<String>,
    encoding: Option<Encoding>,
}

impl PollArguments {
    /// Returns the arguments of a poll for what follows entry `cursor` of a session.
    pub(super) fn after(
        exec: &ExecId,
        cursor: u64,
        wait_ms: Option<u64>,
        until: Option<String>,
        max_bytes: Option<u64>,
    ) -> Self {
        let (exec_session_id, cursor) = (exec.to_string(), Some(cursor));
        Self { exec_session_id, cursor, limit: None, max_bytes, wait_ms, until, encoding: None }
    }

    fn wait(&self) -> Duration {
        let default = if self.until.is_some() { DEFAULT_UNTIL_MS } else { 0 };
        Duration::from_millis(self.wait_ms.unwrap_or(default).min(MAX_WAIT_MS))
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Polled {
    events: Vec<Numbered>,
    next_cursor: u64,
    /// What until names has come
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<bool>,
    done: bool,
    exit_status: Nullable<ExitStatus>,
    error: Nullable<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    files: Vec<FileLink>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExitStatus {
    code: i32,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
}

impl From<&ExecOutcome> for ExitStatus {
    fn from(outcome: &ExecOutcome) -> Self {
        let is_plain = matches!(outcome, ExecOutcome::Exited { memory_limit_hit: false, .. });
        Self {
            code: i32::from(outcome.exit_code()),
            success: outcome.is_success(),
            outcome: (!is_plain).then(|| outcome.to_string()),
        }
    }
}

pub(super) async fn poll(call: Call, arguments: PollArguments) -> ToolResult<Polled> {
    let target = Target::find(&call, &arguments.exec_session_id).await?;
    poll_target(&call, &target, &arguments).await
}

pub(super) async fn poll_target(
    call: &Call,
    target: &Target,
    arguments: &PollArguments,
) -> ToolResult<Polled> {
    let until = arguments.until.as_deref().map(Until::new).transpose()?;
    call.mcp.sessions().touch(&target.exec);
    let poll = Poll::begin(call, target, arguments, until).await?;
    let polled = while_waiting(call, Some(arguments.wait()), poll.run(call)).await;
    call.mcp.sessions().touch(&target.exec);
    polled
}

/// One poll on its way.
struct Poll<'a> {
    target: &'a Target,
    encoding: Encoding,
    cursor: u64,
    limit: usize,
    max_bytes: usize,
    deadline: Instant,
    /// The event that is waited for; absent: anything.
    until: Option<Until>,
    view: ExecView,
    items: BoxStream<'static, Result<Entry>>,
    /// The steps that were read and are to be shown, as far as they fit.
    steps: Vec<Step>,
    n_events: usize,
    n_bytes: usize,
    /// Read only for the rest of a character.
    ahead: Vec<Step>,
    /// The ledger has nothing more, and never will have.
    is_over: bool,
    /// Nothing that was read is held back.
    held_none: bool,
    error: Option<String>,
}

impl<'a> Poll<'a> {
    async fn begin(
        call: &Call,
        target: &'a Target,
        arguments: &PollArguments,
        until: Option<Until>,
    ) -> Result<Self> {
        let (engine, who, which, exec) = (call.engine(), &call.who, &target.which, &target.exec);
        let cursor = arguments.cursor.unwrap_or(0);
        // Looked at before reading: an end that is known here stands in the ledger.
        let view = engine.exec_view(who, which, exec).await?;
        let items = engine.exec_entries(who, which, exec, cursor.saturating_add(1), Follow::Yes).await?;
        Ok(Self {
            target,
            encoding: arguments.encoding.unwrap_or_default(),
            cursor,
            limit: arguments.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT) as usize,
            max_bytes: call.max_bytes(arguments.max_bytes),
            deadline: Instant::now() + arguments.wait(),
            until,
            view,
            items,
            steps: Vec::new(),
            n_events: 0,
            n_bytes: 0,
            ahead: Vec::new(),
            is_over: false,
            held_none: true,
            error: None,
        })
    }

    async fn run(mut self, call: &Call) -> ToolResult<Polled> {
        loop {
            let is_full = self.take_what_is_there();
            let (n_ready, held) = self.n_ready();
            // Of one that has ended, nothing more is waited for.
            let is_enough =
                is_full || self.is_over || self.is_reached(n_ready) || self.view.outcome.is_some();
            let is_late = Instant::now() >= self.deadline || call.cancelled.is_cancelled();
            // A held piece is shown without the rest of its character once that is late.
            let until = held.map_or(self.deadline, |until| until.min(self.deadline));
            if is_enough || is_late {
                self.held_none = n_ready == self.steps.len();
                self.steps.truncate(n_ready);
                return self.answer(call).await;
            }
            tokio::select! {
                item = self.items.next() => { self.take(item); }
                () = sleep_until(until) => {}
                () = call.cancelled.cancelled() => {}
            }
        }
    }

    /// Whether what the caller waits for is among the steps that can be shown.
    fn is_reached(&self, n_ready: usize) -> bool {
        let ready = &self.steps[..n_ready];
        match &self.until {
            None => ready.iter().any(Step::is_news),
            // The end is waited for in any case; a text may be in a piece that is held back.
            Some(Until::Text(_)) if n_ready < self.steps.len() => false,
            Some(until) => until.is_reached(ready) || Until::Exit.is_reached(ready),
        }
    }

    /// Takes what can be read without waiting, up to what fits. Returns whether there may be more than fits.
    fn take_what_is_there(&mut self) -> bool {
        while !self.is_over {
            if self.is_full() {
                self.look_ahead();
                return true;
            }
            match self.items.next().now_or_never() {
                Some(item) => self.take(item),
                None => return false,
            }
        }
        false
    }

    fn is_full(&self) -> bool {
        self.n_events >= self.limit || self.n_bytes >= self.max_bytes || self.steps.len() >= MAX_ENTRIES
    }

    fn take(&mut self, item: Option<Result<Entry>>) {
        match item {
            Some(Ok(item)) => {
                let step = Step::from(item);
                self.n_events += usize::from(self.is_new_event(&step));
                if let Shows::Output(stream, data) = &step.shows {
                    self.n_bytes += data.len();
                    if let Some(until) = &mut self.until {
                        until.push(*stream, data);
                    }
                }
                match (self.steps.last_mut(), &step.shows) {
                    // However much is written to it meanwhile.
                    (Some(last), Shows::Nothing) if matches!(last.shows, Shows::Nothing) => {
                        last.through = step.through;
                    }
                    _ => self.steps.push(step),
                }
            }
            // Told, and what is behind the damage is read on.
            Some(Err(error)) => self.error = Some(error.to_string()),
            None => self.is_over = true,
        }
    }

    /// Whether a step begins another event: text is joined with text of the same stream right before it.
    fn is_new_event(&self, step: &Step) -> bool {
        let last = self.steps.iter().rev().find(|step| !matches!(step.shows, Shows::Nothing));
        match (&step.shows, last.map(|last| &last.shows)) {
            (Shows::Nothing, _) => false,
            (Shows::Output(stream, _), Some(Shows::Output(last, _))) => {
                self.encoding == Encoding::Base64 || stream != last
            }
            _ => true,
        }
    }

    /// Reads on a little where a character at the end of what fits may be completed behind it.
    fn look_ahead(&mut self) {
        for _ in 0..MAX_LOOK {
            match self.items.next().now_or_never() {
                Some(Some(Ok(item))) => self.ahead.push(Step::from(item)),
                Some(Some(Err(_))) => {}
                Some(None) => {
                    self.is_over = true;
                    return;
                }
                None => return,
            }
        }
    }

    /// How many steps can be shown now; and until when the next one is held back, because it ends within a character
    /// and the rest is on its way.
    fn n_ready(&self) -> (usize, Option<Instant>) {
        let mut ready = (self.steps.len(), None);
        if self.encoding == Encoding::Base64 || self.is_over || self.view.outcome.is_some() {
            return ready;
        }
        for stream in OutputStream::BOTH {
            let is_of_it = |step: &Step| step.output(stream).is_some();
            let Some(last) = self.steps.iter().rposition(is_of_it) else { continue };
            let left = patience_left(self.steps[last].at_ms);
            if left.is_zero() || self.ahead.iter().any(is_of_it) {
                continue;
            }
            // Steps behind one that is held stay behind it.
            if let Some(begins) = begin_of_open_character(&self.steps, stream)
                && begins < ready.0
            {
                ready = (begins, Some(Instant::now() + left));
            }
        }
        ready
    }

    async fn answer(mut self, call: &Call) -> ToolResult<Polled> {
        let edges = self.edges(call).await?;
        let mut page = Page::new(self.encoding, self.cursor, self.max_bytes, edges);
        let mut outcome = None;
        let n_shown = page.fill(&self.steps, &self.ahead);
        for step in &self.steps[..n_shown] {
            if let Shows::Exit(told) = &step.shows {
                outcome = told.clone().or_else(|| self.view.outcome.clone());
            }
        }
        // A reader who begins behind the end is told of it all the same.
        if outcome.is_none() && n_shown == self.steps.len() && self.ahead.is_empty() && self.held_none {
            outcome = self.view.outcome.take();
        }
        let error = match &outcome {
            Some(ExecOutcome::NotStarted { message, .. }) => Some(message.clone()),
            _ => self.error.take(),
        };
        let end = self.steps[..n_shown].iter().find(|step| matches!(step.shows, Shows::Exit(_)));
        let last = match end.map(|step| step.number) {
            Some(end) => Last::before(call, self.target, end).await?,
            None => Last::default(),
        };
        let lacks = match (end, &outcome) {
            (Some(_), Some(outcome)) if !outcome.is_success() => {
                lacks(call, self.target, &self.view, outcome, &last).await
            }
            _ => Vec::new(),
        };
        let changed = last.files;
        let more_files = changed.warning();
        let name = self.view.sandbox.as_str();
        let mut files = changed.linked(&call.links(), &self.view.sandbox, name);
        let files_cut = changed_files::shorten(&mut files, Some(name), &KnownTools::of(call, &call.surface));
        let truncated = page.truncated.map(|cut| cut.told(&self.target.exec)).into_iter().chain(files_cut);
        let polled = Polled {
            events: page.events,
            next_cursor: page.cursor,
            reached: self.until.as_ref().map(|until| until.is_reached(&self.steps[..n_shown])),
            done: outcome.is_some(),
            exit_status: Nullable(outcome.as_ref().map(ExitStatus::from)),
            error: Nullable(error),
            files,
        };
        let cursor = self.cursor;
        let not_text = page.is_lossy.then(|| {
            format!(
                "Some output is not valid UTF-8: invalid bytes are shown as \u{FFFD}. Call sandbox_exec_poll with \
                 execSessionId {}, cursor {cursor} and encoding \"base64\" for the exact bytes.",
                self.target.exec
            )
        });
        let warnings = not_text.into_iter().chain(more_files.map(str::to_owned));
        Ok(Answer::new(polled).truncate(truncated).warn_all(warnings).warn_all(lacks))
    }

    /// Returns the output before the cursor, where it matters: the first piece begins with the rest of a character.
    async fn edges(&mut self, call: &Call) -> Result<Edges> {
        let begins_within = |stream: OutputStream| {
            let first = self.steps.iter().find_map(|step| step.output(stream));
            first.is_some_and(|data| n_continuing(data) > 0)
        };
        let matters = self.encoding == Encoding::Utf8 && OutputStream::BOTH.into_iter().any(begins_within);
        if self.cursor == 0 || !matters {
            return Ok(Edges::known());
        }
        let from = self.cursor.saturating_sub(MAX_LOOK - 1).max(1);
        let mut edges = if from == 1 { Edges::known() } else { Edges::default() };
        let (which, exec) = (&self.target.which, &self.target.exec);
        let mut items = call.engine().exec_entries(&call.who, which, exec, from, Follow::No).await?;
        while let Some(item) = items.next().await {
            let step = match item {
                Ok(item) => Step::from(item),
                Err(_damaged) => continue,
            };
            if step.number > self.cursor {
                break;
            }
            edges.push(&step);
        }
        Ok(edges)
    }
}

/// Returns warnings about what a failed command lacked.
async fn lacks(
    call: &Call,
    target: &Target,
    view: &ExecView,
    outcome: &ExecOutcome,
    last: &Last,
) -> Vec<String> {
    let network = denials::during(call, view).await;
    let texts = last.texts.each_ref().map(|text| String::from_utf8_lossy(text));
    let failed = FailedCommand {
        // Its name alone could be that of another sandbox, in the caller's own namespace.
        sandbox: Some(view.sandbox.as_str()),
        outcome: Some(outcome),
        exit_code: i32::from(outcome.exit_code()),
        timed_out: matches!(outcome, ExecOutcome::Killed { reason: KillReason::TimeLimit }),
        texts: [&texts[0], &texts[1]],
        ..FailedCommand::new(&view.command, &network, &call.surface)
    };
    let lack = lacks::warning(call, &target.which, &failed).await;
    lack.into_iter().chain(denials::told(call, &network, failed.sandbox)).collect()
}

/// The entries of the ledger right before the end of an exec.
#[derive(Debug, Default)]
struct Last {
    /// The files that it changed, which are told together with its end.
    files: ChangedFiles,
    /// The last of stdout and of stderr.
    texts: [Vec<u8>; 2],
}

impl Last {
    async fn before(call: &Call, target: &Target, end: u64) -> Result<Self> {
        let mut last = Self::default();
        let from = end.saturating_sub(MAX_LAST_ENTRIES).max(1);
        let files_from = end.saturating_sub(MAX_FILE_ENTRIES);
        let mut items =
            call.engine().exec_entries(&call.who, &target.which, &target.exec, from, Follow::No).await?;
        while let Some(item) = items.next().await {
            let Ok(entry) = item else { continue };
            match entry.body {
                _ if entry.number >= end => break,
                EntryBody::Rich(bytes) if entry.number >= files_from => last.files.push(&bytes),
                EntryBody::Stdout(bytes) => last.push(0, &bytes),
                EntryBody::Stderr(bytes) => last.push(1, &bytes),
                _ => {}
            }
        }
        Ok(last)
    }

    fn push(&mut self, stream: usize, bytes: &[u8]) {
        let text = &mut self.texts[stream];
        text.extend_from_slice(bytes);
        let n_surplus = text.len().saturating_sub(MAX_LAST_BYTES);
        text.drain(..n_surplus);
    }
}

fn patience_left(at_ms: i64) -> Duration {
    let age = Timestamp::now().as_millisecond().saturating_sub(at_ms);
    HALF_CHARACTER_PATIENCE.saturating_sub(Duration::from_millis(u64::try_from(age).unwrap_or(0)))
}
