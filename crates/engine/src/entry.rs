//! An entry of an exec's ledger, decoded. Only this file encodes and decodes entries, for the ledger and for REST's
//! frames.

use bytes::Bytes;
use guest_protocol::ExitReport;
use sandbox::ExecOutcome;
use serde::{Deserialize, Serialize};
use store::{EntryKind, Item};

/// The code of `Trimmed` in frames. The ledger has no such entries, and no kind with this code.
const TRIMMED_CODE: u8 = 0;

/// One event of an exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// From 1, without gaps; for `Trimmed` the last missing number.
    pub number: u64,
    /// Milliseconds since 1970; 0 for `Trimmed`.
    pub at_ms: i64,
    pub body: EntryBody,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryBody {
    /// Without a pid if the ledger's entry cannot be read.
    Started {
        pid: Option<i32>,
    },
    Stdin(Bytes),
    Stdout(Bytes),
    Stderr(Bytes),
    /// A piece of a cell's results besides its output, for a [`crate::RichReader`].
    Rich(Bytes),
    /// `None` if the ledger's entry cannot be read.
    Exited(Option<ExitEntry>),
    /// No process holds the output any more; nothing follows.
    Closed,
    /// The entries from this number to the entry's own are gone.
    Trimmed {
        from: u64,
    },
}

/// The two streams that a command prints to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Data of `Started`, as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartEntry {
    pub(crate) pid: i32,
}

/// How an exec ended; data of `Exited`, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitEntry {
    /// The guest's report; absent if the guest could no longer report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ExitReport>,
    pub outcome: ExecOutcome,
}

/// Data of `Trimmed`, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct TrimmedEntry {
    from: u64,
    through: u64,
}

impl Entry {
    /// The command's output, and its stream.
    pub fn output(&self) -> Option<(OutputStream, &Bytes)> {
        match &self.body {
            EntryBody::Stdout(bytes) => Some((OutputStream::Stdout, bytes)),
            EntryBody::Stderr(bytes) => Some((OutputStream::Stderr, bytes)),
            _ => None,
        }
    }

    /// How the exec ended, if this entry is readable and says so.
    pub fn outcome(&self) -> Option<&ExecOutcome> {
        match &self.body {
            EntryBody::Exited(Some(exit)) => Some(&exit.outcome),
            _ => None,
        }
    }

    /// Whether it is the last entry for a follower.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self.body, EntryBody::Exited(_) | EntryBody::Closed)
    }

    /// The code of its kind and its data.
    pub fn encode(&self) -> (u8, Bytes) {
        let bytes = |kind: EntryKind, bytes: &Bytes| (kind.code(), bytes.clone());
        match &self.body {
            EntryBody::Started { pid } => {
                let data = pid.map(|pid| json(&StartEntry { pid })).unwrap_or_default();
                (EntryKind::Started.code(), data)
            }
            EntryBody::Stdin(data) => bytes(EntryKind::Stdin, data),
            EntryBody::Stdout(data) => bytes(EntryKind::Stdout, data),
            EntryBody::Stderr(data) => bytes(EntryKind::Stderr, data),
            EntryBody::Rich(data) => bytes(EntryKind::Rich, data),
            EntryBody::Exited(exit) => {
                (EntryKind::Exited.code(), exit.as_ref().map(json).unwrap_or_default())
            }
            EntryBody::Closed => (EntryKind::Closed.code(), Bytes::new()),
            EntryBody::Trimmed { from } => {
                (TRIMMED_CODE, json(&TrimmedEntry { from: *from, through: self.number }))
            }
        }
    }

    /// Decodes the result of [`Entry::encode`]; `None` if no kind has this code.
    pub fn decode(number: u64, at_ms: i64, code: u8, data: Bytes) -> Option<Self> {
        let body = match EntryKind::from_code(code) {
            Some(kind) => decode_body(kind, data),
            None if code == TRIMMED_CODE => {
                EntryBody::Trimmed { from: parse(&data).map_or(1, |gone: TrimmedEntry| gone.from) }
            }
            None => return None,
        };
        Some(Self { number, at_ms, body })
    }

    /// The content of an entry that is not a piece of a stream, as JSON.
    pub fn facts(&self) -> Option<serde_json::Value> {
        match self.body {
            EntryBody::Started { .. } | EntryBody::Exited(_) | EntryBody::Trimmed { .. } => {
                parse(&self.encode().1)
            }
            _ => None,
        }
    }
}

impl From<store::Entry> for Entry {
    fn from(entry: store::Entry) -> Self {
        Self { number: entry.number, at_ms: entry.at_ms, body: decode_body(entry.kind, entry.data) }
    }
}

impl From<Item> for Entry {
    fn from(item: Item) -> Self {
        match item {
            Item::Entry(entry) => entry.into(),
            Item::Trimmed { from, through } => {
                Self { number: through, at_ms: 0, body: EntryBody::Trimmed { from } }
            }
        }
    }
}

fn decode_body(kind: EntryKind, data: Bytes) -> EntryBody {
    match kind {
        EntryKind::Started => EntryBody::Started { pid: parse(&data).map(|start: StartEntry| start.pid) },
        EntryKind::Stdin => EntryBody::Stdin(data),
        EntryKind::Stdout => EntryBody::Stdout(data),
        EntryKind::Stderr => EntryBody::Stderr(data),
        EntryKind::Rich => EntryBody::Rich(data),
        EntryKind::Exited => EntryBody::Exited(parse(&data)),
        EntryKind::Closed => EntryBody::Closed,
    }
}

fn parse<T: serde::de::DeserializeOwned>(data: &[u8]) -> Option<T> {
    serde_json::from_slice(data).ok()
}

/// These types always serialize.
pub(crate) fn json<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_reads_back() {
        let exit = ExitEntry { report: None, outcome: ExecOutcome::exited(3) };
        for body in [
            EntryBody::Started { pid: Some(7) },
            EntryBody::Started { pid: None },
            EntryBody::Stdin("in".into()),
            EntryBody::Stdout("\u{fffd}".into()),
            EntryBody::Stderr(Bytes::from_static(b"\xff")),
            EntryBody::Rich("{}\n".into()),
            EntryBody::Exited(Some(exit)),
            EntryBody::Exited(None),
            EntryBody::Closed,
            EntryBody::Trimmed { from: 2 },
        ] {
            let entry = Entry { number: 9, at_ms: 1, body };
            let (code, data) = entry.encode();
            assert_eq!(Entry::decode(9, 1, code, data), Some(entry));
        }
        assert_eq!(Entry::decode(1, 1, 99, Bytes::new()), None);
    }

    #[test]
    fn ledgers_of_earlier_versions_are_read() {
        let of = |code, data: &'static str| Entry::decode(1, 0, code, data.into()).map(|entry| entry.body);
        assert_eq!(of(1, r#"{"pid":42}"#), Some(EntryBody::Started { pid: Some(42) }));
        let Some(EntryBody::Exited(Some(exit))) = of(5, r#"{"outcome":{"type":"exited","code":2}}"#) else {
            panic!("an end cannot be read");
        };
        assert_eq!((exit.report, exit.outcome), (None, ExecOutcome::exited(2)));
        assert_eq!(of(5, "torn"), Some(EntryBody::Exited(None)));
        assert_eq!(of(7, "{}"), Some(EntryBody::Rich("{}".into())));
    }
}
