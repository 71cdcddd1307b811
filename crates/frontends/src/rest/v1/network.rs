//! The network of a sandbox.

use engine::{NetworkLogEntry, NetworkRequestView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkLog {
    pub entries: Vec<NetworkLogEntry>,
}

query!(NetworkLogQuery {
    /// The first number; without it, the last `limit` entries.
    pub from: Option<u64>,
    /// 100 when absent. The daemon keeps the last 1000.
    #[param(minimum = 1)]
    pub limit: Option<u32>,
});

/// Requests for more network than sandboxes' policies allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkRequestList {
    pub requests: Vec<NetworkRequestView>,
}

query!(NetworkRequestsQuery {
    /// Only those that wait for an answer.
    #[serde(default)]
    pub pending: bool,
});

query!(NetworkAnswerQuery {
    /// Answer after this long even if nobody has decided; at once when absent.
    pub wait_ms: Option<u64>,
});

/// The duration of a grant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkGrantRequest {
    /// When absent: as long as was asked for, or an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2592000)]
    pub for_seconds: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkRefusal {
    /// Why, for whoever asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub reason: Option<String>,
}
