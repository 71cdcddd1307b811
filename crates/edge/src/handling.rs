//! The handling of a connection: decided here and nowhere else.

use std::{net::SocketAddr, time::Instant};

use sandbox::network::{DnsName, Flow, Protocol, RuleRef, Verdict};

use crate::sandbox::Sandbox;

/// The port of DNS: on every address it is ours.
pub(crate) const DNS_PORT: u16 = 53;
const HTTP_PORT: u16 = 80;
pub(crate) const HTTPS_PORT: u16 = 443;
/// DNS over TLS and over QUIC: past our resolver. Open only where a rule names it, not by a preset.
const PRIVATE_DNS_PORT: u16 = 853;
/// Ports where the server speaks first, or the client says no name that could be checked: ftp, ssh, telnet, smtp, pop3,
/// imap, irc, databases, vnc.
const UNSAID: [u16; 19] =
    [21, 22, 23, 25, 110, 143, 587, 1433, 1521, 2222, 3306, 5222, 5432, 5900, 5901, 6379, 6667, 11211, 27017];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Our resolver answers; nothing is dialled.
    Resolve,
    /// Bytes pass, whatever they say.
    Pass,
    /// Bytes pass as one of these names only.
    Named { names: Vec<DnsName>, check: Check },
}

/// How a connection is held to its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// It must begin TLS, for one of the names.
    Tls,
    /// It must be HTTP, every request for one of the names.
    Http,
    /// Whoever speaks first shows which of the two it is, or neither.
    FirstBytes,
    /// Nothing is looked at: the address decided.
    Address,
}

/// A decision about one flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Take { handling: Handling, rule: String },
    Refuse { rule: String },
}

/// Decides a flow by the plan as it is now. `names` are those that lead to the address.
pub(crate) fn decide(
    sandbox: &Sandbox,
    protocol: Protocol,
    destination: SocketAddr,
    names: &[DnsName],
) -> Outcome {
    let (address, port) = (destination.ip(), destination.port());
    if port == DNS_PORT {
        return Outcome::Take { handling: Handling::Resolve, rule: "DNS".to_owned() };
    }
    let plan = sandbox.plan();
    let verdict = plan.decide(&Flow { protocol, address, port, names }, &sandbox.around());
    let rule = plan.describe(verdict.by());
    match verdict {
        Verdict::Deny { .. } => Outcome::Refuse { rule },
        Verdict::Allow { by } | Verdict::AllowNamed { by, .. } if is_private_dns(port, &by) => {
            Outcome::Refuse { rule: "denied: DNS over TLS or QUIC needs a rule that names it".to_owned() }
        }
        Verdict::Allow { .. } => Outcome::Take { handling: Handling::Pass, rule },
        Verdict::AllowNamed { names, .. } => {
            Outcome::Take { handling: Handling::Named { names, check: check_for(protocol, port) }, rule }
        }
    }
}

/// The names that this sandbox resolved to an address.
pub(crate) fn names_of(sandbox: &Sandbox, destination: SocketAddr) -> Vec<DnsName> {
    sandbox.pins().names(destination.ip(), Instant::now())
}

fn is_private_dns(port: u16, by: &RuleRef) -> bool {
    port == PRIVATE_DNS_PORT && by.rule.is_none()
}

fn check_for(protocol: Protocol, port: u16) -> Check {
    match (protocol, port) {
        (Protocol::Udp, _) => Check::Address,
        (Protocol::Tcp, HTTPS_PORT) => Check::Tls,
        (Protocol::Tcp, HTTP_PORT) => Check::Http,
        (Protocol::Tcp, port) if UNSAID.contains(&port) => Check::Address,
        (Protocol::Tcp, _) => Check::FirstBytes,
    }
}
