//! One pass over a cell's ledger: what it printed, what it showed, how it ended.

use engine::{Entry, EntryBody};
use sandbox::{ContextName, ExecId, ExecOutcome, KillReason, Language, Result};

use super::{
    records::{CellEvent, Picture, PictureCaps, Records},
    result::{CellResult, Output, OutputKind},
};
use crate::{
    links::SandboxLinks,
    output::{Capture, Truncated},
};

/// The exit code that a shell shows for SIGKILL, used when nobody knows how the code ended.
const UNKNOWN_END: i32 = 137;
/// How code ended whose interpreter, and with it its variables, outlived the time limit.
const INTERRUPTED_IN_TIME: &str = "interrupted: it timed out";

/// The cell that is read.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    /// The sandbox, as its caller names it.
    pub(crate) sandbox: String,
    pub(crate) exec: ExecId,
    pub(crate) language: Language,
    pub(crate) context: Option<ContextName>,
    /// For the reader's browser, where it has one.
    pub(crate) links: Option<SandboxLinks>,
}

/// Everything read so far.
#[derive(Debug)]
pub(crate) struct Collected {
    cell: Cell,
    stdout: Capture,
    stderr: Capture,
    records: Records,
    outputs: Vec<Output>,
    pictures: Vec<Picture>,
    /// Numbers of outputs that do not stand in the answer whole.
    partial: Vec<u32>,
    /// Outputs whose text is cut: the number, and the length of the whole text.
    cut_texts: Vec<(u32, usize)>,
    error: Option<super::result::CellError>,
    state: Option<(bool, Option<super::result::StateLoss>, bool)>,
    files: Vec<super::file_link::FileLink>,
    warnings: Vec<String>,
    started_ms: Option<i64>,
    ended_ms: Option<i64>,
    are_files_cut: bool,
}

/// Everything, ready to be answered.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) result: CellResult,
    pub(crate) warnings: Vec<String>,
    pub(crate) truncated: Vec<Truncated>,
    pub(crate) pictures: Vec<Picture>,
    /// Numbers of outputs that are not in the answer whole.
    pub(crate) partial: Vec<u32>,
}

impl Collected {
    pub(crate) fn new(cell: Cell, stream_bytes: usize, pictures: PictureCaps) -> Self {
        let records = Records::new(&cell.sandbox, &cell.exec, pictures).with_links(cell.links.clone());
        Self {
            cell,
            stdout: Capture::new(stream_bytes),
            stderr: Capture::new(stream_bytes),
            records,
            outputs: Vec::new(),
            pictures: Vec::new(),
            partial: Vec::new(),
            cut_texts: Vec::new(),
            error: None,
            state: None,
            files: Vec::new(),
            warnings: Vec::new(),
            started_ms: None,
            ended_ms: None,
            are_files_cut: false,
        }
    }

    /// Leaves out HTML where there is plain text: to a model, tags are only more to read.
    #[must_use]
    pub(crate) fn preferring_text(mut self) -> Self {
        self.records.prefer_text();
        self
    }

