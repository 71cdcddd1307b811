//! The result of a command, gathered from its ledger.

use engine::{Entry, EntryBody};
use sandbox::Result;

use crate::{links::ChangedFiles, mcp::output::Capture};

pub(crate) const SIGKILL: i32 = 9;

/// The output of a command, the files that it changed, and how long it took.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
    pub(crate) warnings: Vec<String>,
    pub(crate) files: ChangedFiles,
    started_ms: Option<i64>,
    ended_ms: Option<i64>,
}

impl Gathered {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            stdout: Capture::new(max_bytes),
            stderr: Capture::new(max_bytes),
            warnings: Vec::new(),
            files: ChangedFiles::default(),
            started_ms: None,
            ended_ms: None,
        }
    }

    pub(super) fn take(&mut self, entry: &Result<Entry>) {
        let Entry { number, at_ms, body } = match entry {
            Ok(entry) => entry,
            Err(error) => {
                return self.warnings.push(format!("could not read part of the output: {error}"));
            }
        };
        match body {
            EntryBody::Started { .. } => self.started_ms = Some(*at_ms),
            EntryBody::Stdout(bytes) => self.stdout.push(*number, bytes),
            EntryBody::Stderr(bytes) => self.stderr.push(*number, bytes),
            EntryBody::Exited(_) => self.ended_ms = Some(*at_ms),
            EntryBody::Rich(bytes) => self.files.push(bytes),
            EntryBody::Stdin(_) | EntryBody::Closed => {}
            EntryBody::Trimmed { from } => {
                let n = number - from + 1;
                self.warnings.push(format!("{n} pieces of output were dropped: the sandbox's log was full."));
            }
        }
    }

    pub(crate) fn duration_ms(&self) -> u64 {
        let span = self.started_ms.zip(self.ended_ms).map(|(from, to)| to - from);
        span.and_then(|span| u64::try_from(span).ok()).unwrap_or(0)
    }
}
