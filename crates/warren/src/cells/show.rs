//! What people see of a cell: its output as it comes, its value, its pictures, its exception.

use std::io::IsTerminal as _;

use engine::{MimeBundle, Rich, RichReader, StateLoss};
use frontends::rest::v1::{EntryKind, WireEntry};

use super::plots::{self, Plots};
use crate::{
    error::CommandResult,
    output::{self, Paint},
    session::Printer,
};

/// Files that are named at the end.
const MAX_NAMED_FILES: usize = 10;

pub(crate) struct Screen {
    printer: Printer,
    rich: RichReader,
    pub(crate) plots: Option<Plots>,
    /// The last output on stdout ended in the middle of a line.
    is_mid_line: bool,
    /// Talk is for people.
    has_people: bool,
}

impl Screen {
    pub(crate) fn new(plots: Option<Plots>) -> Self {
        let has_people = std::io::stderr().is_terminal();
        Self { printer: Printer::new(), rich: RichReader::default(), plots, is_mid_line: false, has_people }
    }

    pub(crate) async fn show(&mut self, entry: &WireEntry) -> CommandResult<()> {
        match entry.kind {
            EntryKind::Rich => {
                for record in self.rich.push(&entry.data) {
                    self.show_record(record).await?;
                }
            }
            EntryKind::Trimmed => {
                self.rich.gap();
                self.printer.print(entry).await?;
            }
            EntryKind::Stdout => {
                self.is_mid_line = entry.data.last().map_or(self.is_mid_line, |byte| *byte != b'\n');
                self.printer.print(entry).await?;
            }
            _ => self.printer.print(entry).await?,
        }
        Ok(())
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
                    output::note(&format!("made {} ({})", readable(&file.path), output::bytes(file.size)));
                }
                if truncated || files.len() > MAX_NAMED_FILES {
                    output::note("made or changed more files");
                }
            }
            Rich::State { kept: false, lost, .. } => output::warn(&told(lost)),
            Rich::Files { .. } | Rich::State { .. } => {}
        }
        Ok(())
    }

    /// Its text on stdout; its picture in a file, where it is wanted.
    async fn show_value(&mut self, data: &MimeBundle) -> CommandResult<()> {
        let picture = plots::picture(data);
        if let Some(text) = data.get("text/plain").and_then(|text| text.as_str()) {
            let begin = if std::mem::take(&mut self.is_mid_line) { "\n" } else { "" };
            self.printer.stdout(format!("{begin}{text}\n").as_bytes()).await?;
        } else if picture.is_none() {
            let forms: Vec<_> = data.keys().map(|mime| readable(mime)).collect();
            output::note(&format!("shown as {} only; --json tells where it is", forms.join(", ")));
        }
        let Some(picture) = picture else { return Ok(()) };
        self.printer.flush().await?;
        match &mut self.plots {
            Some(plots) => {
                let path = plots.save(&picture)?;
                output::note(&format!("saved {}", path.display()));
            }
            None if self.has_people => output::note("a picture; --save-plots DIR keeps it"),
            None => {}
        }
        Ok(())
    }
}

fn told(lost: Option<StateLoss>) -> String {
    let why = match lost {
        Some(StateLoss::Exited) => "the interpreter left",
        Some(StateLoss::Crashed) => "the interpreter crashed",
        Some(StateLoss::OutOfMemory) => "the interpreter ran out of memory",
        Some(StateLoss::Killed) => "the interpreter was killed",
        Some(StateLoss::Garbled) => "the code broke the channel to its interpreter",
        None => "the interpreter ended",
    };
    format!("the variables are gone: {why}")
}

/// Text from inside a sandbox must not move the reader's cursor; lines it may have.
fn readable(text: &str) -> String {
    let is_fine = |c: char| !c.is_control() || c == '\n' || c == '\t';
    text.chars().map(|c| if is_fine(c) { c } else { '\u{fffd}' }).collect()
}