    pub(crate) fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.extend(warnings);
    }

    pub(crate) fn state_kept(&self) -> Option<bool> {
        self.state.map(|(kept, ..)| kept)
    }

    pub(crate) fn take(&mut self, item: &Result<Entry>) {
        self.take_and_tell(item, |_told| {});
    }

    /// As [`Collected::take`], for who tells of each record as it comes.
    pub(crate) fn take_and_tell(&mut self, item: &Result<Entry>, mut tell: impl FnMut(&CellEvent)) {
        match item {
            Ok(Entry { number, at_ms, body }) => match body {
                EntryBody::Started { .. } => self.started_ms = Some(*at_ms),
                EntryBody::Stdout(bytes) => self.stdout.push(*number, bytes),
                EntryBody::Stderr(bytes) => self.stderr.push(*number, bytes),
                EntryBody::Rich(bytes) => {
                    for told in self.records.push(bytes) {
                        tell(&told);
                        self.note(told);
                    }
                }
                EntryBody::Exited(_) => self.ended_ms = Some(*at_ms),
                EntryBody::Stdin(_) | EntryBody::Closed => {}
                EntryBody::Trimmed { from } => {
                    self.records.gap();
                    let n = number - from + 1;
                    self.warnings
                        .push(format!("{n} pieces of output were dropped: the sandbox's log was full."));
                }
            },
            Err(error) => {
                self.records.gap();
                self.warnings.push(format!("could not read part of the output: {error}"));
            }
        }
    }

    fn note(&mut self, told: CellEvent) {
        match told {
            CellEvent::Output(shown) => {
                if shown.is_partial {
                    self.partial.push(shown.output.number);
                }
                self.cut_texts.extend(shown.cut_from_bytes.map(|bytes| (shown.output.number, bytes)));
                self.outputs.push(shown.output);
                self.pictures.extend(shown.picture);
            }
            // The one that ended it is the last.
            CellEvent::Error(error) => self.error = Some(error),
            CellEvent::Warning(message) => self.warnings.push(message),
            // The guest's own comes after whatever the code has written.
            CellEvent::Files { files, truncated } => {
                self.files = files;
                self.are_files_cut = truncated;
            }
            CellEvent::State { kept, lost, interrupted } => self.state = Some((kept, lost, interrupted)),
        }
    }

    /// `outcome`: how the cell ended, if that is known. `rest` says which call reads what was left out of a stream,
    /// from which ledger entry on.
    pub(crate) fn finish(mut self, outcome: Option<&ExecOutcome>, rest: impl Fn(u64) -> String) -> Finished {
        let Cell { exec, language, context, .. } = self.cell;
        let duration =
            self.started_ms.zip(self.ended_ms).and_then(|(from, to)| u64::try_from(to - from).ok());
        let stdout = self.stdout.finish("stdout", &rest);
        let stderr = self.stderr.finish("stderr", &rest);
        self.warnings.extend(self.records.left_out());
        if stdout.is_lossy || stderr.is_lossy {
            self.warnings
                .push("Some output is not valid UTF-8: invalid bytes are shown as \u{FFFD}.".to_owned());
        }
        if self.are_files_cut {
            self.warnings.push("More files were created or changed than are listed.".to_owned());
        }
        let result_text = take_result(&mut self.outputs, &self.partial);
        let result_cut = result_cut(&self.outputs, &self.cut_texts, result_text.as_deref());
        let (state_kept, state_lost, interrupted) = match self.state {
            Some((kept, lost, interrupted)) => (Some(kept), lost, interrupted),
            None => (None, None, false),
        };
        let timed_out = matches!(outcome, Some(ExecOutcome::Killed { reason: KillReason::TimeLimit }));
        let result = CellResult {
            exec_session_id: exec.to_string(),
            language: language.to_string(),
            context: context.map(|context| context.to_string()),
            stdout: stdout.text,
            stderr: stderr.text,
            result: result_text,
            outputs: self.outputs,
            error: self.error,
            exit_code: outcome.map_or(UNKNOWN_END, |outcome| i32::from(outcome.exit_code())),
            success: outcome.is_some_and(ExecOutcome::is_success),
            timed_out,
            interrupted,
            state_kept,
            state_lost,
            outcome: outcome
                .filter(|outcome| !matches!(outcome, ExecOutcome::Exited { memory_limit_hit: false, .. }))
                .map(|outcome| match (timed_out, state_kept) {
                    (true, Some(true)) => INTERRUPTED_IN_TIME.to_owned(),
                    _ => outcome.to_string(),
                }),
            duration_ms: duration.unwrap_or(0),
            files: self.files,
        };
        Finished {
            result,
            warnings: self.warnings,
            truncated: [stdout.truncated, stderr.truncated, result_cut].into_iter().flatten().collect(),
            pictures: self.pictures,
            partial: self.partial,
        }
    }
}

/// Returns what was cut from the text of the last value. A value that was cut is still in `outputs`, without its text.
fn result_cut(outputs: &[Output], cut_texts: &[(u32, usize)], text: Option<&str>) -> Option<Truncated> {
    let text = text?;
    let output = outputs.iter().rfind(|output| output.kind == OutputKind::Result)?;
    let (_, total) = cut_texts.iter().find(|(number, _)| *number == output.number)?;
    Some(Truncated {
        field: "result".to_owned(),
        returned_bytes: text.len() as u64,
        total_bytes: *total as u64,
        hint: Some(format!("Read the resource {} for all of it, or print a part of it.", output.uri)),
    })
}

/// The text of the last value. It stands nowhere twice: a value that is nothing else is no output any more.
fn take_result(outputs: &mut Vec<Output>, partial: &[u32]) -> Option<String> {
    let at = outputs.iter().rposition(|output| output.kind == OutputKind::Result)?;
    let text = outputs[at].text.take()?;
    if outputs[at].mime_types == ["text/plain"] && !partial.contains(&outputs[at].number) {
        outputs.remove(at);
    }
    Some(text)
}
