//! The fleet, and the machine it is on.

use engine::FleetView;
use sandbox::Isolation;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub type Fleet = FleetView;

/// The findings of `warren doctor`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// Whether nothing is missing that every sandbox needs.
    pub ok: bool,
    pub checks: Vec<Check>,
    /// The diagnosis of a sandbox that was made as a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
}

/// One requirement or recommendation for the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub name: String,
    pub status: CheckStatus,
    /// The findings.
    pub detail: String,
    /// The command that fixes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum CheckStatus {
    Works,
    /// Missing; without it, sandboxes are weaker or some features do not work.
    Weak,
    /// Missing; without it, nothing works.
    Missing,
}
