//! The position of a reader of a sandbox's log: behind one line of one exec, and behind all that was printed before it.

use std::{fmt, str::FromStr};

use sandbox::ExecId;

use crate::mcp::Failure;

/// The position of a line in the order of the whole log: by time; at the same time by exec, the older one first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogPosition {
    pub(super) at_ms: i64,
    pub(super) exec: Rank,
    pub(super) number: u64,
    /// The end of the line in the data of its ledger entry.
    pub(super) end: u64,
}

/// The order of execs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) created_ms: i64,
    pub(super) id: ExecId,
}

/// A position as text. It holds all that is needed to find it again, so it outlives the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cursor {
    Beginning,
    Behind(LogPosition),
}

const BEGINNING: &str = "0";
const MALFORMED: &str =
    "Pass on nextCursor or the cursor of an entry as it was given, or leave fromCursor out.";

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beginning => f.write_str(BEGINNING),
            Self::Behind(LogPosition { at_ms, exec, number, end }) => {
                write!(f, "{at_ms}.{number}.{end}.{}.{}", exec.created_ms, exec.id)
            }
        }
    }
}

impl FromStr for Cursor {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        if text == BEGINNING {
            return Ok(Self::Beginning);
        }
        let read = || {
            let mut parts = text.splitn(5, '.');
            let at_ms = parts.next()?.parse().ok()?;
            let number = parts.next()?.parse().ok()?;
            let end = parts.next()?.parse().ok()?;
            let created_ms = parts.next()?.parse().ok()?;
            let id = parts.next()?.parse().ok()?;
            Some(LogPosition { at_ms, exec: Rank { created_ms, id }, number, end })
        };
        read().map(Self::Behind).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            Failure::invalid(format!("fromCursor {shown:?} is not a cursor of a log")).with_hint(MALFORMED)
        })
    }
}

impl Cursor {
    pub(super) fn position(&self) -> Option<&LogPosition> {
        match self {
            Self::Beginning => None,
            Self::Behind(position) => Some(position),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_written_and_read_the_same() {
        for text in ["0", "1700000000123.7.4096.1699999999999.exc-0123456789abc"] {
            assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        }
        for wrong in ["", "1", "1.2.3.4", "1.2.3.4.sbx-0123456789abc", "x.2.3.4.exc-0123456789abc"] {
            assert_eq!(wrong.parse::<Cursor>().unwrap_err().code(), "invalid_request", "{wrong:?}");
        }
    }
}
