//! Runs on the wire.

use sandbox::SandboxSpec;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{CodeRequest, CodeResult, ExecRequest, ExecResult, Sandbox};

/// A new sandbox, and the command or the code that runs first in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunRequest {
    #[serde(default)]
    pub sandbox: SandboxSpec,
    /// Either this or `code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeRequest>,
}

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunQuery {
    /// Answer when the command ended, with its output, instead of at once. Code is always waited for.
    #[serde(default)]
    pub wait: bool,
    /// With `wait`: answer after this long even if it is still running. The command continues.
    pub timeout_ms: Option<u64>,
}

/// The new sandbox, and what became of what was to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    pub sandbox: Sandbox,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeResult>,
}
