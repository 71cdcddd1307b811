//! Requests whose params are not what the protocol says. The library takes them for methods that it does not know.

use rmcp::{ErrorData, model};
use serde_json::Value;

use crate::mcp::{envelope::Failure, schema::JsonObject};

pub(super) const CALL: &str = "tools/call";

/// Methods that are known, so that what is wrong with a request must be its params.
const KNOWN: [&str; 12] = [
    "initialize",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    CALL,
];

/// A misshapen call, as far as it can be read.
#[derive(Debug)]
pub(super) enum Misshapen {
    /// Models like to send the arguments as a text that holds them.
    Readable(Box<model::CallToolRequestParams>),
    Failed {
        tool: String,
        failure: Failure,
    },
}

pub(super) fn read(params: Option<Value>) -> Result<Misshapen, ErrorData> {
    let Some(Value::Object(mut params)) = params else {
        return Err(invalid("the params of tools/call are not an object"));
    };
    let tool = match params.get("name") {
        Some(Value::String(name)) => name.clone(),
        Some(_) => return Err(invalid("the name of the tool is not a string")),
        None => return Err(invalid("tools/call needs the name of a tool in params.name")),
    };
    let arguments = match params.remove("arguments") {
        None | Some(Value::Null) => Some(None),
        Some(Value::Object(arguments)) => Some(Some(arguments)),
        Some(Value::String(text)) => serde_json::from_str::<JsonObject>(&text).ok().map(Some),
        Some(_) => None,
    };
    let Some(arguments) = arguments else {
        let failure = Failure::invalid("arguments is not an object")
            .with_hint(format!("Call {} again with arguments as a JSON object.", shown(&tool)));
        return Ok(Misshapen::Failed { tool, failure });
    };
    params.extend(arguments.map(|arguments| ("arguments".to_owned(), Value::Object(arguments))));
    // Whatever is wrong still is in a part that only programs write.
    let request = serde_json::from_value(Value::Object(params))
        .map_err(|error| invalid(format!("invalid params for tools/call: {error}")))?;
    Ok(Misshapen::Readable(Box::new(request)))
}

pub(super) fn refusal(method: &str) -> ErrorData {
    if KNOWN.contains(&method) {
        return invalid(format!("invalid params for {method}"));
    }
    ErrorData::new(model::ErrorCode::METHOD_NOT_FOUND, format!("no method {}", shown(method)), None)
}

fn invalid(message: impl Into<String>) -> ErrorData {
    ErrorData::invalid_params(message.into(), None)
}

fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}
