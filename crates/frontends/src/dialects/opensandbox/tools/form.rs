//! How answers look: the fields themselves. A failure is one text, as theirs, but with its cause and the next call.

use serde_json::{Value, json};

use super::words;
use crate::mcp::{Answer, Failure, Form, JsonObject, KnownTools, Reply};

#[derive(Debug)]
pub(super) struct Plain;

impl Form for Plain {
    fn schema(&self, data: &Value) -> Option<JsonObject> {
        match data["type"] == "array" {
            true => json!({ "type": "object", "properties": { "result": data }, "required": ["result"] })
                .as_object()
                .cloned(),
            false => data.as_object().cloned(),
        }
    }

    /// A list is below `result`. Warnings stand beside the fields, where there are any.
    fn answer(&self, answer: Answer<Value>) -> Reply {
        let Answer { data, warnings, parts, .. } = answer;
        let mut data = match data {
            Value::Object(fields) => fields,
            list => JsonObject::from_iter([("result".to_owned(), list)]),
        };
        if !warnings.is_empty() {
            data.insert("warnings".to_owned(), warnings.into());
        }
        Reply { text: None, data: Some(Value::Object(data)), parts, error_code: None }
    }

    fn failure(&self, tool: &str, failure: Failure, _known: &KnownTools<'_>) -> Reply {
        let tool: String = tool.chars().take(64).collect();
        let told = failure.worded(words::hint);
        let cause = told.message.trim_end_matches('.');
        let text = match told.hint {
            Some(hint) => format!("Error executing tool {tool}: {cause}. {hint}"),
            None => format!("Error executing tool {tool}: {cause}."),
        };
        Reply { text: Some(text), data: None, parts: Vec::new(), error_code: Some(told.code.to_owned()) }
    }
}
