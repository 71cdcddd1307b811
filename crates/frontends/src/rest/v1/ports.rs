//! Ports of a sandbox.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use jiff::Timestamp;
use sandbox::{PortView, network::Protocol};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ports;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortList {
    pub ports: Vec<Port>,
}

/// A port on which something listens inside, or which is exposed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// The port inside.
    pub port: u16,
    /// TCP when absent. Of UDP, only ports that are published are listed.
    #[serde(default, skip_serializing_if = "Protocol::is_tcp")]
    pub protocol: Protocol,
    /// Whether a server listens on it; absent if the sandbox does not run, and for UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listening: Option<bool>,
    /// Addresses inside on which it listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Name of the process that listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Address and port of the host on which it is published while the sandbox runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub published: Option<SocketAddr>,
    /// Everybody who reaches the daemon can use it, without a key or a token.
    #[serde(default)]
    pub public: bool,
    /// Why the host does not listen although the sandbox runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl PortList {
    pub(crate) fn new(exposed: Vec<PortView>, found: Option<Vec<ports::ListeningPort>>) -> Self {
        let is_known = found.is_some();
        let mut all: BTreeMap<(u16, Protocol), Port> = BTreeMap::new();
        for listening in found.into_iter().flatten() {
            let port = all.entry((listening.port, Protocol::Tcp)).or_default();
            port.addresses.push(listening.address.to_string());
            port.listening = Some(true);
            port.pid = port.pid.or(listening.pid);
            port.process = port.process.take().or(listening.process);
        }
        for view in exposed {
            let port = all.entry((view.port, view.protocol)).or_default();
            port.published = view.published;
            port.public = view.public;
            port.failed = view.failed;
        }
        let complete = |((number, protocol), port): ((u16, Protocol), Port)| Port {
            port: number,
            protocol,
            listening: port.listening.or_else(|| (is_known && protocol == Protocol::Tcp).then_some(false)),
            ..port
        };
        Self { ports: all.into_iter().map(complete).collect() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExposeRequest {
    /// The port inside.
    #[schema(minimum = 1)]
    pub port: u16,
    /// TCP when absent. A UDP port needs a port of the host, and cannot be public.
    #[serde(default, skip_serializing_if = "Protocol::is_tcp")]
    pub protocol: Protocol,
    /// Lets everybody who reaches the daemon use it, without a key or a token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub public: bool,
    /// Publishes it on this port of the host; 0 is any free port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<u16>,
    /// The address of the host to publish on; 127.0.0.1 when absent. The operator decides which others are possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// The lifetime of a signed address: at most a week; an hour unless the daemon is configured otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
}

/// The address of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    pub port: u16,
    /// For browsers, with a token unless the port is public; absent if the daemon does not listen on TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Headers for programs, in place of the token in the address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Address and port of the host on which it is published while the sandbox runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub published: Option<SocketAddr>,
    pub public: bool,
    /// Whether a server listens on it now; absent if the sandbox does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listening: Option<bool>,
}

impl From<ports::Endpoint> for Endpoint {
    fn from(endpoint: ports::Endpoint) -> Self {
        let ports::Endpoint { port, url, expires_at, headers, exposed, listening } = endpoint;
        let (published, public) = exposed.map(|view| (view.published, view.public)).unwrap_or_default();
        Self { port, url, expires_at, headers, published, public, listening }
    }
}
