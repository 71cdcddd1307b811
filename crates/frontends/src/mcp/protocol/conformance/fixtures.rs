//! The fixtures, as the suite words them.

use std::{collections::HashMap, sync::LazyLock};

use rmcp::{ErrorData, model};
use serde::Deserialize;
use serde_json::Value;

use crate::mcp::schema::JsonObject;

#[derive(Debug, Deserialize)]
pub(super) struct Fixtures {
    pub(super) tools: Vec<model::Tool>,
    /// The results of tools that always answer the same.
    pub(super) results: HashMap<String, model::CallToolResult>,
    /// The requests for what a tool may need from the client, by the names that the suite looks for.
    pub(super) inputs: HashMap<String, model::InputRequest>,
    /// The questions of a tool to the user, where the revision lets a server ask.
    pub(super) elicitations: HashMap<String, model::ElicitRequestParams>,
    pub(super) resources: Vec<model::Resource>,
    contents: HashMap<String, model::ResourceContents>,
    pub(super) templates: Vec<model::ResourceTemplate>,
    pub(super) prompts: Vec<model::Prompt>,
    messages: HashMap<String, Value>,
}

impl Fixtures {
    pub(super) fn get() -> &'static Self {
        static FIXTURES: LazyLock<Fixtures> = LazyLock::new(|| {
            #[expect(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
            serde_json::from_str(include_str!("fixtures.json"))
                .expect("fixtures.json is not what it should be")
        });
        &FIXTURES
    }

    pub(super) fn contents(&self, uri: &str) -> Option<model::ResourceContents> {
        if let Some(contents) = self.contents.get(uri) {
            return Some(contents.clone());
        }
        let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
        let text =
            serde_json::json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
        Some(model::ResourceContents::text(text.to_string(), uri).with_mime_type("application/json"))
    }

    pub(super) fn messages(
        &self,
        prompt: &str,
        arguments: Option<&JsonObject>,
    ) -> Result<Vec<model::PromptMessage>, ErrorData> {
        let messages = self.messages.get(prompt);
        let messages = messages.ok_or_else(|| ErrorData::invalid_params("no such prompt", None))?;
        let filled = fill(messages.clone(), arguments);
        serde_json::from_value(filled).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}

/// Puts arguments in the place of `{name}`.
fn fill(value: Value, arguments: Option<&JsonObject>) -> Value {
    match value {
        Value::String(text) => {
            let filled = arguments.into_iter().flatten().fold(text, |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value.as_str().unwrap_or_default())
            });
            Value::String(filled)
        }
        Value::Array(items) => items.into_iter().map(|item| fill(item, arguments)).collect(),
        Value::Object(object) => {
            object.into_iter().map(|(name, value)| (name, fill(value, arguments))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixtures_can_be_read() {
        let fixtures = Fixtures::get();
        assert!(fixtures.tools.len() > 20 && fixtures.inputs.len() == 8);
        let arguments = serde_json::json!({ "arg1": "a", "arg2": "b" });
        let messages = fixtures.messages("test_prompt_with_arguments", arguments.as_object()).unwrap();
        assert!(format!("{messages:?}").contains("arg1='a', arg2='b'"), "{messages:?}");
    }
}
