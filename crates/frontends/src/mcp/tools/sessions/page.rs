//! One page of an exec's events: from ledger entries to what a poll shows of them.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use engine::{Entry, EntryBody, OutputStream};
use sandbox::{ExecId, ExecOutcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{Edge, n_continuing};
use crate::mcp::{Truncated, output::until_character_border};

const STARTED: &str = "started";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Encoding {
    #[default]
    Utf8,
    Base64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Numbered {
    pub(super) index: u64,
    pub(super) event: Event,
}

/// One flat shape for all kinds: a list of alternatives would be several times as long in the listing.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(super) struct Event {
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<i32>,
    /// Of kind trimmed: the last index that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) through: Option<u64>,
}

/// One step of the ledger: what it shows, and where it ends.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) number: u64,
    /// Its last entry: another than its first only where entries are gone.
    pub(super) through: u64,
    pub(super) at_ms: i64,
    pub(super) shows: Shows,
}

#[derive(Debug)]
pub(super) enum Shows {
    Output(OutputStream, Bytes),
    Event(Event),
    Exit(Option<ExecOutcome>),
    /// Stdin, and the end of the log.
    Nothing,
}

impl From<Entry> for Step {
    fn from(Entry { number: through, at_ms, body }: Entry) -> Self {
        let mut number = through;
        let shows = match body {
            EntryBody::Stdout(bytes) => Shows::Output(OutputStream::Stdout, bytes),
            EntryBody::Stderr(bytes) => Shows::Output(OutputStream::Stderr, bytes),
            EntryBody::Started { pid } => Shows::Event(Event { kind: STARTED, pid, ..Event::default() }),
            EntryBody::Exited(exit) => Shows::Exit(exit.map(|exit| exit.outcome)),
            EntryBody::Trimmed { from } => {
                number = from;
                Shows::Event(Event { kind: "trimmed", through: Some(through - 1), ..Event::default() })
            }
            EntryBody::Stdin(_) | EntryBody::Rich(_) | EntryBody::Closed => Shows::Nothing,
        };
        Self { number, through, at_ms, shows }
    }
}

impl Step {
    /// Whether it is more than the start of the command, which the caller knows of already.
    pub(super) fn is_news(&self) -> bool {
        match &self.shows {
            Shows::Nothing => false,
            Shows::Event(event) => event.kind != STARTED,
            Shows::Output(..) | Shows::Exit(_) => true,
        }
    }

    pub(super) fn output(&self, wanted: OutputStream) -> Option<&Bytes> {
        match &self.shows {
            Shows::Output(stream, data) if *stream == wanted => Some(data),
            _ => None,
        }
    }
}

/// The step that holds the first byte of a character which the last piece of this stream leaves open.
pub(super) fn begin_of_open_character(steps: &[Step], stream: OutputStream) -> Option<usize> {
    let mut edge = Edge::default();
    steps.iter().filter_map(|step| step.output(stream)).for_each(|data| edge.push(data));
    let mut n_left = edge.n_open();
    for (index, step) in steps.iter().enumerate().rev() {
        let Some(data) = step.output(stream).filter(|_data| n_left > 0) else { continue };
        match n_left.checked_sub(data.len()) {
            None | Some(0) => return Some(index),
            Some(before) => n_left = before,
        }
    }
    None
}

/// The positions of both streams; `None` where one is not known.
#[derive(Debug, Default)]
pub(super) struct Edges {
    stdout: Option<Edge>,
    stderr: Option<Edge>,
}

impl Edges {
    /// Nothing before matters.
    pub(super) fn known() -> Self {
        Self { stdout: Some(Edge::default()), stderr: Some(Edge::default()) }
    }

    pub(super) fn push(&mut self, step: &Step) {
        if let Shows::Output(stream, data) = &step.shows {
            self.of(*stream).get_or_insert_default().push(data);
        }
    }

