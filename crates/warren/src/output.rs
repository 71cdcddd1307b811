//! Output for people and programs: tables, JSON, and colour on a terminal.

use std::{
    env,
    io::{self, IsTerminal, Write},
};

use anstyle::{AnsiColor, Style};
use comfy_table::{Table, presets};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    error::{CommandResult, io_failure},
    terminal,
};

/// Paints words, or leaves them plain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    pub(crate) fn for_stdout() -> Self {
        Self { on: allowed() && io::stdout().is_terminal() }
    }

    pub(crate) fn for_stderr() -> Self {
        Self { on: allowed() && io::stderr().is_terminal() }
    }

    pub(crate) fn is_on(self) -> bool {
        self.on
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.with(text, AnsiColor::Green.on_default())
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.with(text, AnsiColor::Red.on_default().bold())
    }

    pub(crate) fn note(self, text: &str) -> String {
        self.with(text, AnsiColor::Cyan.on_default())
    }

    pub(crate) fn warn(self, text: &str) -> String {
        self.with(text, AnsiColor::Yellow.on_default())
    }

    fn with(self, text: &str, style: Style) -> String {
        if self.on { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

fn allowed() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Writes one line to stdout. A closed stdout ends the command quietly.
pub(crate) fn line(text: &str) -> CommandResult<()> {
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(|error| io_failure("cannot write to stdout", error))
}

/// Pretty JSON on stdout.
pub(crate) fn json(value: &impl Serialize) -> CommandResult<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    line(&text)
}

/// One JSON value on one line, for streams.
pub(crate) fn json_line(value: &impl Serialize) -> CommandResult<()> {
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    line(&text)
}

/// Shows progress on a single line, on a terminal only.
pub(crate) fn progress(text: &str) {
    let mut stderr = io::stderr().lock();
    if stderr.is_terminal() {
        write!(stderr, "\r\x1b[K{text}\r").and_then(|()| stderr.flush()).ok();
    }
}

/// Prints a note on stderr.
pub(crate) fn note(text: &str) {
    let mut stderr = io::stderr().lock();
    // A note that cannot be printed is no failure.
    writeln!(stderr, "{} {text}", Paint::for_stderr().note("note:")).ok();
}

/// Prints the next step after an error, as errors show theirs.
pub(crate) fn hint(text: &str) {
    let mut stderr = io::stderr().lock();
    writeln!(stderr, "{} {text}", Paint::for_stderr().note("hint:")).ok();
}

/// Prints an error on stderr that is not a failure of this command.
pub(crate) fn error(text: &str) {
    let mut stderr = io::stderr().lock();
    writeln!(stderr, "{} {text}", Paint::for_stderr().bad("error:")).ok();
}

pub(crate) fn warn(text: &str) {
    let mut stderr = io::stderr().lock();
    writeln!(stderr, "{} {text}", Paint::for_stderr().warn("warning:")).ok();
}

/// A plain table: a heading, rows, columns set apart by spaces.
pub(crate) fn table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> CommandResult<()> {
    line(&render_table(heading, rows))
}

/// Like [`table`], but as long as the terminal is too narrow, leaves out the columns of `may_go`, one after the other.
pub(crate) fn table_that_fits<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    may_go: &[&str],
) -> CommandResult<()> {
    line(&fitted(heading, rows, may_go, width(), End::Whole))
}

/// The same, where the last column is text of any length: on a terminal it is cut.
pub(crate) fn table_with_long_end<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    may_go: &[&str],
) -> CommandResult<()> {
    line(&fitted(heading, rows, may_go, width(), End::Cut))
}

/// Columns of the terminal that stdout is.
pub(crate) fn width() -> Option<usize> {
    terminal::size().filter(|_| io::stdout().is_terminal()).map(|size| usize::from(size.cols))
}

/// What happens to the last column on a narrow terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Cut,
}

/// Characters of a column that is cut which are worth more than another column.
const LEAST_OF_END: usize = 24;

fn fitted<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    may_go: &[&str],
    width: Option<usize>,
    end: End,
) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let mut n_gone = 0;
    loop {
        let is_shown = |column: &&str| !may_go[..n_gone].contains(column);
        let shown: Vec<_> = (0..N).filter(|n| is_shown(&heading[*n])).collect();
        let cells = rows.iter().map(|row| shown.iter().map(|n| row[*n].clone()).collect());
        let text = render(shown.iter().map(|n| heading[*n]).collect(), cells);
        let Some(width) = width else { return text };
        let is_narrow = match end {
            End::Whole => text.lines().all(|line| line.chars().count() <= width),
            End::Cut => text.find(heading[N - 1]).is_none_or(|begin| begin + LEAST_OF_END <= width),
        };
        if n_gone == may_go.len() || is_narrow {
            return match end {
                End::Whole => text,
                End::Cut => text.lines().map(|line| cut(line, width)).collect::<Vec<_>>().join("\n"),
            };
        }
        n_gone += 1;
    }
}

/// At most this many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

pub(crate) fn render_table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    render(heading.to_vec(), rows.into_iter().map(Vec::from))
}

fn render(heading: Vec<&str>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heading);
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.lines().map(|row| row.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Escapes control characters: text from inside a sandbox must not move the cursor or set colours.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A size for people, in binary units.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A duration in its one or two largest units.
pub(crate) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

pub(crate) fn ago(then: Timestamp) -> String {
    format!("{} ago", span(Timestamp::now().as_second() - then.as_second()))
}

pub(crate) fn until(then: Timestamp) -> String {
    format!("in {}", span(then.as_second() - Timestamp::now().as_second()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(5 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
        );
        assert_eq!([span(-1), span(59), span(3_700), span(90_000)], ["0s", "59s", "1h01m", "1d01h"]);
    }

    #[test]
    fn a_narrow_terminal_gets_fewer_columns() {
        let rows = || [["lab".to_owned(), "namespace".to_owned(), "running".to_owned()]];
        let shown = |width| fitted(["NAME", "BACKEND", "STATE"], rows(), &["BACKEND"], width, End::Whole);
        assert!(shown(None).contains("namespace") && shown(Some(80)).contains("namespace"));
        assert_eq!(shown(Some(20)), "NAME   STATE\nlab    running");
        assert_eq!(shown(Some(5)), shown(Some(20)), "the others stay");
        let long = || [["lab".to_owned(), "me".to_owned(), "x".repeat(50)]];
        let shown = |width| fitted(["NAME", "BY", "COMMAND"], long(), &["BY"], width, End::Cut);
        assert_eq!(shown(Some(40)).lines().last().unwrap(), format!("lab    me   {}…", "x".repeat(27)));
        assert_eq!(shown(Some(30)).lines().last().unwrap(), format!("lab    {}…", "x".repeat(22)));
        assert!(shown(None).ends_with(&"x".repeat(50)));
    }

    #[test]
    fn a_hostile_cell_cannot_move_the_cursor() {
        let text = render_table(["A", "B"], [["x\u{1b}[2J\n".to_owned(), "y".to_owned()]]);
        assert!(!text.contains('\u{1b}') && text.lines().count() == 2, "{text:?}");
    }
}
