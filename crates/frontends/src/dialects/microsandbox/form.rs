//! Answers are JSON to be read, failures one line. Hints are left out: they name tools of other surfaces.

use serde_json::Value;

use crate::mcp::{Answer, Failure, Form, JsonObject, KnownTools, Reply};

#[derive(Debug)]
pub(super) struct Plain;

impl Form for Plain {
    fn schema(&self, _data: &Value) -> Option<JsonObject> {
        None
    }

    fn answer(&self, answer: Answer<Value>) -> Reply {
        let text = serde_json::to_string_pretty(&answer.data).unwrap_or_default();
        Reply { text: Some(text), data: None, parts: answer.parts, error_code: None }
    }

    fn failure(&self, _tool: &str, failure: Failure, _known: &KnownTools<'_>) -> Reply {
        let told = failure.worded(|_error| None);
        let text = Some(format!("Error: {}", told.message));
        Reply { text, data: None, parts: Vec::new(), error_code: Some(told.code.to_owned()) }
    }
}