    fn of(&mut self, stream: OutputStream) -> &mut Option<Edge> {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    /// How many bytes at the beginning of the next piece belong to a piece before it.
    fn n_claimed(&mut self, stream: OutputStream, data: &[u8]) -> usize {
        // Not known: bytes that can only be the rest of a character are taken for that.
        self.of(stream).as_ref().map_or_else(|| n_continuing(data), |edge| edge.n_claimed(data))
    }
}

/// The part of a session that one answer shows.
#[derive(Debug)]
pub(super) struct Page {
    encoding: Encoding,
    max_bytes: usize,
    edges: Edges,
    n_bytes: usize,
    pub(super) events: Vec<Numbered>,
    /// The cursor of the next poll: the entries before it have been shown.
    pub(super) cursor: u64,
    pub(super) truncated: Option<Cut>,
    /// Bytes that are no text were replaced.
    pub(super) is_lossy: bool,
}

/// An event that is longer than the whole answer may be.
#[derive(Debug)]
pub(super) struct Cut {
    index: u64,
    n_returned: usize,
    n_total: usize,
    n_needed: usize,
}

impl Cut {
    pub(super) fn told(self, exec: &ExecId) -> Truncated {
        let Self { index, n_needed, .. } = self;
        Truncated {
            field: "events.0.event.data".to_owned(),
            returned_bytes: self.n_returned as u64,
            total_bytes: self.n_total as u64,
            hint: Some(format!(
                "Call sandbox_exec_poll with execSessionId {exec}, cursor {index}, limit 1 and maxBytes {n_needed} to read it whole."
            )),
        }
    }
}

impl Page {
    pub(super) fn new(encoding: Encoding, cursor: u64, max_bytes: usize, edges: Edges) -> Self {
        Self {
            encoding,
            max_bytes,
            edges,
            n_bytes: 0,
            events: Vec::new(),
            cursor,
            truncated: None,
            is_lossy: false,
        }
    }

    /// Shows as many steps as fit, at least one event; what is in `ahead` only lends bytes. Returns how many it took.
    pub(super) fn fill(&mut self, steps: &[Step], ahead: &[Step]) -> usize {
        for (position, step) in steps.iter().enumerate() {
            let event = match &step.shows {
                Shows::Output(stream, data) => {
                    let behind = steps[position + 1..].iter().chain(ahead);
                    self.output(*stream, data, behind.filter_map(|step| step.output(*stream)))
                }
                Shows::Event(event) => Some(event.clone()),
                Shows::Exit(outcome) => {
                    let code = outcome.as_ref().map(|outcome| i32::from(outcome.exit_code()));
                    Some(Event { kind: "exited", code, ..Event::default() })
                }
                Shows::Nothing => None,
            };
            if !self.put(step, event) {
                return position;
            }
            self.edges.push(step);
        }
        steps.len()
    }

    /// A piece of output; `None` where all of it belongs to a character that was shown before.
    fn output<'a>(
        &mut self,
        stream: OutputStream,
        data: &[u8],
        behind: impl Iterator<Item = &'a Bytes>,
    ) -> Option<Event> {
        let kind = stream.as_str();
        if self.encoding == Encoding::Base64 {
            return Some(Event { kind, data: Some(BASE64_STANDARD.encode(data)), ..Event::default() });
        }
        let own = &data[self.edges.n_claimed(stream, data)..];
        if own.is_empty() {
            return None;
        }
        let mut edge = Edge::default();
        edge.push(own);
        let mut borrowed = Vec::new();
        for next in behind {
            let n = edge.n_claimed(next);
            borrowed.extend_from_slice(&next[..n]);
            edge.push(&next[..n]);
            if n < next.len() {
                break;
            }
        }
        let bytes = [own, &borrowed].concat();
        let text = String::from_utf8(bytes).unwrap_or_else(|error| {
            self.is_lossy = true;
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        });
        Some(Event { kind, data: Some(text), ..Event::default() })
    }

    /// Whether it fit.
    fn put(&mut self, step: &Step, event: Option<Event>) -> bool {
        let Some(mut event) = event else {
            self.cursor = step.through;
            return true;
        };
        let index = step.number - 1;
        let n_bytes = event.data.as_ref().map_or(0, String::len);
        if self.n_bytes + n_bytes > self.max_bytes {
            if !self.events.is_empty() {
                return false;
            }
            if let (Some(data), Shows::Output(_, raw)) = (&mut event.data, &step.shows) {
                self.truncated = Some(self.cut(index, data, raw.len()));
            }
        }
        self.n_bytes += n_bytes;
        self.cursor = step.through;
        match (self.events.last_mut().map(|last| &mut last.event), &event.data) {
            // A reader wants the text, not the pieces in which it was written.
            (Some(Event { kind, data: Some(text), .. }), Some(more))
                if self.encoding == Encoding::Utf8 && *kind == event.kind =>
            {
                text.push_str(more);
            }
            _ => self.events.push(Numbered { index, event }),
        }
        true
    }

    fn cut(&self, index: u64, data: &mut String, n_raw: usize) -> Cut {
        let n_needed = data.len();
        match self.encoding {
            Encoding::Utf8 => {
                let n_kept = until_character_border(&data.as_bytes()[..self.max_bytes]).len();
                data.truncate(n_kept);
                Cut { index, n_returned: n_kept, n_total: n_needed, n_needed }
            }
            Encoding::Base64 => {
                // Four characters stand for three bytes.
                data.truncate(self.max_bytes / 4 * 4);
                Cut { index, n_returned: data.len() / 4 * 3, n_total: n_raw, n_needed }
            }
        }
    }
}
