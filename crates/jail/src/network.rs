//! The sandbox's end of its network: what is set in its own network namespace, and the sockets that are made there
//! before any program of the sandbox runs.
//!
//! ```text
//!   program ── connect, sendto ──→ `local default` route ──→ lo ──→ prerouting ─┬→ the sandbox itself: as ever
//!                                                                               ├→ a new TCP connection: dropped,
//!                                                                               │  after the packet socket saw it
//!                                                                               └→ TCP, UDP: our sockets, by tproxy
//! ```
//!
//! A kernel without these rules gets the form of named ports: the route brings every packet in here all the same, and
//! one socket for each port that a policy names takes what is for that port, whatever the address. Nothing can hold a
//! first packet then, so a connection begins before anybody decided; what is for other ports is refused by the kernel.
//!
//! The kernel ends every connection inside. Whoever holds the sockets decides: it lets a connection begin by sending
//! the packet that was dropped again through the raw socket, whose mark passes the rule; or refuses by sending a reset.

pub(crate) mod later;
mod routes;
mod rules;
mod sockets;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};

use crate::{
    packet,
    sys::{self, Side},
};

/// The sandbox's own end, as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkEnd {
    /// The sandbox's own address.
    pub v4: Ipv4Addr,
    /// The same for IPv6. Without it there is no route out for IPv6, and programs are told so at once.
    pub v6: Option<Ipv6Addr>,
    /// The mark by which packets of the raw sockets are known.
    pub mark: u32,
    /// The only ports that lead to the sockets; absent where rules bring all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<NamedPorts>,
}

/// Ports that have a socket each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPorts {
    pub tcp: Vec<u16>,
    pub udp: Vec<u16>,
}

/// Where the sockets are bound to. Nothing outside is at these addresses (RFC 5737, RFC 6666), and a packet for them
/// from inside is treated as one for any other address outside: no program reaches the sockets directly. Binding to
/// the loopback address instead would make them servers that every program inside can connect to.
const PROXY_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PROXY_V6: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);
/// Above the ports that the kernel gives to programs by itself.
const PROXY_PORT: u16 = 61_443;

/// Sets the network namespace of this process up and makes the sockets, in this order: TCP, UDP and raw, each for IPv4
/// and then, if there is an address, for IPv6; last the packet socket. Of named ports, each has one socket for both.
pub(crate) fn make(end: &NetworkEnd) -> io::Result<Vec<OwnedFd>> {
    routes::set(end)?;
    if end.named.is_none() {
        rules::set(end)?;
    }
    sockets::make(end)
}

/// The means that this kernel has for a sandbox's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NetworkMeans {
    /// Every port of every address leads to the sockets.
    Tproxy {
        v6: bool,
    },
    /// The ports that have a socket lead to it, on every address; rules do not work. `why`: the kernel's answer to
    /// those.
    NamedPorts {
        v6: bool,
        why: String,
    },
    None {
        why: String,
    },
}

/// A try is for nobody, so any address does.
const TRIED: NetworkEnd = NetworkEnd {
    v4: Ipv4Addr::new(10, 0, 2, 15),
    v6: Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 15)),
    mark: 1,
    named: None,
};
/// Ports for the same purpose.
const TRIED_PORT: u16 = 53;
/// Has debug builds do without rules, so that tests see the other form on a kernel that has both.
const WITHOUT_RULES: &str = "WARREN_TEST_NAMED_PORTS";

/// A try in a child of this process: its number, and where it reports.
#[derive(Debug)]
pub(crate) struct Trial(io::Result<(i32, OwnedFd)>);

impl NetworkMeans {
    /// Begins to try everything once in a child, which ends by itself. The caller must have one thread.
    pub(crate) fn begin_trial() -> Trial {
        Trial(packet::pair().and_then(|(ours, theirs)| {
            match sys::clone_process(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)? {
                Side::Parent { pid, .. } => Ok((pid, ours)),
                Side::Child => {
                    drop(ours);
                    let sent = packet::send(theirs.as_fd(), &Self::try_here(), &[]);
                    sys::exit_now(i32::from(sent.is_err()))
                }
            }
        }))
    }

    /// Changes the network namespace of this process.
    fn try_here() -> Self {
        let without_v6 = NetworkEnd { v6: None, ..TRIED };
        let (end, v6) = match routes::set(&TRIED) {
            Ok(()) => (TRIED, true),
            // Messages before the failed one took effect.
            Err(_no_v6) => match routes::set_again(&without_v6) {
                Ok(()) => (without_v6, false),
                Err(error) => return Self::None { why: error.to_string() },
            },
        };
        match rules::set(&end).and_then(|()| sockets::make(&end)) {
            Ok(_sockets) => Self::Tproxy { v6 },
            Err(error) => Self::try_named_ports(end, &error),
        }
    }

    fn try_named_ports(end: NetworkEnd, without_rules: &io::Error) -> Self {
        let v6 = end.v6.is_some();
        let named = NamedPorts { tcp: vec![TRIED_PORT], udp: vec![TRIED_PORT] };
        match sockets::make(&NetworkEnd { named: Some(named), ..end }) {
            Ok(_sockets) => Self::NamedPorts { v6, why: without_rules.to_string() },
            Err(error) => Self::None { why: error.to_string() },
        }
    }

    /// Returns the means to use of those found.
    #[must_use]
    pub fn chosen(self) -> Self {
        let is_without_rules = cfg!(debug_assertions) && std::env::var_os(WITHOUT_RULES).is_some();
        match self {
            Self::Tproxy { v6 } if is_without_rules => {
                Self::NamedPorts { v6, why: format!("{WITHOUT_RULES} is set") }
            }
            found => found,
        }
    }
}

impl Trial {
    /// Waits for the result.
    pub(crate) fn finish(self) -> NetworkMeans {
        let received = self.0.and_then(|(pid, socket)| {
            let received = packet::receive::<NetworkMeans>(socket.as_fd(), RecvFlags::empty());
            // Fails where children are not waited for, as in the spawner.
            drop(sys::wait_for(pid));
            received
        });
        match received {
            Ok((means, _)) => means,
            Err(error) => NetworkMeans::None { why: error.to_string() },
        }
    }
}
