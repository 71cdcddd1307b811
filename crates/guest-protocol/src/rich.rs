//! A cell's results besides its output: values, pictures, errors, files. One JSON object per line, so that a reader who
//! missed the beginning can continue at the next line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One value in several forms, by MIME type. Text is text, JSON (`application/json`, `…+json`) is JSON, everything else
/// is base64.
pub type MimeBundle = BTreeMap<String, Value>;

/// One record of the rich stream. The workload can write all of these; none is more trusted than its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Rich {
    /// The value of the last expression.
    Result { data: MimeBundle },
    /// Something the code displayed: a figure, `display(…)`.
    Display { data: MimeBundle },
    /// The exception that ended the cell.
    Error {
        name: String,
        value: String,
        /// Trimmed to the lines of the caller's own code.
        traceback: String,
    },
    /// A sentence for the caller.
    Warning { message: String },
    /// Files below the working directory that were created or changed, by path.
    Files {
        files: Vec<ChangedFile>,
        /// There are more, or not everything could be searched.
        #[serde(default)]
        truncated: bool,
    },
    /// The last record of a cell in a context: whether its variables survived.
    State {
        kept: bool,
        /// Why they are gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost: Option<StateLoss>,
        /// It was stopped by an interrupt, ours or the caller's.
        #[serde(default)]
        interrupted: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedFile {
    pub path: String,
    pub size: u64,
    pub change: FileChange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileChange {
    Created,
    Modified,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StateLoss {
    /// The interpreter exited by itself.
    Exited,
    /// A signal ended it: a crash.
    Crashed,
    OutOfMemory,
    /// It did not react to an interrupt in time and was killed.
    Killed,
    /// It broke the protocol of its channel and was killed.
    Garbled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_lines_of_plain_json() {
        let check = |line: &str| {
            let record: Rich = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&record).unwrap(), line);
        };
        check(r#"{"type":"result","data":{"application/json":{"a":1},"text/plain":"{'a': 1}"}}"#);
        check(r#"{"type":"error","name":"ZeroDivisionError","value":"division by zero","traceback":"…"}"#);
        check(
            r#"{"type":"files","files":[{"path":"/root/a","size":3,"change":"created"}],"truncated":false}"#,
        );
        check(r#"{"type":"state","kept":false,"lost":"outOfMemory","interrupted":false}"#);
    }
}
