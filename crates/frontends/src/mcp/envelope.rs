//! One shape for every answer and every failure: `{ok, data, warnings?, truncated?}` or `{ok: false, error}`.

use std::borrow::Cow;

use sandbox::{Error, ErrorKind, Thing};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    schema::JsonObject,
    surface::{Form, Reply},
};
pub(crate) use crate::output::Truncated;

/// What a tool answers.
#[derive(Debug)]
pub(crate) struct Answer<D> {
    pub(crate) data: D,
    /// What the caller should know beside the data, as sentences.
    pub(crate) warnings: Vec<String>,
    pub(crate) truncated: Vec<Truncated>,
    /// What stands beside the text.
    pub(crate) parts: Vec<Part>,
}

/// Something in an answer that is no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Image { mime_type: String, base64: String },
    Link(Link),
}

/// A resource that holds what an answer does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) mime_type: Option<String>,
    pub(crate) size: Option<u64>,
}

impl<D: Serialize> Answer<D> {
    /// The same with its data as JSON.
    pub(crate) fn written(self) -> ToolResult<Value> {
        let data = serde_json::to_value(&self.data).map_err(|error| {
            Error::new(ErrorKind::Internal, "could not write the result").with_source(error)
        })?;
        let Self { warnings, truncated, parts, .. } = self;
        Ok(Answer { data, warnings, truncated, parts })
    }
}

impl<D> Answer<D> {
    pub(crate) fn new(data: D) -> Self {
        Self { data, warnings: Vec::new(), truncated: Vec::new(), parts: Vec::new() }
    }

    /// The same with other data.
    pub(crate) fn map<E>(self, change: impl FnOnce(D) -> E) -> Answer<E> {
        let Self { data, warnings, truncated, parts } = self;
        Answer { data: change(data), warnings, truncated, parts }
    }

    #[must_use]
    pub(crate) fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    #[must_use]
    pub(crate) fn warn_all(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    #[must_use]
    pub(crate) fn truncate(mut self, cut: impl IntoIterator<Item = Truncated>) -> Self {
        self.truncated.extend(cut);
        self
    }

    #[must_use]
    pub(crate) fn with_parts(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.parts.extend(parts);
        self
    }
}

pub(crate) type ToolResult<D> = Result<Answer<D>, Failure>;

/// Why a tool did not do what was asked.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Failure {
    /// Stable: the name of one of the product's twelve kinds, or one of the codes below.
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    /// A sentence that names the next call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Value>,
    pub(crate) retryable: bool,
}

/// A host path outside what was allowed.
pub(crate) const HOST_PATH_DENIED: &str = "host_path_denied";
/// A destructive call without `confirm`.
pub(crate) const DANGEROUS_OPERATION_DISABLED: &str = "dangerous_operation_disabled";
/// The command ended with another status than 0, and the caller asked for that to be a failure.
pub(crate) const EXEC_FAILED: &str = "exec_failed";

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code: Cow::Borrowed(code),
            message: message.into(),
            hint: None,
            details: None,
            retryable: false,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest.as_str(), message)
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// For a failure of this kind, the next call; what the engine hints at is for people at a terminal.
    #[must_use]
    pub(crate) fn or_hint(mut self, kind: ErrorKind, hint: &str) -> Self {
        if self.code == kind.as_str() {
            self.hint = Some(hint.to_owned());
        }
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if matches!(error.kind(), ErrorKind::Internal | ErrorKind::Unavailable) {
            tracing::error!(kind = %error.kind(), error = &error as &dyn std::error::Error, "a tool failed");
        }
        let kind = error.kind();
        let denied_path = error
            .subject()
            .filter(|subject| kind == ErrorKind::Denied && subject.what == Thing::HostPath)
            .map(|subject| json!({ "path": subject.name }));
        Self {
            code: Cow::Borrowed(if denied_path.is_some() { HOST_PATH_DENIED } else { kind.as_str() }),
            hint: super::words::hint(&error),
            message: error.to_string(),
            details: denied_path,
            retryable: kind.is_retryable(),
        }
    }
}

pub(crate) const INTO_ITSELF: &str = "Choose a path for `to` that is not below `from`.";

/// The native form: one object for every answer and every failure.
#[derive(Debug)]
pub(crate) struct Envelope;

impl Form for Envelope {
    fn schema(&self, data: &Value) -> Option<JsonObject> {
        let schema = json!({
            "type": "object",
            "properties": { "ok": { "type": "boolean" }, "data": data },
            "required": ["ok"],
        });
        schema.as_object().cloned()
    }

    fn answer(&self, answer: Answer<Value>) -> Reply {
        let mut body =
            Map::from_iter([("ok".to_owned(), Value::Bool(true)), ("data".to_owned(), answer.data)]);
        if !answer.warnings.is_empty() {
            body.insert("warnings".to_owned(), Value::from(answer.warnings));
        }
        if !answer.truncated.is_empty() {
            body.insert("truncated".to_owned(), json!(answer.truncated));
        }
        Reply { text: None, data: Some(Value::Object(body)), parts: answer.parts, error_code: None }
    }

    fn failure(&self, _tool: &str, failure: Failure) -> Reply {
        let body = json!({ "ok": false, "error": failure });
        let error_code = Some(failure.code.into_owned());
        Reply { text: None, data: Some(body), parts: Vec::new(), error_code }
    }
}
