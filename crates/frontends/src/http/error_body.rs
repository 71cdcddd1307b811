//! The one shape of every failure.

use sandbox::{Error, ErrorKind, Next, Overrun, SandboxState, Subject};
use serde::{Deserialize, Serialize};
use utoipa::{
    ToSchema,
    openapi::schema::{Object, ObjectBuilder, SchemaType, Type},
};

/// Body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorDetail {
    /// Stable; programs decide by it.
    pub kind: ErrorKind,
    /// Names the thing and the value. The wording may change.
    pub message: String,
    /// The next step, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Its subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// The state of the sandbox, where that is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<SandboxState>,
    /// The limit that would be passed, where that is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Overrun>,
    /// The next step, for programs; the hint has it in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = next_step)]
    pub next: Option<Next>,
    /// Finds the request in the daemon's log.
    pub request_id: String,
}

/// A word and what it is about: there are more words from one version to the next.
fn next_step() -> Object {
    ObjectBuilder::new()
        .property("do", ObjectBuilder::new().schema_type(Type::String))
        .property("with", ObjectBuilder::new().schema_type(SchemaType::AnyValue))
        .required("do")
        .build()
}

impl ErrorDetail {
    /// An error as it goes out, with the hint in the words of the front end that tells it.
    pub fn new(error: &Error, hint: Option<String>, request_id: &str) -> Self {
        Self {
            kind: error.kind(),
            message: error.to_string(),
            hint,
            subject: error.subject().cloned(),
            state: error.state(),
            limit: error.limit(),
            next: error.next().filter(|next| !matches!(next, Next::Advice(_))).cloned(),
            request_id: request_id.to_owned(),
        }
    }

    /// The error that it was, for whoever asked.
    pub fn into_error(self) -> Error {
        let mut error = Error::new(self.kind, self.message);
        if let Some(Subject { what, name }) = self.subject {
            error = error.about(what, name);
        }
        if let Some(state) = self.state {
            error = error.in_state(state);
        }
        if let Some(Overrun { limit, most, asked }) = self.limit {
            error = error.over(limit, most, asked);
        }
        error.with_next(self.next.or(self.hint.map(Next::Advice)))
    }
}
