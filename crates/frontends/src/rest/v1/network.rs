//! The network of a sandbox.

use engine::NetworkLogEntry;
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
