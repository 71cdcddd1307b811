//! Events on a sandbox's network.

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
    /// The rule that decided, in words.
    pub rule: String,
    /// The number of equal ones.
    pub count: u32,
}

impl NetworkEvent {
    /// The target that was wanted, written as a rule; `None` where it is not known. Names are those of DNS, so that
    /// nothing in them can be a sentence.
    pub fn target(&self) -> Option<String> {
        let host = match (&self.name, self.address) {
            (Some(name), _) => name.to_string(),
            (None, Some(address)) if address.is_ipv6() => format!("[{address}]"),
            (None, Some(address)) => address.to_string(),
            (None, None) => return None,
        };
        Some(match (self.protocol, self.port) {
            // A question about a name: nobody knows yet which port would follow.
            (_, 0 | 53) => host,
            (Protocol::Udp, port) => format!("udp@{host}:{port}"),
            (Protocol::Tcp, port) => format!("{host}:{port}"),
        })
    }
}

/// A report that a network sends unasked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkReport {
    Event(NetworkEvent),
    /// Everything from before [`crate::BackendNetwork::catch_up`] was called with this number has been told.
    CaughtUp(u64),
}

/// The traffic of a sandbox's network since this daemon first served it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkTraffic {
    /// Connections that were allowed and made.
    pub connections: u64,
    pub denied: u64,
    /// Allowed, but nobody answered.
    pub failed: u64,
    /// Questions about names.
    pub questions: u64,
    /// Over UDP, both ways.
    pub datagrams: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

impl std::ops::Add for NetworkTraffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            connections: self.connections.saturating_add(other.connections),
            denied: self.denied.saturating_add(other.denied),
            failed: self.failed.saturating_add(other.failed),
            questions: self.questions.saturating_add(other.questions),
            datagrams: self.datagrams.saturating_add(other.datagrams),
            sent_bytes: self.sent_bytes.saturating_add(other.sent_bytes),
            received_bytes: self.received_bytes.saturating_add(other.received_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Rule;

    #[test]
    fn every_target_is_a_rule() {
        let event = |name: Option<&str>, address: Option<&str>, port, protocol| NetworkEvent {
            sandbox: SandboxId::from_random([1; 8]),
            kind: NetworkEventKind::Denied,
            protocol,
            name: name.map(|name| name.parse().unwrap()),
            address: address.map(|address| address.parse().unwrap()),
            port,
            rule: String::new(),
            count: 1,
        };
        for (event, expected) in [
            (event(Some("a.example"), None, 53, Protocol::Udp), "a.example"),
            (event(None, Some("192.0.2.1"), 80, Protocol::Tcp), "192.0.2.1:80"),
            (event(None, Some("2606:4700::1"), 80, Protocol::Tcp), "[2606:4700::1]:80"),
            (event(None, Some("192.0.2.1"), 123, Protocol::Udp), "udp@192.0.2.1:123"),
        ] {
            let named = event.target().unwrap();
            assert_eq!(named, expected);
            assert!(named.parse::<Rule>().is_ok(), "{named}");
        }
        assert_eq!(event(None, None, 0, Protocol::Tcp).target(), None);
    }
}
