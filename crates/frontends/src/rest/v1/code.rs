//! Code, contexts and languages on the wire.

use std::collections::BTreeMap;

use engine::{ContextView, LanguageView};
use sandbox::ContextName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// An interpreter to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextRequest {
    /// Made up when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
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
    #[schema(value_type = Option<String>)]
    pub into: Option<ContextName>,
    /// In spite of what would be refused, which then comes back as warnings.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContextList {
    /// By name.
    #[schema(value_type = Vec<schema::ContextView>)]
    pub contexts: Vec<ContextView>,
}

/// A context that was made, reset or branched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContextMade {
    #[serde(flatten)]
    #[schema(value_type = schema::ContextView)]
    pub context: ContextView,
    /// What its maker should know, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LanguageList {
    #[schema(value_type = Vec<schema::LanguageView>)]
    pub languages: Vec<LanguageView>,
}
