//! What happened on a sandbox's network.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{name::DnsName, rule::Protocol};
use crate::SandboxId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkEventKind {
    Allowed,
    Denied,
    /// Allowed, but nobody answered there.
    Failed,
}

/// One decision, or several alike that came soon after each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkEvent {
    pub sandbox: SandboxId,
    pub kind: NetworkEventKind,
    pub protocol: Protocol,
    /// The name that was asked for, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<DnsName>,
    /// Absent where only a name was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    pub port: u16,
    /// Which rule decided, in words.
    pub rule: String,
    /// How many alike.
    pub count: u32,
}
