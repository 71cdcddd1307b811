//! Bodies on `/mcp`: raw ones, and calls of real tools with hostile arguments.
#![no_main]

use arbitrary::Arbitrary;
use axum::http::Method;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use warren_fuzz::Daemon;

const TOOLS: [&str; 12] = [
    "sandbox_create",
    "sandbox_list",
    "sandbox_exec",
    "sandbox_run_code",
    "sandbox_fs_read",
    "sandbox_fs_write",
    "sandbox_fs_search",
    "volume_create",
    "snapshot_create",
    "image_list",
    "toolset_enable",
    "sandbox_logs",
];
const NAMES: [&str; 10] =
    ["name", "sandbox", "command", "code", "path", "content", "image", "env", "timeoutMs", "limit"];

#[derive(Debug, Arbitrary)]
enum Message {
    Raw(Vec<u8>),
    Call { tool: u8, arguments: Vec<(u8, Argument)> },
    Method { method: String, params: String },
}

#[derive(Debug, Arbitrary)]
enum Argument {
    Known,
    Text(String),
    Number(i64),
    Fraction(f64),
    Flag(bool),
    List(Vec<String>),
    Map(Vec<(String, String)>),
    Null,
}

impl Argument {
    fn value(&self) -> Value {
        match self {
            Self::Known => json!("known"),
            Self::Text(text) => json!(text),
            Self::Number(number) => json!(number),
            Self::Fraction(number) => json!(number),
            Self::Flag(flag) => json!(flag),
            Self::List(list) => json!(list),
            Self::Map(map) => map.iter().cloned().map(|(name, value)| (name, json!(value))).collect(),
            Self::Null => Value::Null,
        }
    }
}

fn body(message: &Message) -> Vec<u8> {
    let (method, params) = match message {
        Message::Raw(bytes) => return bytes.clone(),
        Message::Method { method, params } => {
            (method.clone(), serde_json::from_str(params).unwrap_or(Value::Null))
        }
        Message::Call { tool, arguments } => {
            let name = TOOLS[usize::from(*tool) % TOOLS.len()];
            let named = |name: &u8| NAMES[usize::from(*name) % NAMES.len()].to_owned();
            let arguments: Value =
                arguments.iter().map(|(name, value)| (named(name), value.value())).collect();
            ("tools/call".to_owned(), json!({ "name": name, "arguments": arguments }))
        }
    };
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string().into_bytes()
}

fuzz_target!(|message: Message| {
    let headers = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    Daemon::get().ask(Method::POST, "/mcp", &headers, &body(&message));
});
