//! Searching what the commands of a sandbox printed: the newest command first, a bounded part of the ledger at a time.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use sandbox::{Error, ErrorKind, ExecId, Result};
use serde::{Deserialize, Serialize};
use store::{EntryKind, ExecRecord, Item, Ledger, LedgerError};

use crate::{Engine, OutputStream, Principal, SandboxRef, error};

/// Longest text that is searched for, in characters.
const MAX_TEXT_CHARS: usize = 256;
/// Lines found by one search: if the caller gives no limit, and at most.
const DEFAULT_LIMIT: usize = 200;
const MAX_LIMIT: usize = 1000;
/// Output that one search reads; the next one continues behind it. A tenth of a second or two.
const MAX_SEARCHED_BYTES: usize = 32 * 1024 * 1024;
/// A line is searched in pieces of this size, so that one without an end costs no memory.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Shown of a long line, and how much of that stands before what was found.
const MAX_SHOWN_CHARS: usize = 2000;
const SHOWN_BEFORE_CHARS: usize = 200;

/// A search in the output of a sandbox's commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSearch {
    /// Found in a line, whatever its case.
    pub text: String,
    /// Both when absent.
    pub stream: Option<OutputStream>,
    /// The most lines wanted.
    pub limit: Option<u32>,
    /// Where an earlier search ended.
    pub from: Option<OutputCursor>,
}

/// A place in the output: an exec, and the first of its entries that was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputCursor {
    pub exec: ExecId,
    pub entry: u64,
}

/// The lines that were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputMatches {
    /// By command, the newest first; those of one command as it printed them.
    pub lines: Vec<OutputLine>,
    /// Where to search on; absent when all was read.
    pub next: Option<OutputCursor>,
    /// When the search began: what is printed later is not in it.
    pub at: Timestamp,
}

/// One line that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputLine {
    pub exec: ExecId,
    /// The entry in which the line ends.
    pub entry: u64,
    pub at: Timestamp,
    #[schema(value_type = String, example = "stdout")]
    pub stream: OutputStream,
    /// Of a long line, the part around what was found.
    pub text: String,
}

impl fmt::Display for OutputCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.exec, self.entry)
    }
}

impl FromStr for OutputCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts =
            text.split_once(':').and_then(|(exec, entry)| Some((exec.parse().ok()?, entry.parse().ok()?)));
        parts.map(|(exec, entry)| Self { exec, entry }).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            Error::invalid(format!("{shown:?} is not a place in the output"))
                .with_hint("Use `next` of the search before, as it was answered.")
        })
    }
}

impl Engine {
    /// Lines that the sandbox's commands printed and that contain a text. Terminals are left out: they repeat what is
    /// typed, and draw over what they printed.
    #[crate::boxed]
    pub async fn search_output(
        &self,
        who: &Principal,
        which: &SandboxRef,
        search: OutputSearch,
    ) -> Result<OutputMatches> {
        let length = search.text.chars().count();
        if length == 0 || length > MAX_TEXT_CHARS {
            return Err(Error::invalid(format!("cannot search for a text of {length} characters"))
                .with_hint(format!("Search for 1 to {MAX_TEXT_CHARS} characters.")));
        }
        let shared = self.core().find_to_look(who, which).await?;
        let at = self.core().clock.now();
        let records = self.core().store.execs(shared.subject.id.clone()).await.map_err(error::from_store)?;
        let execs = execs_from(records, search.from.as_ref())?;
        let ledger = shared.ledger()?;
        let mut searcher = Searcher::new(search);
        let searched = tokio::task::spawn_blocking(move || {
            let next = searcher.search(&ledger, &execs);
            next.map(|next| (searcher.lines, next))
        });
        let (lines, next) = searched
            .await
            .map_err(|error| {
                Error::new(ErrorKind::Internal, "could not search the output").with_source(error)
            })?
            .map_err(error::from_ledger)?;
        Ok(OutputMatches { lines, next, at })
    }
}

/// The execs to read, newest first, each with its first wanted entry.
fn execs_from(records: Vec<ExecRecord>, from: Option<&OutputCursor>) -> Result<Vec<OutputCursor>> {
    let newest_first = records.into_iter().rev().filter(|record| record.spec.terminal.is_none());
    let all = newest_first.map(|record| OutputCursor { exec: record.id, entry: 1 });
    let Some(from) = from else { return Ok(all.collect()) };
    let mut rest: Vec<_> = all.skip_while(|one| one.exec != from.exec).collect();
    match rest.first_mut() {
        Some(first) => first.entry = from.entry,
        None => {
            return Err(Error::not_found(format!("exec {} has gone meanwhile", from.exec))
                .with_hint("Begin the search anew."));
        }
    }
    Ok(rest)
}

/// The beginning of a line whose end has not come.
#[derive(Debug, Default)]
struct Pending(Vec<u8>);

struct Searcher {
    wanted: String,
    streams: Vec<OutputStream>,
    limit: usize,
    n_bytes: usize,
    lines: Vec<OutputLine>,
}

impl Searcher {
    fn new(search: OutputSearch) -> Self {
        let limit = search.limit.map_or(DEFAULT_LIMIT, |limit| (limit as usize).clamp(1, MAX_LIMIT));
        let streams = search.stream.map_or(OutputStream::BOTH.to_vec(), |stream| vec![stream]);
        Self { wanted: search.text.to_lowercase(), streams, limit, n_bytes: 0, lines: Vec::new() }
    }

