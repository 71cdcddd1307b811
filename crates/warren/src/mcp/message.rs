//! As much of a message as the bridge has to know.

use sandbox::{Error, ErrorKind};
use serde::Deserialize;
use serde_json::{Value, json};

/// In the range that JSON-RPC leaves to servers.
const UNAVAILABLE: i32 = -32000;
const INVALID_REQUEST: i32 = -32600;

/// What is looked at; everything else passes unread.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub(super) id: Option<Value>,
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) params: Params,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Params {
    pub(super) name: Option<Value>,
    pub(super) uri: Option<Value>,
    #[serde(rename = "requestId")]
    pub(super) request_id: Option<Value>,
}

impl Message {
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    pub(super) fn is_request(&self) -> bool {
        self.id.is_some() && self.method.is_some()
    }

    pub(super) fn is_answer(&self) -> bool {
        self.id.is_some() && self.method.is_none()
    }
}

/// Answers a request that the daemon cannot.
pub(super) fn unavailable(id: &Value, error: &Error) -> Vec<u8> {
    let kind = error.kind();
    failure(id, UNAVAILABLE, error, kind == ErrorKind::Unavailable || kind.is_retryable())
}

pub(super) fn too_long(max: usize) -> Vec<u8> {
    let error = Error::invalid(format!("the message is longer than {max} bytes"));
    failure(&Value::Null, INVALID_REQUEST, &error, false)
}

fn failure(id: &Value, code: i32, error: &Error, retryable: bool) -> Vec<u8> {
    let data = json!({ "code": error.kind().as_str(), "hint": error.hint(), "retryable": retryable });
    let body = json!({
        "jsonrpc": "2.0",
        "id": id,
        "error": { "code": code, "message": error.message(), "data": data },
    });
    format!("{body}\n").into_bytes()
}
