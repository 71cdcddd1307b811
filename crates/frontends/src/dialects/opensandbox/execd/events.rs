//! Events of commands and code. Each is a JSON object and an empty line, although the media type says `event-stream`:
//! that is how its clients know them.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::dialects::opensandbox::handle::now_ms;

pub(super) const MEDIA_TYPE: &str = "text/event-stream";
/// The name by which OpenSandbox's clients know a command that ended with another status than 0.
const COMMAND_FAILED: &str = "CommandExecError";

/// Frames that are sent together.
#[derive(Debug, Default)]
pub(super) struct Frames(Vec<u8>);

impl Frames {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.0))
    }

    fn push(&mut self, kind: &str, field: &str, value: Value) {
        let mut event = Map::new();
        event.insert("type".to_owned(), json!(kind));
        event.insert(field.to_owned(), value);
        event.insert("timestamp".to_owned(), json!(now_ms()));
        // A map of values always serializes.
        self.0.extend(serde_json::to_vec(&event).unwrap_or_default());
        self.0.extend_from_slice(b"\n\n");
    }

    /// The first: the id by which the rest is found again.
    pub(super) fn init(&mut self, id: &str) {
        self.push("init", "text", json!(id));
    }

    pub(super) fn line(&mut self, stream: &str, text: &str) {
        self.push(stream, "text", json!(text));
    }

    pub(super) fn count(&mut self, n: u64) {
        self.push("execution_count", "execution_count", json!(n));
    }

    pub(super) fn result(&mut self, results: Value) {
        self.push("result", "results", results);
    }

    pub(super) fn error(&mut self, name: &str, value: &str, traceback: &[String]) {
        self.push("error", "error", json!({ "ename": name, "evalue": value, "traceback": traceback }));
    }

    pub(super) fn failed(&mut self, exit_code: u8, how: &str) {
        self.error(COMMAND_FAILED, &exit_code.to_string(), &[how.to_owned()]);
    }

    pub(super) fn complete(&mut self, took_ms: u64) {
        self.push("execution_complete", "execution_time", json!(took_ms));
    }

    pub(super) fn ping(&mut self) {
        self.push("ping", "text", json!("pong"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_an_object_and_an_empty_line() {
        let mut frames = Frames::default();
        frames.init("exc-1");
        frames.failed(3, "exited with 3");
        let text = String::from_utf8(frames.take().to_vec()).unwrap();
        let (first, rest) = text.split_once("\n\n").unwrap();
        let event: Value = serde_json::from_str(first).unwrap();
        assert_eq!((&event["type"], &event["text"]), (&json!("init"), &json!("exc-1")));
        let event: Value = serde_json::from_str(rest.strip_suffix("\n\n").unwrap()).unwrap();
        assert_eq!(
            event["error"],
            json!({ "ename": "CommandExecError", "evalue": "3", "traceback": ["exited with 3"] })
        );
        assert!(frames.is_empty());
    }
}
