//! One shape for every answer and every failure: `{ok, data, warnings?, truncated?}` or `{ok: false, error}`.

use std::fmt;

use sandbox::{Error, ErrorKind, Next, Thing};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    schema::JsonObject,
    surface::{Form, Reply},
    words::{self, KnownTools},
};
pub(crate) use crate::output::Truncated;

/// A tool's answer.
#[derive(Debug)]
pub(crate) struct Answer<D> {
    pub(crate) data: D,
    /// Facts that the caller should know beside the data, as sentences.
    pub(crate) warnings: Vec<String>,
    pub(crate) truncated: Vec<Truncated>,
    /// The parts that stand beside the text.
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

/// Why a tool did not do what was asked: a value, which the surface's [`Form`] puts into words.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    error: Error,
    /// A closer name than that of the error's kind: one of the codes below.
    code: Option<&'static str>,
    details: Option<Value>,
    is_retryable: bool,
}

/// A failure in the words of one surface.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct WordedFailure {
    /// Stable: the name of one of the product's twelve kinds, or one of the codes below.
    pub(crate) code: &'static str,
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
const DANGEROUS_OPERATION_DISABLED: &str = "dangerous_operation_disabled";
/// The command ended with another status than 0, and the caller asked for that to be a failure.
const EXEC_FAILED: &str = "exec_failed";

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error::new(kind, message).into()
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, message)
    }

    /// A destructive call that must be confirmed.
    pub(crate) fn unconfirmed(message: impl Into<String>) -> Self {
        Self { code: Some(DANGEROUS_OPERATION_DISABLED), ..Self::new(ErrorKind::Denied, message) }
    }

    /// A command or code that failed where the caller wants that to be a failure of the call.
    pub(crate) fn of_exec(message: impl Into<String>) -> Self {
        Self { code: Some(EXEC_FAILED), ..Self::new(ErrorKind::WrongState, message) }
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code.unwrap_or(self.error.kind().as_str())
    }

    pub(crate) fn error(&self) -> &Error {
        &self.error
    }

    /// In the words of a surface, with the next step from its table.
    pub(crate) fn worded(self, hint: impl FnOnce(&Error) -> Option<String>) -> WordedFailure {
        let code = self.code();
        let Self { error, details, is_retryable, .. } = self;
        WordedFailure {
            code,
            hint: hint(&error),
            message: error.to_string(),
            details,
            retryable: is_retryable,
        }
    }

    #[must_use]
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { error: self.error.with_hint(hint), ..self }
    }

    #[must_use]
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Whether the same call may succeed later, whatever its kind says.
    #[must_use]
    pub(crate) fn retryable(mut self, is_retryable: bool) -> Self {
        self.is_retryable = is_retryable;
        self
    }

    /// The same failure with a new message, for example prefixed with where it happened.
    #[must_use]
    pub(crate) fn reworded(self, words: impl FnOnce(&dyn fmt::Display) -> String) -> Self {
        Self { error: self.error.reworded(words), ..self }
    }

    /// Adds a next step to a failure of this kind that has none. The surface's table words it.
    #[must_use]
    pub(crate) fn or_next(self, kind: ErrorKind, next: Next) -> Self {
        let is_open = self.code.is_none() && self.error.kind() == kind && self.error.next().is_none();
        if is_open { Self { error: self.error.with_next(next), ..self } } else { self }
    }

    /// For a failure of this kind, the next call, where the tool knows a better one than the surface's table.
    #[must_use]
    pub(crate) fn or_hint(self, kind: ErrorKind, hint: &str) -> Self {
        if self.code.is_none() && self.error.kind() == kind { self.with_hint(hint) } else { self }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        if matches!(kind, ErrorKind::Internal | ErrorKind::Unavailable) {
            tracing::error!(%kind, error = &error as &dyn std::error::Error, "a tool failed");
        }
        let denied_path = error
            .subject()
            .filter(|subject| kind == ErrorKind::Denied && subject.what == Thing::HostPath)
            .map(|subject| json!({ "path": subject.name }));
        Self {
            code: denied_path.is_some().then_some(HOST_PATH_DENIED),
            details: denied_path,
            is_retryable: kind.is_retryable(),
            error,
        }
    }
}

/// For what is no tool: the value behind the failure.
impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
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

    fn failure(&self, _tool: &str, failure: Failure, known: &KnownTools<'_>) -> Reply {
        let told = failure.worded(|error| words::hint_for(error, known));
        let body = json!({ "ok": false, "error": told });
        Reply { text: None, data: Some(body), parts: Vec::new(), error_code: Some(told.code.to_owned()) }
    }
}
