//! The bridge's memory of a session, so that the next daemon can take it over without the client noticing.

use std::collections::HashMap;

use serde_json::Value;

use super::message::{Asked, Message};

/// Maximum number of messages to repeat to a new daemon: subscriptions, and toolsets that were enabled.
const MAX_REMEMBERED: usize = 256;
/// How many unanswered requests are kept to be repeated, and the maximum length of each.
const MAX_KEPT: usize = 256;
const MAX_KEPT_BYTES: usize = 64 * 1024;
/// Prefix of our own ids, which no client uses.
const REPLAY_PREFIX: &str = "warren-replay-";

#[derive(Debug, Default)]
pub(super) struct Memory {
    initialize: Option<Vec<u8>>,
    initialized: Option<Vec<u8>>,
    /// By subject, so that only the last one counts; with the order they came in.
    again: HashMap<String, (u64, Value)>,
    n_again: u64,
    /// Unanswered requests, by their ids as JSON.
    open: HashMap<String, Open>,
    n_sent: u64,
}

/// An unanswered request.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) asked: Asked,
    order: u64,
    /// The line to repeat, if that is possible.
    pub(super) line: Option<Vec<u8>>,
}

/// The requests whose daemon is gone: those to send again, and those to give up.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// In the order they were sent.
    pub(super) again: Vec<Open>,
    pub(super) never: Vec<Asked>,
}

impl Memory {
    /// Records a message of the client.
    pub(super) fn sent(&mut self, line: &[u8]) {
        self.n_sent += 1;
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
        if let Some(asked) = Asked::of(message) {
            let is_kept = line.len() <= MAX_KEPT_BYTES && self.open.len() < MAX_KEPT;
            let open = Open { order: self.n_sent, line: is_kept.then(|| line.to_vec()), asked };
            self.open.insert(open.asked.id.to_string(), open);
        }
    }

    /// Records a message of the daemon.
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

    /// Requests that will no longer be answered. `is_last_unread`: the daemon did not read the last line.
    pub(super) fn take_open(&mut self, is_last_unread: bool) -> Lost {
        let mut open: Vec<_> = self.open.drain().map(|(_, open)| open).collect();
        open.sort_by_key(|open| open.order);
        let mut lost = Lost::default();
        for open in open {
            let is_unread = is_last_unread && open.order == self.n_sent;
            match open.line.is_some() && (is_unread || open.asked.is_read_only()) {
                true => lost.again.push(open),
                false => lost.never.push(open.asked),
            }
        }
        lost
    }

    /// A request was repeated; it is not repeated again.
    pub(super) fn resent(&mut self, open: Open) {
        self.n_sent += 1;
        let open = Open { order: self.n_sent, line: None, ..open };
        self.open.insert(open.asked.id.to_string(), open);
    }

    /// The messages that a new daemon needs before it can continue the session.
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
        let lost = memory.take_open(false);
        assert_eq!(lost.never.iter().map(|asked| &asked.id).collect::<Vec<_>>(), [&json!(3)]);
        assert!(lost.again.is_empty() && memory.take_open(false).never.is_empty());
    }

    #[test]
    fn what_only_looks_or_was_not_read_is_said_once_more() {
        let mut memory = Memory::default();
        let ask = |memory: &mut Memory, id: u64, tool: &str| {
            memory.sent(&request(id, "tools/call", json!({ "name": tool })));
        };
        let ids = |lost: &Lost| {
            let again = lost.again.iter().map(|open| open.asked.id.as_u64().unwrap()).collect::<Vec<_>>();
            (again, lost.never.iter().map(|asked| asked.id.as_u64().unwrap()).collect::<Vec<_>>())
        };
        let ask_all = |memory: &mut Memory| {
            ask(memory, 1, "sandbox_list");
            ask(memory, 2, "sandbox_exec");
            memory.sent(&request(3, "tools/list", json!({})));
            ask(memory, 4, "sandbox_create");
        };
        ask_all(&mut memory);
        assert_eq!(ids(&memory.take_open(false)), (vec![1, 3], vec![2, 4]));
        ask_all(&mut memory);
        let lost = memory.take_open(true);
        assert_eq!(ids(&lost), (vec![1, 3, 4], vec![2]));
        lost.again.into_iter().for_each(|open| memory.resent(open));
        assert_eq!(ids(&memory.take_open(true)), (vec![], vec![1, 3, 4]));
    }
}
