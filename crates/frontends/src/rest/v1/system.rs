//! The daemon itself.

use sandbox::{BackendKind, Capability};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Always `ok`: a daemon that is not ready does not answer.
    pub status: String,
    /// Process id of the daemon; for those who showed who they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    pub version: String,
    /// The version with the commit and its date, if the daemon's program knows them. Absent in earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Versions of this API that the daemon speaks.
    pub api: Vec<String>,
}

/// The features that the daemon's back end supports on this host, found by probing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    pub backend: BackendKind,
    /// All back ends, the default first. The other fields describe the default.
    #[serde(default)]
    #[schema(required = true)]
    pub backends: Vec<BackendKind>,
    pub has: Vec<Capability>,
    /// Missing features, with the reason, as sentences.
    pub missing: Vec<String>,
}

impl Capabilities {
    /// `default` is the first of `all`.
    pub(crate) fn new(default: &sandbox::Capabilities, all: &[sandbox::Capabilities]) -> Self {
        let sandbox::Capabilities { backend, has, missing } = default.clone();
        Self { backend, backends: all.iter().map(|found| found.backend).collect(), has, missing }
    }
}
