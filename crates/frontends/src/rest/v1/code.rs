//! Code, contexts and languages on the wire.

use std::collections::BTreeMap;

use engine::{ContextView, LanguageView};
use sandbox::{ContextName, RequestId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::code::{CellError, CellResult, FileLink, Output};

/// Code to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CodeRequest {
    /// At most 1 MiB.
    pub code: String,
    /// `python`, `javascript`, `bash`…, by any of their usual names; `python` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The interpreter whose variables it shares; the language's own when absent, made when it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// After this long it is interrupted, and killed where that does not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The same id again runs nothing and answers with the first run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// Whether to tell which files it made or changed; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track_files: Option<bool>,
}

/// What the code did, and what to know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CodeResult {
    #[serde(flatten)]
    pub result: CellResult,
    /// As sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Fields whose middle was left out; `GET …/execs/{exec}/output` reads them whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<String>,
}

/// One thing that happens while code runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CodeEvent {
    /// Comes first. What a broken connection loses is in the log of this exec.
    Started {
        exec_session_id: String,
        language: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context: Option<String>,
    },
    Stdout {
        text: String,
    },
    Stderr {
        text: String,
    },
    Result(Output),
    Display(Output),
    Error(CellError),
    Warning {
        message: String,
    },
    Files {
        files: Vec<FileLink>,
        truncated: bool,
    },
    /// Comes last: how it ended, without what was told before.
    Done(Box<CodeResult>),
}

query!(OutputFormQuery {
    /// The form that is wanted, such as `image/png` or `text/html`; the one that shows most when absent.
    pub mime: Option<String>,
});

/// An interpreter to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextRequest {
    /// Made up when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ContextName>,
    /// `python`, `javascript`, `bash`…, by any of their usual names; `python` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Added to the sandbox's own environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// How a context is branched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkRequest {
    /// Name of the branch; made up when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<ContextName>,
    /// In spite of what would be refused, which then comes back as warnings.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContextList {
    /// By name.
    pub contexts: Vec<ContextView>,
}

/// A context that was made, reset or branched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContextMade {
    #[serde(flatten)]
    pub context: ContextView,
    /// What its maker should know, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LanguageList {
    pub languages: Vec<LanguageView>,
}
