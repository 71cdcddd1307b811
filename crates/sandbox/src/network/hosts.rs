//! The traffic on a sandbox's network, by host.

use serde::{Deserialize, Serialize};

/// The traffic to the hosts of a sandbox, since an edge began to serve it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkHosts {
    /// The busiest first, at most 256.
    pub hosts: Vec<HostTraffic>,
    /// All others together, without a name.
    pub others: HostTraffic,
}

/// The traffic to one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostTraffic {
    /// Its name, or its address where it was reached without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Connections that were allowed and made, and flows of UDP.
    pub connections: u64,
    /// Connections, requests and questions that were denied.
    pub denied: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

impl HostTraffic {
    /// How busy it is: by its bytes, then by how often it was wanted.
    pub fn weight(&self) -> (u64, u64, u64) {
        (self.sent_bytes.saturating_add(self.received_bytes), self.connections, self.denied)
    }
}
