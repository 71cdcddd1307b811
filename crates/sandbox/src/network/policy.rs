//! The network that was decided.

use std::{net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    grant::NetworkGrant,
    rule::{Rule, RuleAction},
    spec::{Preset, RecordType},
};
use crate::{ByteSize, Namespace, object::only_object};

/// TCP connections of one sandbox at the same time: a busy installer has some dozens, a browser some hundreds.
pub const DEFAULT_CONNECTIONS: u32 = 256;
/// UDP flows of one sandbox at the same time.
pub const DEFAULT_UDP_FLOWS: u32 = 128;
/// New connections of one sandbox in a second.
pub const DEFAULT_CONNECTS_PER_SECOND: u32 = 200;
/// DNS questions of one sandbox in a second. Each may carry some bytes out under a wildcard.
pub const DEFAULT_DNS_PER_SECOND: u32 = 50;
/// Addresses that the edge remembers for one sandbox, with the names that led to them.
pub const DEFAULT_PINS: u32 = 4096;
/// Events of one sandbox in a second; further ones are counted.
pub const DEFAULT_EVENTS_PER_SECOND: u32 = 20;
/// Milliseconds that a server may take to answer before the next one is asked: programs inside wait five seconds.
pub(super) const DEFAULT_QUERY_TIMEOUT_MS: u64 = 2000;
/// Record types that are answered when nothing else is asked for.
pub const DEFAULT_RECORDS: [RecordType; 9] = [
    RecordType::A,
    RecordType::Aaaa,
    RecordType::Cname,
    RecordType::Https,
    RecordType::Mx,
    RecordType::Ptr,
    RecordType::Srv,
    RecordType::Svcb,
    RecordType::Txt,
];

/// Rules and what is reached without one. The first rule that matches decides; if none does, the preset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct Policy {
    #[serde(default)]
    pub preset: Preset,
    /// Each begins with `deny`, or is a target to allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 512)]
    pub rules: Vec<Rule>,
}
only_object!(Policy);

/// The network as decided: the sandbox's own policy, and those above it. Traffic passes if all of them allow it.
///
/// Records of earlier versions have none and get the default, which is what they had: package indexes only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPlan {
    #[serde(default)]
    pub own: Policy,
    /// The operator's, and the key's: no caller can lift them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ceilings: Vec<Policy>,
    /// Access that people allowed beside the policy, for a time. The engine takes each grant out when its time is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<NetworkGrant>,
    #[serde(default)]
    pub dns: DnsPlan,
    #[serde(default)]
    pub limits: NetworkLimits,
    /// The namespace in which `sandbox:name:port` looks for the name.
    #[serde(default)]
    pub namespace: Namespace,
}

impl NetworkPlan {
    /// Whether it takes more than the package gateway to serve it.
    pub fn needs_edge(&self) -> bool {
        let allows = |rule: &Rule| rule.action == RuleAction::Allow;
        self.own.preset > Preset::Packages || self.own.rules.iter().any(allows) || !self.grants.is_empty()
    }

    /// Whether the package gateway may serve the sandbox.
    pub fn reaches_packages(&self) -> bool {
        let mut policies = std::iter::once(&self.own).chain(&self.ceilings);
        policies.all(|policy| policy.preset >= Preset::Packages)
    }
}

/// The resolution of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsPlan {
    /// Servers to ask; the host's own when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<IpAddr>,
    /// Types of records that are answered.
    pub records: Vec<RecordType>,
    /// How long a server may take to answer before the next one is asked.
    pub query_timeout_ms: u64,
}

impl Default for DnsPlan {
    fn default() -> Self {
        Self {
            nameservers: Vec::new(),
            records: DEFAULT_RECORDS.to_vec(),
            query_timeout_ms: DEFAULT_QUERY_TIMEOUT_MS,
        }
    }
}

impl DnsPlan {
    pub fn query_timeout(&self) -> Duration {
        Duration::from_millis(self.query_timeout_ms)
    }

    /// Whether records of the type with this number in DNS messages are answered.
    pub fn answers(&self, code: u16) -> bool {
        self.records.iter().any(|record| record.code() == code)
    }
}

/// Limits of one sandbox's network: each has a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkLimits {
    pub connections: u32,
    pub udp_flows: u32,
    pub connects_per_second: u32,
    pub dns_per_second: u32,
    pub pins: u32,
    pub events_per_second: u32,
    /// Each way; no limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<ByteSize>,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        Self {
            connections: DEFAULT_CONNECTIONS,
            udp_flows: DEFAULT_UDP_FLOWS,
            connects_per_second: DEFAULT_CONNECTS_PER_SECOND,
            dns_per_second: DEFAULT_DNS_PER_SECOND,
            pins: DEFAULT_PINS,
            events_per_second: DEFAULT_EVENTS_PER_SECOND,
            bytes_per_second: None,
        }
    }
}
