//! Execs on the wire.

use base64::{Engine as _, prelude::BASE64_STANDARD};
pub use engine::{ExecView as Exec, OutputLine};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::code::FileLink;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecList {
    pub execs: Vec<Exec>,
}

/// Answer to a start: the exec, and with `wait=true` its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecResult {
    #[serde(flatten)]
    pub exec: Exec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<CapturedOutput>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<CapturedOutput>,
    /// With `trackFiles`: the files it created or changed below its working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileLink>>,
    /// With `wait=true`: what of its traffic was denied while it ran, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The output of one stream: all of it, or its head and tail.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapturedOutput {
    /// The output, when it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The output, when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Whether the middle was left out; read it with `GET …/output`.
    pub truncated: bool,
    /// Bytes that were printed in all.
    pub total_bytes: u64,
}

impl CapturedOutput {
    /// The bytes, whichever form they travelled in.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match (&self.text, &self.base64) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(coded)) => BASE64_STANDARD.decode(coded).ok(),
            (None, None) => Some(Vec::new()),
        }
    }
}

/// The body of a start is an `ExecSpec`, field by field.
pub type ExecRequest = sandbox::ExecSpec;

query!(ExecQuery {
    /// Answer when the command ended, with its output, instead of at once.
    #[serde(default)]
    pub wait: bool,
    /// With `wait`: answer after this long even if it is still running. The command continues.
    pub timeout_ms: Option<u64>,
});

query!(WaitExecQuery {
    /// Answer after this long with the exec as it is then.
    pub timeout_ms: Option<u64>,
});

query!(StdinQuery {
    /// The body's end is the end of stdin.
    #[serde(default)]
    pub close: bool,
});

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StdinWritten {
    pub bytes: u64,
}

query!(EntriesQuery {
    /// Number of the first entry wanted; 1 is the first. `Last-Event-ID` has the same effect and wins.
    pub from: Option<u64>,
    /// Keep the stream open until the command ended.
    #[serde(default)]
    pub follow: bool,
});

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Stdout,
    Stderr,
    #[default]
    Both,
}

query!(OutputQuery {
    #[serde(default)]
    #[param(inline)]
    pub stream: OutputStream,
    /// Bytes to leave out at the beginning.
    #[serde(default)]
    pub offset: u64,
    /// At most this many bytes.
    pub length: Option<u64>,
});

query!(SearchOutputQuery {
    /// The text to look for in each line, whatever its case.
    pub q: String,
    #[serde(default)]
    #[param(inline)]
    pub stream: OutputStream,
    /// Maximum number of lines; 200 by default, at most 1000.
    pub limit: Option<u32>,
    /// Where to search on: `next` of the search before.
    pub cursor: Option<String>,
});

/// Lines that were found in the output of a sandbox's commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputFound {
    /// By command, the newest first; those of one command as it printed them.
    pub lines: Vec<OutputLine>,
    /// Where to search on; absent when all was read. One search reads 32 MiB at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// When the search began: what is printed later is not in it.
    pub at: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignalRequest {
    /// Number of the signal: 15 is TERM, 9 is KILL, 2 is INT.
    pub signal: i32,
    #[serde(default)]
    pub scope: SignalScope,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SignalScope {
    /// The exec's first process.
    Process,
    /// Its whole process group.
    #[default]
    Group,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResizeRequest {
    pub rows: u16,
    pub cols: u16,
}
