//! The host as a policy sees it, and the group that an address belongs to there.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::address::{self, IpNet, canonical};
use crate::{Namespace, SandboxName};

/// The name of the daemon's machine inside sandboxes.
pub const HOST_NAME: &str = "host.warren.internal";
/// The address that [`HOST_NAME`] has inside. Nobody else has it; the edge dials the host's loopback in its place.
pub const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 2);

/// Where clouds keep a machine's credentials and configuration.
pub(crate) const META_ADDRESSES: [IpAddr; 13] = [
    v4(169, 254, 169, 254),
    v6(0xfd00, 0xec2, 0x254),
    // Google, over IPv6.
    v6(0xfd20, 0xce, 0x254),
    // Credentials of Amazon's container tasks and pods.
    v4(169, 254, 170, 2),
    v4(169, 254, 170, 23),
    v6(0xfd00, 0xec2, 0x23),
    // Alibaba.
    v4(100, 100, 100, 200),
    // Oracle.
    v4(192, 0, 0, 192),
    // Azure: an address of the public range.
    v4(168, 63, 129, 16),
    // Scaleway.
    v4(169, 254, 42, 42),
    v6(0xfd00, 0x42, 0x42),
    // Tencent.
    v4(169, 254, 0, 23),
    // OpenStack, over IPv6.
    IpAddr::V6(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(first: u16, second: u16, last: u16) -> IpAddr {
    IpAddr::V6(std::net::Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, last))
}

/// Groups of addresses. Each address is in exactly one of them (besides [`Group::Any`]), or in none if it is reserved.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// The internet.
    Public,
    /// Private networks, and whatever is on the same link as the host.
    Private,
    Loopback,
    LinkLocal,
    /// Metadata services of clouds.
    Meta,
    Multicast,
    /// Every address of the daemon's machine.
    Host,
    /// Everything. As what a rule allows it leaves out `host`, `meta` and `loopback`, which have to be named.
    Any,
}

impl Group {
    pub const ALL: [Self; 8] = [
        Self::Public,
        Self::Private,
        Self::Loopback,
        Self::LinkLocal,
        Self::Meta,
        Self::Multicast,
        Self::Host,
        Self::Any,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::Meta => "meta",
            Self::Multicast => "multicast",
            Self::Host => "host",
            Self::Any => "any",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Group {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|group| group.as_str() == text).ok_or(())
    }
}

/// The host as seen by a policy: found by the edge, passed in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Surroundings {
    /// All addresses of the host's interfaces, public ones too.
    pub host: Vec<IpAddr>,
    /// Ranges that the host reaches without a gateway. A range of everything is ignored: point-to-point links have one.
    pub on_link: Vec<IpNet>,
    /// Listeners of the daemon and of the edge: never reachable. An unspecified address closes the port on every
    /// address of the host.
    pub closed: Vec<SocketAddr>,
    /// Ports of the host that lead into sandboxes.
    pub published: BTreeMap<u16, PublishedPort>,
}

/// Where a published port of the host leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishedPort {
    pub namespace: Namespace,
    pub name: SandboxName,
    /// The port inside.
    pub port: u16,
}

impl Surroundings {
    /// The group of an address, in whatever form it is written. `None` is a reserved address, which only `any` and
    /// rules for ranges match.
    pub fn group(&self, address: IpAddr) -> Option<Group> {
        let address = canonical(address);
        if address::is_loopback(address) {
            return Some(Group::Loopback);
        }
        if META_ADDRESSES.contains(&address) {
            return Some(Group::Meta);
        }
        if address == IpAddr::V4(HOST_ADDRESS) || self.host.iter().any(|own| canonical(*own) == address) {
            return Some(Group::Host);
        }
        if address::is_multicast(address) {
            return Some(Group::Multicast);
        }
        if address::is_link_local(address) {
            return Some(Group::LinkLocal);
        }
        let is_on_link = self.on_link.iter().any(|net| net.prefix() > 0 && net.contains(address));
        if is_on_link || address::is_private(address) {
            return Some(Group::Private);
        }
        address::is_public(address).then_some(Group::Public)
    }

