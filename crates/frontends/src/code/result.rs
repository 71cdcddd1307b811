//! The result of a cell.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::file_link::FileLink;

/// The output, the displayed values and the changed files of a piece of code, and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellResult {
    pub exec_session_id: String,
    pub language: String,
    /// The context of its variables; absent for languages that keep none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    pub stdout: String,
    pub stderr: String,
    /// Value of the last expression, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Pictures and other values, in order. A result that is nothing but `result` is not repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
    /// The exception that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CellError>,
    pub exit_code: i32,
    pub success: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Whether the context's variables are still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_kept: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_lost: Option<StateLoss>,
    /// The outcome, where the exit code alone does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    pub duration_ms: u64,
    /// Files beneath the working directory that it made or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileLink>,
}

/// One thing that was shown, in one or several forms. Forms that are small stand here; all are at its address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// From 1, in the order in which they were shown.
    pub number: u32,
    pub kind: OutputKind,
    pub mime_types: Vec<String>,
    /// For the last result it stands in `result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub markdown: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latex: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    /// Any JSON.
    #[schema(value_type = Option<Object>)]
    pub json: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// The MCP resource that holds all forms.
    pub uri: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputKind {
    Result,
    Display,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    pub mime_type: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
pub struct CellError {
    pub name: String,
    pub value: String,
    pub traceback: String,
}

/// Why the variables are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum StateLoss {
    Exited,
    Crashed,
    OutOfMemory,
    Killed,
    Garbled,
}

impl StateLoss {
    /// As a sentence's end.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Exited => "the interpreter exited",
            Self::Crashed => "the interpreter crashed",
            Self::OutOfMemory => "the interpreter ran out of memory",
            Self::Killed => "the interpreter was killed",
            Self::Garbled => "the code broke the channel to its interpreter",
        }
    }
}

impl From<engine::StateLoss> for StateLoss {
    fn from(loss: engine::StateLoss) -> Self {
        match loss {
            engine::StateLoss::Exited => Self::Exited,
            engine::StateLoss::Crashed => Self::Crashed,
            engine::StateLoss::OutOfMemory => Self::OutOfMemory,
            engine::StateLoss::Killed => Self::Killed,
            engine::StateLoss::Garbled => Self::Garbled,
        }
    }
}
