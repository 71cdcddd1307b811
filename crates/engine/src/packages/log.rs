//! The last lines of what an install printed, from the ledger of its exec.

use sandbox::ExecId;
use store::{EntryKind, Item};

use crate::{disk::may_block, error, shared::Shared};

/// Lines that a view shows.
const MAX_LINES: usize = 20;
/// Entries at the end of the ledger that are read for them.
const MAX_ENTRIES: u64 = 256;

pub(super) fn last_lines(shared: &Shared, exec: &ExecId) -> Vec<String> {
    let Ok(ledger) = shared.ledger() else { return Vec::new() };
    let text = may_block(|| {
        let last = match shared.execs.get(exec) {
            Some(live) => live.last_number(),
            None => ledger.last_number(exec).unwrap_or(0),
        };
        let mut text = Vec::new();
        let Ok(mut reader) = ledger.reader(exec, last.saturating_sub(MAX_ENTRIES).max(1)) else {
            return text;
        };
        while let Ok(Some(item)) = reader.next() {
            match item {
                Item::Entry(entry) if matches!(entry.kind, EntryKind::Stdout | EntryKind::Stderr) => {
                    text.extend_from_slice(&entry.data);
                }
                Item::Entry(_) | Item::Trimmed { .. } => {}
            }
        }
        text
    });
    lines_of(&text)
}

fn lines_of(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let lines = text.split(['\n', '\r']).filter(|line| !line.trim().is_empty());
    let lines: Vec<_> = lines.map(|line| error::readable(line).trim_end().to_owned()).collect();
    lines[lines.len().saturating_sub(MAX_LINES)..].to_vec()
}

/// The line that best says why an install failed.
pub(super) fn complaint(lines: &[String]) -> Option<&str> {
    let marks = ["ERROR: ", "E: ", "dpkg: error", "npm ERR! code", "npm error code", "error: ", "× "];
    // Of several complaints of pip and apt the last one sums up; npm begins with its code.
    let is_complaint = |line: &&String| marks.iter().any(|mark| line.starts_with(mark));
    lines.iter().rev().find(is_complaint).or_else(|| lines.last()).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shown_without_what_plays_with_terminals() {
        let text: String = (0..50).map(|n| format!("\x1b[1mline {n}\n\n")).collect();
        let lines = lines_of(text.as_bytes());
        assert_eq!((lines.len(), lines[MAX_LINES - 1].as_str()), (MAX_LINES, "[1mline 49"));
        assert_eq!(lines_of(b"10%\r20%\rdone"), ["10%", "20%", "done"]);
    }

    #[test]
    fn the_complaint_is_found() {
        let lines = ["Looking", "ERROR: No matching distribution found for x", "", "bye"].map(str::to_owned);
        assert_eq!(complaint(&lines), Some("ERROR: No matching distribution found for x"));
        assert_eq!(complaint(&lines[..1]), Some("Looking"));
        assert_eq!(complaint(&[]), None);
    }
}
