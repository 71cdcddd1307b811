//! `warren logs`

use std::{collections::VecDeque, process::ExitCode};

use bytes::Bytes;
use engine::{Entry, EntryBody};
use frontends::rest::v1::{self, ExecEntry};
use jiff::Timestamp;
use sandbox::{Error, ExecId};

use super::{Context, main_exec};
use crate::{
    arguments,
    client::{Client, EntryStream},
    error::CommandResult,
    hang_up::unless_unread,
    output,
    session::Printer,
};

/// Show the output of a command
///
/// Without EXEC, shows what the sandbox was made to run: its init, or the command of `warren run`; in any other
/// sandbox, the newest command. Entries are numbered and can be read again from any number.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren logs -f dev
  warren logs --tail 20 --timestamps dev
  warren logs --json --from 100 dev exc-0123456789abc")]
pub(crate) struct Args {
    /// Name or id
    sandbox: String,
    /// Id of the exec
    exec: Option<ExecId>,
    /// Show the newest command, whatever the sandbox was made to run
    #[arg(long, conflicts_with = "exec")]
    latest: bool,
    /// Keep printing until the command ends
    #[arg(long, short)]
    follow: bool,
    /// Start with this entry
    #[arg(long, value_name = "N", default_value_t = 1)]
    from: u64,
    /// Show only the last N lines, or all
    #[arg(long, short = 'n', value_name = "N", value_parser = tail)]
    tail: Option<TailLines>,
    /// Only what was printed from this time on: a span such as 10m, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = arguments::moment)]
    since: Option<Timestamp>,
    /// Only what was printed before this time
    #[arg(long, value_name = "TIME", value_parser = arguments::moment)]
    until: Option<Timestamp>,
    /// Show when each line was printed
    #[arg(long, short = 't')]
    timestamps: bool,
}

/// Most lines that `--tail` keeps in memory.
const MAX_TAIL_LINES: u32 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TailLines {
    All,
    Last(u32),
}

fn tail(text: &str) -> Result<TailLines, String> {
    match text.parse() {
        Ok(n) if n <= MAX_TAIL_LINES => Ok(TailLines::Last(n)),
        Err(_not_a_number) if text == "all" => Ok(TailLines::All),
        _ => Err(format!("write a number of lines up to {MAX_TAIL_LINES}, or all")),
    }
}

/// The time of what is shown, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Span {
    since: i64,
    until: i64,
}

impl Span {
    fn of(args: &Args) -> Self {
        Self {
            since: args.since.map_or(i64::MIN, Timestamp::as_millisecond),
            until: args.until.map_or(i64::MAX, Timestamp::as_millisecond),
        }
    }

    fn has(self, entry: &Entry) -> bool {
        (self.since..self.until).contains(&entry.at_ms)
    }
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    let found = client.inspect(&args.sandbox).await?;
    let exec = match &args.exec {
        Some(exec) => client.exec_view(found.id.as_str(), exec.as_str()).await?.id,
        None => chosen(&client, &found, args.latest).await?,
    };
    let sandbox = found.id;
    let mut from = args.from;
    let span = Span::of(&args);
    let stamps = args.timestamps.then(Stamps::default);
    let mut writer = Writer { printer: Printer::new(), json: context.json, stamps, span };
    let n_tail = match args.tail {
        Some(TailLines::Last(n_lines)) => Some(n_lines),
        Some(TailLines::All) | None => None,
    };
    if let Some(n_lines) = n_tail {
        let mut entries = EntryStream::new(&client, &sandbox, &exec, from, false);
        let mut tail = Tail::new(n_lines);
        loop {
            let batch = entries.next_batch().await?;
            if batch.is_empty() {
                break;
            }
            for entry in batch {
                from = entry.number + 1;
                if span.has(&entry) {
                    tail.push(entry);
                }
            }
        }
        writer.write(tail.entries()).await?;
    }
    if n_tail.is_none() || args.follow {
        let entries = EntryStream::new(&client, &sandbox, &exec, from, args.follow);
        unless_unread(follow(entries, &mut writer)).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What it was made to run, or else the newest; `latest`: always that.
async fn chosen(client: &Client, sandbox: &v1::Sandbox, latest: bool) -> CommandResult<ExecId> {
    let execs = client.execs(sandbox.id.as_str()).await?;
    let main = main_exec::of(sandbox, &execs).filter(|_| !latest);
    let chosen = main.or(execs.last()).map(|exec| exec.id.clone());
    let name = &sandbox.name;
    chosen.ok_or_else(|| {
        Error::not_found(format!("no command has run in {name} yet"))
            .with_hint(format!("`warren exec {name} COMMAND` runs one."))
            .into()
    })
}

async fn follow(mut entries: EntryStream, writer: &mut Writer) -> CommandResult<()> {
    loop {
        let batch = entries.next_batch().await?;
        if batch.is_empty() {
            return Ok(());
        }
        writer.write(batch).await?;
    }
}

struct Writer {
    printer: Printer,
    json: bool,
    stamps: Option<Stamps>,
    span: Span,
}

impl Writer {
    async fn write(&mut self, entries: impl IntoIterator<Item = Entry>) -> CommandResult<()> {
        for mut entry in entries {
            if !self.span.has(&entry) {
                continue;
            }
            if self.json {
                output::json_line(&ExecEntry::from(&entry))?;
                continue;
            }
            if let Some(stamps) = &mut self.stamps {
                stamps.put(&mut entry);
            }
            self.printer.print(&entry).await?;
        }
        self.printer.flush().await
    }
}

/// Prefixes every line with the time of its first byte, however many pieces the line came in.
#[derive(Debug, Default)]
struct Stamps {
    is_inside_stdout_line: bool,
    is_inside_stderr_line: bool,
}

impl Stamps {
    fn put(&mut self, entry: &mut Entry) {
        let (is_inside_line, bytes) = match &mut entry.body {
            EntryBody::Stdout(bytes) => (&mut self.is_inside_stdout_line, bytes),
            EntryBody::Stderr(bytes) => (&mut self.is_inside_stderr_line, bytes),
            _ => return,
        };
        let at = Timestamp::from_millisecond(entry.at_ms).unwrap_or_default();
        let mut stamped = Vec::with_capacity(bytes.len() + 64);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !*is_inside_line {
                stamped.extend_from_slice(format!("{at:.3} ").as_bytes());
            }
            stamped.extend_from_slice(line);
            *is_inside_line = !line.ends_with(b"\n");
        }
        *bytes = Bytes::from(stamped);
    }
}

/// The last lines of output, in bounded memory.
struct Tail {
    n_lines: usize,
    pieces: VecDeque<(Entry, usize)>,
    n_kept: usize,
}

impl Tail {
    fn new(n_lines: u32) -> Self {
        Self { n_lines: n_lines as usize, pieces: VecDeque::new(), n_kept: 0 }
    }

