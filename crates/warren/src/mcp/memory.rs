//! What the bridge remembers of a session, so that the next daemon can take it over without the client noticing.

use std::collections::HashMap;

use serde_json::Value;

use super::message::Message;

/// Messages that are said again to a new daemon: subscriptions, and toolsets that were enabled.
const MAX_REMEMBERED: usize = 256;
/// Ids of ours; a client's own never look so.
const REPLAY_PREFIX: &str = "warren-replay-";

#[derive(Debug, Default)]
pub(super) struct Memory {
    initialize: Option<Vec<u8>>,
    initialized: Option<Vec<u8>>,
    /// By what they are about, so that the last one counts; with the order they came in.
    again: HashMap<String, (u64, Value)>,
    n_again: u64,
    /// Requests that have no answer yet, by their ids as JSON.
    open: HashMap<String, Value>,
}

impl Memory {
    /// A message of the client.
    pub(super) fn sent(&mut self, line: &[u8]) {
        let Some(message) = Message::read(line) else { return };
        match message.method.as_deref() {
            Some("initialize") => {
                self.initialize = Some(line.to_vec());
                self.initialized = None;
                self.again.clear();
            }
            Some("notifications/initialized") => self.initialized = Some(line.to_vec()),
            Some("notifications/cancelled") => {
                if let Some(id) = message.params.request_id {
                    self.open.remove(&id.to_string());
                }
                return;
            }
            Some("resources/subscribe") => self.remember("subscribe", message.params.uri.as_ref(), line),
            Some("resources/unsubscribe") => {
                self.again.remove(&about("subscribe", message.params.uri.as_ref()));
            }
            Some("tools/call") if message.params.name == Some(Value::from("toolset_enable")) => {
                self.remember("enable", Some(&Value::from(self.n_again)), line);
            }
            _ => {}
        }
        if let (true, Some(id)) = (message.method.is_some(), message.id) {
            self.open.insert(id.to_string(), id);
        }
    }

    /// A message of the daemon.
    pub(super) fn received(&mut self, line: &[u8]) {
        if let Some(Message { id: Some(id), method: None, .. }) = Message::read(line) {
            self.open.remove(&id.to_string());
        }
    }

    fn remember(&mut self, what: &str, which: Option<&Value>, line: &[u8]) {
        let Ok(message) = serde_json::from_slice(line) else { return };
        if self.again.len() < MAX_REMEMBERED {
            self.again.insert(about(what, which), (self.n_again, message));
            self.n_again += 1;
        }
    }

    /// Requests that will not be answered any more.
    pub(super) fn take_open(&mut self) -> Vec<Value> {
        self.open.drain().map(|(_, id)| id).collect()
    }

    /// What a new daemon has to hear before it can go on where the last one was.
    pub(super) fn retold(&self) -> Vec<Vec<u8>> {
        let mut again: Vec<_> = self.again.values().collect();
        again.sort_by_key(|(order, _)| *order);
        let renamed = again.into_iter().map(|(order, message)| {
            let mut message = message.clone();
            message["id"] = Value::from(format!("{REPLAY_PREFIX}{order}"));
            format!("{message}\n").into_bytes()
        });
        let beginning = self.initialize.iter().chain(&self.initialized).cloned();
        beginning.chain(renamed).collect()
    }
}

fn about(what: &str, which: Option<&Value>) -> String {
    format!("{what} {}", which.unwrap_or(&Value::Null))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(message: Value) -> Vec<u8> {
        format!("{message}\n").into_bytes()
    }

    fn request(id: u64, method: &str, params: Value) -> Vec<u8> {
        line(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    #[test]
    fn a_session_can_be_told_again() {
        let mut memory = Memory::default();
        let hello = request(0, "initialize", json!({ "protocolVersion": "2025-11-25" }));
        let ready = line(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        memory.sent(&hello);
        memory.received(&line(json!({ "jsonrpc": "2.0", "id": 0, "result": {} })));
        memory.sent(&ready);
        memory.sent(&request(1, "resources/subscribe", json!({ "uri": "warren://a" })));
        memory.sent(&request(2, "resources/subscribe", json!({ "uri": "warren://b" })));
        memory.sent(&request(3, "resources/unsubscribe", json!({ "uri": "warren://a" })));
        let enable = json!({ "name": "toolset_enable", "arguments": { "toolsets": ["files"] } });
        memory.sent(&request(4, "tools/call", enable));
        let retold = memory.retold();
        assert_eq!(retold[0], hello);
        let retold: Vec<Value> = retold.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
        let methods: Vec<_> = retold.iter().map(|message| message["method"].clone()).collect();
        assert_eq!(methods, ["initialize", "notifications/initialized", "resources/subscribe", "tools/call"]);
        assert!(retold[2]["id"].as_str().unwrap().starts_with(REPLAY_PREFIX), "{retold:?}");
    }

    #[test]
    fn what_was_cancelled_or_answered_is_not_open() {
        let mut memory = Memory::default();
        for id in 1..4 {
            memory.sent(&request(id, "tools/call", json!({ "name": "sandbox_exec" })));
        }
        memory.received(&line(json!({ "jsonrpc": "2.0", "id": 1, "result": {} })));
        memory.sent(&line(
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } }),
        ));
        assert_eq!(memory.take_open(), [json!(3)]);
        assert!(memory.take_open().is_empty());
    }
}
