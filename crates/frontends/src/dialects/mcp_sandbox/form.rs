//! How answers look: the fields themselves, without an envelope.

use serde_json::{Map, Value, json};

use super::words;
use crate::mcp::{Answer, Failure, Form, JsonObject, KnownTools, Reply, WordedFailure};

/// Answers are an object, or a list below `result`. Failures are marked as such, which theirs are not.
#[derive(Debug)]
pub(super) struct Plain;

impl Form for Plain {
    fn schema(&self, data: &Value) -> Option<JsonObject> {
        let schema = match data["type"] == "array" {
            // Tells their framework's clients to unwrap it again.
            true => json!({
                "type": "object",
                "properties": { "result": { "type": "array", "items": {} } },
                "required": ["result"],
                "x-fastmcp-wrap-result": true,
            }),
            false => json!({ "type": "object", "additionalProperties": true }),
        };
        schema.as_object().cloned()
    }

    fn answer(&self, answer: Answer<Value>) -> Reply {
        let Answer { data, mut warnings, truncated, parts } = answer;
        warnings.extend(truncated.into_iter().map(|cut| {
            let (field, kept, all) = (cut.field, cut.returned_bytes, cut.total_bytes);
            format!("{field} holds {kept} of {all} bytes; write long output to a file.")
        }));
        match data {
            Value::Object(mut body) => {
                if !warnings.is_empty() {
                    body.insert("warnings".to_owned(), Value::from(warnings));
                }
                Reply { text: None, data: Some(Value::Object(body)), parts, error_code: None }
            }
            list => Reply {
                text: Some(list.to_string()),
                data: Some(json!({ "result": list })),
                parts,
                error_code: None,
            },
        }
    }

    /// `error` and `message` are both words: clients of theirs read one or the other. The details are the fields that a
    /// tool's answer would have.
    fn failure(&self, _tool: &str, failure: Failure, _known: &KnownTools<'_>) -> Reply {
        let WordedFailure { code, message, hint, details, .. } = failure.worded(words::hint);
        let mut body = match details {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        let told = match hint {
            Some(hint) => format!("{} {hint}", sentence(&message)),
            None => message.clone(),
        };
        body.insert("error".to_owned(), message.into());
        body.insert("message".to_owned(), told.into());
        body.insert("code".to_owned(), code.into());
        Reply {
            text: None,
            data: Some(Value::Object(body)),
            parts: Vec::new(),
            error_code: Some(code.to_owned()),
        }
    }
}

/// With a full stop, so that another can follow.
pub(super) fn sentence(message: &str) -> String {
    format!("{}.", message.trim_end_matches('.'))
}