    /// Whether the address is the host itself, by whatever address.
    pub fn is_host(&self, address: IpAddr) -> bool {
        matches!(self.group(address), Some(Group::Host | Group::Loopback))
    }

    /// Whether a listener of the daemon or of the edge would be reached.
    pub fn is_closed(&self, address: IpAddr, port: u16) -> bool {
        let address = canonical(address);
        let same_port = self.closed.iter().filter(|listener| listener.port() == port);
        let mut listeners = same_port.map(|listener| canonical(listener.ip()));
        // The edge dials loopback for the host's name, and any address of the host reaches a listener on all of them.
        let by_host = self.is_host(address);
        listeners.any(|own| own == address || (by_host && self.is_host(own)))
    }

    /// The sandbox that a port of the host leads to.
    pub fn published_at(&self, address: IpAddr, port: u16) -> Option<&PublishedPort> {
        self.published.get(&port).filter(|_| self.is_host(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        Surroundings {
            host: ["127.0.0.1", "::1", "10.0.0.5", "203.0.113.9", "2606:4700::5"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            on_link: ["10.0.0.0/24", "2606:4700::/64", "0.0.0.0/0"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            closed: ["127.0.0.1:7777", "0.0.0.0:8888"].map(|text| text.parse().unwrap()).to_vec(),
            published: BTreeMap::new(),
        }
    }

    #[test]
    fn each_address_is_in_one_group() {
        use Group as G;
        for (group, addresses) in [
            (
                Some(G::Public),
                &["8.8.8.8", "100.63.0.1", "172.32.0.1", "2606:4701::1", "64:ff9b::808:808"][..],
            ),
            (
                Some(G::Private),
                &[
                    "10.1.2.3",
                    "172.16.0.1",
                    "192.168.1.1",
                    "100.64.0.1",
                    "fd00::1",
                    "fec0::1",
                    "2606:4700::7",
                ],
            ),
            (
                Some(G::Loopback),
                &["127.0.0.1", "127.255.0.1", "0.0.0.0", "0.1.2.3", "::", "::1", "::ffff:127.0.0.1"],
            ),
            (Some(G::LinkLocal), &["169.254.7.7", "fe80::1"]),
            (
                Some(G::Meta),
                &[
                    "169.254.169.254",
                    "fd00:ec2::254",
                    "100.100.100.200",
                    "192.0.0.192",
                    "168.63.129.16",
                    "::ffff:169.254.169.254",
                    "64:ff9b::a83f:8110",
                    "2002:a9fe:a9fe::",
                ],
            ),
            (Some(G::Multicast), &["224.0.0.1", "239.1.1.1", "255.255.255.255", "ff02::1"]),
            (Some(G::Host), &["10.0.0.5", "203.0.113.9", "2606:4700::5", "::ffff:10.0.0.5", "169.254.1.2"]),
            (
                None,
                &[
                    "192.0.0.8",
                    "192.0.2.1",
                    "198.18.0.1",
                    "203.0.113.1",
                    "240.0.0.1",
                    "2001:db8::1",
                    "3fff::1",
                    "100::1",
                    "64:ff9b:1::808:808",
                    "2001:10::1",
                    "192.88.99.1",
                ],
            ),
        ] {
            for address in addresses {
                assert_eq!(around().group(address.parse().unwrap()), group, "{address}");
            }
        }
    }

    #[test]
    fn listeners_of_the_daemon_are_closed_by_every_address_of_the_host() {
        let closed = |address: &str, port| around().is_closed(address.parse().unwrap(), port);
        for host in
            ["127.0.0.1", "::1", "10.0.0.5", "203.0.113.9", "169.254.1.2", "::ffff:10.0.0.5", "0.0.0.0"]
        {
            assert!(closed(host, 7777) && closed(host, 8888) && !closed(host, 80), "{host}");
        }
        assert!(!closed("10.0.0.6", 7777) && !closed("8.8.8.8", 8888));
    }
}