    /// Reads until there is enough; returns where it stopped.
    fn search(
        &mut self,
        ledger: &Ledger,
        execs: &[OutputCursor],
    ) -> Result<Option<OutputCursor>, LedgerError> {
        for OutputCursor { exec, entry } in execs {
            if let Some(entry) = self.search_exec(ledger, exec, *entry)? {
                return Ok(Some(OutputCursor { exec: exec.clone(), entry }));
            }
        }
        Ok(None)
    }

    /// Returns the next entry, if the exec was not read to its end.
    fn search_exec(&mut self, ledger: &Ledger, exec: &ExecId, from: u64) -> Result<Option<u64>, LedgerError> {
        let mut reader = ledger.reader(exec, from)?;
        let mut pending = [Pending::default(), Pending::default()];
        let mut last = (from, Timestamp::UNIX_EPOCH);
        loop {
            let entry = match reader.next() {
                Ok(Some(Item::Entry(entry))) => entry,
                Ok(Some(Item::Trimmed { .. })) | Err(LedgerError::Damaged { .. }) => continue,
                Ok(None) => break,
                Err(error) => return Err(error),
            };
            let Some((index, stream)) = stream_of(entry.kind) else { continue };
            if !self.streams.contains(&stream) {
                continue;
            }
            let at = Timestamp::from_millisecond(entry.at_ms).unwrap_or(Timestamp::UNIX_EPOCH);
            last = (entry.number, at);
            self.n_bytes += entry.data.len();
            for line in pending[index].push(&entry.data) {
                self.look(exec, last, stream, &line);
            }
            if self.n_bytes >= MAX_SEARCHED_BYTES || self.lines.len() >= self.limit {
                self.finish(exec, last, pending);
                return Ok(Some(entry.number + 1));
            }
        }
        self.finish(exec, last, pending);
        Ok(None)
    }

    /// Searches the unfinished lines, as they are.
    fn finish(&mut self, exec: &ExecId, last: (u64, Timestamp), pending: [Pending; 2]) {
        for (stream, Pending(line)) in OutputStream::BOTH.into_iter().zip(pending) {
            self.look(exec, last, stream, &line);
        }
    }

    fn look(&mut self, exec: &ExecId, (entry, at): (u64, Timestamp), stream: OutputStream, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let lower = text.to_lowercase();
        if let Some(found) = lower.find(&self.wanted) {
            let before = lower[..found].chars().count().saturating_sub(SHOWN_BEFORE_CHARS);
            let is_short = text.chars().count() <= MAX_SHOWN_CHARS;
            let text = text.chars().skip(if is_short { 0 } else { before }).take(MAX_SHOWN_CHARS).collect();
            self.lines.push(OutputLine { exec: exec.clone(), entry, at, stream, text });
        }
    }
}

fn stream_of(kind: EntryKind) -> Option<(usize, OutputStream)> {
    match kind {
        EntryKind::Stdout => Some((0, OutputStream::Stdout)),
        EntryKind::Stderr => Some((1, OutputStream::Stderr)),
        _ => None,
    }
}

impl Pending {
    /// The lines that `bytes` complete. A carriage return ends a line too: so do programs that draw over one.
    fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let is_whole = piece.ends_with(b"\n") || piece.ends_with(b"\r");
            self.0.extend_from_slice(if is_whole { &piece[..piece.len() - 1] } else { piece });
            if is_whole || self.0.len() >= MAX_LINE_BYTES {
                lines.push(std::mem::take(&mut self.0));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(wanted: &str, line: &str) -> Vec<String> {
        let mut searcher = Searcher::new(OutputSearch { text: wanted.to_owned(), ..OutputSearch::default() });
        let exec = "exc-0123456789abc".parse().unwrap();
        searcher.look(&exec, (1, Timestamp::UNIX_EPOCH), OutputStream::Stdout, line.as_bytes());
        searcher.lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn text_is_found_in_any_case_and_a_long_line_is_cut_around_it() {
        assert_eq!(look("NEEDLE", "a Needle here"), ["a Needle here"]);
        assert_eq!(look("ÄRGER", "lauter ärger"), ["lauter ärger"]);
        assert_eq!(look("needle", "hay").len(), 0);
        let long = format!("{}needle{}", "x".repeat(5000), "y".repeat(5000));
        let shown = look("needle", &long).remove(0);
        assert_eq!((shown.len(), shown.find("needle")), (MAX_SHOWN_CHARS, Some(SHOWN_BEFORE_CHARS)));
    }

    #[test]
    fn lines_come_whole_from_pieces_and_one_without_an_end_in_parts() {
        let mut pending = Pending::default();
        assert_eq!(pending.push(b"one\ntw"), [b"one".to_vec()]);
        assert_eq!(pending.push(b"o\r10 %\rrest"), [b"two".to_vec(), b"10 %".to_vec()]);
        assert_eq!(pending.push(&[b'x'; MAX_LINE_BYTES]).len(), 1);
        assert!(pending.0.is_empty());
    }

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        let cursor = OutputCursor { exec: "exc-0123456789abc".parse().unwrap(), entry: 12 };
        assert_eq!(cursor.to_string().parse::<OutputCursor>().unwrap(), cursor);
        for text in ["", "exc-0123456789abc", "exc-0123456789abc:x", "../x:1", ":"] {
            assert_eq!(
                text.parse::<OutputCursor>().unwrap_err().kind(),
                ErrorKind::InvalidRequest,
                "{text:?}"
            );
        }
    }
}