    fn push(&mut self, entry: Entry) {
        let Some((_, bytes)) = entry.output() else { return };
        let n = bytes.iter().filter(|byte| **byte == b'\n').count();
        self.n_kept += n;
        self.pieces.push_back((entry, n));
        // The first piece can be dropped once the rest alone has enough line ends.
        while let Some((_, first)) = self.pieces.front()
            && self.n_kept - first > self.n_lines
        {
            self.n_kept -= first;
            self.pieces.pop_front();
        }
    }

    fn entries(mut self) -> Vec<Entry> {
        let last = self.pieces.back().and_then(|(entry, _)| entry.output());
        let ends_inside_a_line = last.is_some_and(|(_, bytes)| !bytes.ends_with(b"\n"));
        let n_have = self.n_kept + usize::from(ends_inside_a_line);
        let mut surplus = n_have.saturating_sub(self.n_lines);
        while surplus > 0 {
            let Some((entry, n)) = self.pieces.front_mut() else { break };
            if *n < surplus || self.n_lines == 0 {
                surplus = surplus.saturating_sub(*n);
                self.pieces.pop_front();
                continue;
            }
            if let EntryBody::Stdout(bytes) | EntryBody::Stderr(bytes) = &mut entry.body {
                let cut = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(surplus - 1);
                *bytes = bytes.slice(cut.map_or(0, |(position, _)| position + 1)..);
            }
            surplus = 0;
        }
        self.pieces.into_iter().map(|(entry, _)| entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_came_in_pieces_has_one_time() {
        let mut stamps = Stamps::default();
        let mut text = String::new();
        for (at_ms, body) in [
            (0, EntryBody::Stdout("a".into())),
            (1, EntryBody::Stderr("!\n".into())),
            (2, EntryBody::Stdout("b\nc\n".into())),
            (3, EntryBody::Stdout("d".into())),
        ] {
            let mut entry = Entry { number: 1, at_ms, body };
            stamps.put(&mut entry);
            text += std::str::from_utf8(entry.output().unwrap().1).unwrap();
        }
        let at = |ms: u32| format!("1970-01-01T00:00:00.00{ms}Z ");
        assert_eq!(text, format!("{}a{}!\nb\n{}c\n{}d", at(0), at(1), at(2), at(3)));
    }

    #[test]
    fn the_lines_of_a_tail_are_a_number_or_all() {
        assert_eq!((tail("all"), tail("20")), (Ok(TailLines::All), Ok(TailLines::Last(20))));
        assert!(tail("some").unwrap_err().contains("or all"));
        assert!(tail("1000001").is_err());
    }

    #[test]
    fn the_tail_is_counted_in_lines() {
        let check = |pieces: &[&'static str], n_lines: u32, expected: &str| {
            let mut tail = Tail::new(n_lines);
            for (number, piece) in pieces.iter().enumerate() {
                let body = EntryBody::Stdout(Bytes::from_static(piece.as_bytes()));
                tail.push(Entry { number: number as u64 + 1, at_ms: 0, body });
            }
            let kept = tail.entries();
            let text: Vec<u8> = kept.iter().flat_map(|entry| entry.output().unwrap().1.to_vec()).collect();
            assert_eq!(String::from_utf8(text).unwrap(), expected, "{pieces:?} {n_lines}");
        };
        check(&["a\nb\nc\n"], 2, "b\nc\n");
        check(&["a\n", "b\n", "c\n"], 2, "b\nc\n");
        check(&["a\nb\n", "c"], 2, "b\nc");
        check(&["a\nb", "b\nc\n"], 2, "bb\nc\n");
        check(&["a\n"], 5, "a\n");
        check(&["a\nb\n"], 0, "");
        check(&["x", "y", "z\n"], 1, "xyz\n");
        check(&[], 3, "");
    }
}
