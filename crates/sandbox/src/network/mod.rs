//! The reach of a sandbox on the network: asked for as a [`NetworkSpec`], decided as a [`NetworkPlan`], and judged one
//! flow at a time by [`NetworkPlan::decide`]. Everything here is pure.

mod address;
mod decide;
mod describe;
mod event;
mod grant;
mod hosts;
mod name;
mod named;
mod overlap;
mod plan;
mod policy;
mod ports;
mod request;
mod rule;
mod sockets;
mod spec;
mod surroundings;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use address::{InvalidNet, IpNet, canonical};
pub use decide::{Cause, Flow, NameVerdict, PolicyRef, RuleRef, Verdict};
pub use event::{NetworkEvent, NetworkEventKind, NetworkReport, NetworkTraffic};
pub use grant::NetworkGrant;
pub use hosts::{HostTraffic, NetworkHosts};
pub use name::{DnsName, InvalidDnsName, MAX_DNS_NAME_BYTES};
pub use named::{MAX_NAMED_PORTS, NotByName, ReachedPorts};
pub use plan::{MAX_CEILINGS, MAX_CONNECTIONS, MAX_NAMESERVERS, MAX_RULES, MAX_RULES_BYTES, plan_network};
pub use policy::{
    DEFAULT_CONNECTIONS, DEFAULT_CONNECTS_PER_SECOND, DEFAULT_DNS_PER_SECOND, DEFAULT_EVENTS_PER_SECOND,
    DEFAULT_PINS, DEFAULT_RECORDS, DEFAULT_UDP_FLOWS, DnsPlan, NetworkLimits, NetworkPlan, Policy,
};
pub use ports::{InvalidPorts, MAX_PORT_RANGES, Ports};
pub use request::{
    DEFAULT_GRANT_SECONDS, MAX_GRANT_SECONDS, MAX_LIVE_GRANTS, MAX_PENDING_REQUESTS, MAX_REQUESTS,
    NetworkRequest, NetworkRequestSpec, NetworkRequestState, check_grant_seconds, printable,
};
pub use rule::{MAX_RULE_BYTES, Protocol, Rule, RuleAction, RuleText, Target};
pub use sockets::{
    MAX_NETWORK_SOCKETS, NAMESERVER, NetworkSockets, OWN_ADDRESS_V4, OWN_ADDRESS_V6, RELEASE_MARK, SocketKind,
};
pub use spec::{DnsSpec, NetworkLimitsSpec, NetworkSpec, Preset, RecordType, RuleSpec};
pub use surroundings::{Group, HOST_ADDRESS, HOST_NAME, PublishedPort, Surroundings};
