//! Shows a cell to people: its output as it comes, its value, its pictures, its exception.

use std::io::IsTerminal as _;

use engine::{Entry, EntryBody, MimeBundle, Rich, RichReader, StateLoss};

use super::plots::{self, Plots};
use crate::{
    error::CommandResult,
    output::{self, Paint},
    session::Printer,
};

/// Maximum number of files that are listed at the end.
const MAX_NAMED_FILES: usize = 10;

pub(crate) struct Screen {
    printer: Printer,
    rich: RichReader,
    pub(crate) plots: Option<Plots>,
    /// The last output on stdout ended in the middle of a line.
    is_mid_line: bool,
    /// Whether people are reading: notes are only for them.
    has_people: bool,
    /// Whether to show values, which is only done on a terminal.
    is_terminal: bool,
    /// Whether the last code kept its variables, if the interpreter reported it.
    pub(super) kept: Option<bool>,
}

impl Screen {
    pub(crate) fn new(plots: Option<Plots>) -> Self {
        let has_people = std::io::stderr().is_terminal();
        Self {
            printer: Printer::new(),
            rich: RichReader::default(),
            plots,
            is_mid_line: false,
            has_people,
            is_terminal: std::io::stdout().is_terminal(),
            kept: None,
        }
    }

    /// Resets the state for the next piece of code.
    pub(super) fn begin(&mut self) {
        self.kept = None;
    }

    pub(crate) async fn show(&mut self, entry: &Entry) -> CommandResult<()> {
        match &entry.body {
            EntryBody::Rich(bytes) => {
                for record in self.rich.push(bytes) {
                    self.show_record(record).await?;
                }
            }
            EntryBody::Trimmed { .. } => self.rich.gap(),
            EntryBody::Stdout(bytes) => {
                self.is_mid_line = bytes.last().map_or(self.is_mid_line, |byte| *byte != b'\n');
            }
            _ => {}
        }
        self.printer.print(entry).await
    }

    pub(crate) async fn flush(&mut self) -> CommandResult<()> {
        self.printer.flush().await
    }

    async fn show_record(&mut self, record: Rich) -> CommandResult<()> {
        match record {
            Rich::Result { data } | Rich::Display { data } => self.show_value(&data).await?,
            Rich::Error { traceback, name, value } => {
                let text = if traceback.is_empty() { format!("{name}: {value}") } else { traceback };
                let text = Paint::for_stderr().bad(&readable(&text));
                self.printer.stderr(format!("{text}\n").as_bytes()).await?;
            }
            Rich::Warning { message } => output::warn(&readable(&message)),
            Rich::Files { files, truncated } if self.has_people => {
                for file in files.iter().take(MAX_NAMED_FILES) {
                    output::note(&format!("wrote {} ({})", readable(&file.path), output::bytes(file.size)));
                }
                if truncated || files.len() > MAX_NAMED_FILES {
                    output::note("wrote more files");
                }
            }
            Rich::State { kept, lost, .. } => {
                self.kept = Some(kept);
                if !kept {
                    output::warn(&describe_loss(lost));
                }
            }
            Rich::Files { .. } => {}
        }
        Ok(())
    }

    /// Prints the text form on stdout; saves the picture to a file, if asked to.
    async fn show_value(&mut self, data: &MimeBundle) -> CommandResult<()> {
        let picture = plots::picture(data);
        if let Some(text) = data.get("text/plain").and_then(|text| text.as_str()) {
            let begin = if std::mem::take(&mut self.is_mid_line) { "\n" } else { "" };
            let text = if self.is_terminal { readable(text) } else { text.to_owned() };
            self.printer.stdout(format!("{begin}{text}\n").as_bytes()).await?;
        } else if picture.is_none() {
            let forms: Vec<_> = data.keys().map(|mime| readable(mime)).collect();
            output::note(&format!("available only as {}; --json shows where to fetch it", forms.join(", ")));
        }
        let Some(picture) = picture else { return Ok(()) };
        self.printer.flush().await?;
        match &mut self.plots {
            Some(plots) => {
                let path = plots.save(&picture)?;
                output::note(&format!("saved {}", path.display()));
            }
            None if self.has_people => {
                output::note("the code displayed a picture; --save-plots DIR saves it");
            }
            None => {}
        }
        Ok(())
    }
}

fn describe_loss(lost: Option<StateLoss>) -> String {
    let why = match lost {
        Some(StateLoss::Exited) => "the interpreter exited",
        Some(StateLoss::Crashed) => "the interpreter crashed",
        Some(StateLoss::OutOfMemory) => "the interpreter ran out of memory",
        Some(StateLoss::Killed) => "the interpreter was killed",
        Some(StateLoss::Garbled) => "the code broke the channel to its interpreter",
        None => "the interpreter ended",
    };
    format!("the variables are lost: {why}")
}

/// Escapes control characters and bidirectional marks in text from a sandbox, but keeps newlines.
fn readable(text: &str) -> String {
    let is_fine = |c: char| matches!(c, '\n' | '\t') || !(c.is_control() || turns_order(c));
    text.chars().map(|c| if is_fine(c) { c } else { '\u{fffd}' }).collect()
}

/// Bidirectional marks, which can make text look like other text.
fn turns_order(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_inside_moves_no_cursor_and_sets_no_clipboard() {
        let text = "a\u{1b}]52;c;aGk=\u{7}b\r\n\tc\u{9b}2J\u{202e}d";
        assert_eq!(readable(text), "a\u{fffd}]52;c;aGk=\u{fffd}b\u{fffd}\n\tc\u{fffd}2J\u{fffd}d");
    }
}
