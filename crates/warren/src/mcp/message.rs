//! The parts of a message that the bridge looks at.

use sandbox::{Error, ErrorKind};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use crate::error::hint;

/// In the range that JSON-RPC leaves to servers.
const UNAVAILABLE: i32 = -32000;
const INVALID_REQUEST: i32 = -32600;
const PARSE_ERROR: i32 = -32700;

const TOOL_CALL: &str = "tools/call";
/// Requests that change nothing except what the daemon knows about this client.
const LOOKS: [&str; 11] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
];
/// Tools whose work continues in the sandbox when the daemon is gone.
const RUNS: [&str; 4] = ["sandbox_exec", "sandbox_shell", "sandbox_exec_start", "sandbox_run"];
/// In the `_meta` of a request whose revision has no sessions.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// From this protocol version on, results state their type.
const TYPED_RESULTS: &str = "2026-07-28";

/// The fields that matter here; everything else is passed through.
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
    #[serde(rename = "_meta")]
    meta: Option<Value>,
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

/// A request that is waiting for its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) id: Value,
    method: String,
    /// For a call of a tool.
    tool: Option<String>,
    has_typed_result: bool,
}

impl Asked {
    /// None if it is not a request.
    pub(super) fn of(message: Message) -> Option<Self> {
        let (id, method) = (message.id?, message.method?);
        let tool = message.params.name.and_then(|name| name.as_str().map(str::to_owned));
        let version = message.params.meta.as_ref().and_then(|meta| meta.get(VERSION_KEY)?.as_str());
        let has_typed_result = version.is_some_and(|version| version >= TYPED_RESULTS);
        Some(Self { id, tool: tool.filter(|_| method == TOOL_CALL), method, has_typed_result })
    }

    /// Whether the request can safely be repeated.
    pub(super) fn is_read_only(&self) -> bool {
        match &self.tool {
            Some(tool) => frontends::mcp::is_read_only(tool),
            None => LOOKS.contains(&self.method.as_str()),
        }
    }

    /// The answer if the daemon stopped while it may have been working on this request.
    pub(super) fn lost(&self) -> Vec<u8> {
        let is_read_only = self.is_read_only();
        let hint = match self.tool.as_deref() {
            _ if is_read_only => "Call it again.",
            Some(tool) if RUNS.contains(&tool) => {
                "Call sandbox_exec_list to see what is running, then sandbox_exec_poll to read its output."
            }
            _ => "Check the state with sandbox_list before calling again.",
        };
        let error =
            Error::new(ErrorKind::Unavailable, "the daemon stopped while it was working on this request");
        self.failed(&error.with_hint(hint), is_read_only)
    }

    /// The answer if the request reached no daemon.
    pub(super) fn refused(&self, error: &Error) -> Vec<u8> {
        let kind = error.kind();
        self.failed(error, kind == ErrorKind::Unavailable || kind.is_retryable())
    }

    /// As a tool result, or as a protocol error if the request is not a tool call.
    fn failed(&self, error: &Error, retryable: bool) -> Vec<u8> {
        if self.tool.is_none() {
            return failure(&self.id, UNAVAILABLE, error, retryable);
        }
        let mut told =
            json!({ "code": error.kind().as_str(), "message": error.to_string(), "retryable": retryable });
        if let Some(hint) = hint(error) {
            told["hint"] = hint.into();
        }
        let envelope = json!({ "ok": false, "error": told });
        let content = json!([{ "type": "text", "text": envelope.to_string() }]);
        let mut result = json!({ "content": content, "structuredContent": envelope, "isError": true });
        if self.has_typed_result {
            result["resultType"] = "complete".into();
        }
        written(&json!({ "jsonrpc": "2.0", "id": self.id, "result": result }))
    }
}

/// The answer to a line that is not JSON. An empty line needs none.
pub(super) fn unreadable(line: &[u8]) -> Option<Vec<u8>> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    let error = serde_json::from_slice::<IgnoredAny>(line).err()?;
    let error = Error::invalid(format!("the line is not JSON: {error}"));
    Some(failure(&Value::Null, PARSE_ERROR, &error, false))
}

pub(super) fn too_long(max: usize) -> Vec<u8> {
    let error = Error::invalid(format!("the message is longer than {max} bytes"));
    failure(&Value::Null, INVALID_REQUEST, &error, false)
}

fn failure(id: &Value, code: i32, error: &Error, retryable: bool) -> Vec<u8> {
    let data = json!({ "code": error.kind().as_str(), "hint": hint(error), "retryable": retryable });
    let error = json!({ "code": code, "message": error.to_string(), "data": data });
    written(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

fn written(message: &Value) -> Vec<u8> {
    format!("{message}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(method: &str, params: Value) -> Value {
        let line = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let asked = Asked::of(Message::read(line.as_bytes()).unwrap()).unwrap();
        serde_json::from_slice(&asked.lost()).unwrap()
    }

    #[test]
    fn a_lost_call_is_answered_in_the_envelope_with_what_to_do_next() {
        for (tool, retryable, hint) in [
            ("sandbox_list", true, "Call it again."),
            ("sandbox_exec", false, "sandbox_exec_list"),
            ("sandbox_run", false, "sandbox_exec_poll"),
            ("sandbox_remove", false, "sandbox_list"),
        ] {
            let answer = lost("tools/call", json!({ "name": tool }));
            let (result, error) = (&answer["result"], &answer["result"]["structuredContent"]["error"]);
            assert_eq!((&answer["id"], &result["isError"]), (&json!(7), &json!(true)), "{answer}");
            let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(text, result["structuredContent"]);
            assert_eq!((&error["code"], &error["retryable"]), (&json!("unavailable"), &json!(retryable)));
            assert!(error["hint"].as_str().unwrap().contains(hint), "{tool}: {error}");
            assert!(result.get("resultType").is_none());
        }
        let typed = lost("tools/call", json!({ "name": "x", "_meta": { VERSION_KEY: TYPED_RESULTS } }));
        assert_eq!(typed["result"]["resultType"], "complete");
        assert_eq!(lost("resources/subscribe", json!({ "uri": "x" }))["error"]["code"], UNAVAILABLE);
    }

    #[test]
    fn only_what_is_not_json_is_unreadable() {
        assert!(
            unreadable(b"\r\n").is_none() && unreadable(b"{}\n").is_none() && unreadable(b"[1]\n").is_none()
        );
        let answer: Value = serde_json::from_slice(&unreadable(b"{\"id\": 1\n").unwrap()).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(PARSE_ERROR)));
    }
}
