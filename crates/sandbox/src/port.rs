//! Ports of a sandbox that are reachable from outside.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::{Error, Result, network::Protocol, object::only_object};

/// Most ports of one sandbox that are exposed at the same time. Each holds a listener of the daemon.
pub const MAX_EXPOSED_PORTS: usize = 64;

/// A port to expose: on a port of the host, to everybody who knows its address, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct PortSpec {
    /// The port inside.
    #[schema(minimum = 1)]
    pub inside: u16,
    /// TCP when absent. A UDP port can be published, but not be public.
    #[serde(default, skip_serializing_if = "Protocol::is_tcp")]
    pub protocol: Protocol,
    /// Publishes it on this port of the host; 0 is any free port. Not published when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<u16>,
    /// The address of the host to listen on; 127.0.0.1 when absent. The operator decides which others are possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// Lets everybody who reaches the daemon use it, without a key or a token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub public: bool,
}
only_object!(PortSpec);

impl PortSpec {
    pub fn published(host: u16, inside: u16) -> Self {
        Self { inside, protocol: Protocol::Tcp, host: Some(host), address: None, public: false }
    }

    /// Where to listen, if it is to be published.
    pub fn listen(&self) -> Option<SocketAddr> {
        let address = self.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        self.host.map(|port| SocketAddr::new(address, port))
    }

    pub fn check(&self) -> Result<()> {
        if self.inside == 0 {
            return Err(Error::invalid("0 is not a port").with_hint("Ports inside go from 1 to 65535."));
        }
        match (self.host, self.address, self.public) {
            (None, Some(_), _) => Err(Error::invalid(format!(
                "port {} has an address of the host, but no port of the host",
                self.inside
            ))
            .with_hint("Set host to a port of the host, or to 0 for any free port.")),
            (_, _, true) if self.protocol == Protocol::Udp => {
                Err(Error::invalid(format!("port {} is a UDP port, which cannot be public", self.inside))
                    .with_hint("Set host to a port of the host, and public to false."))
            }
            (None, None, false) => {
                Err(Error::invalid(format!("port {} is neither public nor published", self.inside))
                    .with_hint("Set host to a port of the host (0 for any free port), or public to true."))
            }
            _ => Ok(()),
        }
    }
}

/// Checks the ports of a request as a whole.
pub fn check_ports(ports: &[PortSpec]) -> Result<()> {
    if ports.len() > MAX_EXPOSED_PORTS {
        let n_ports = ports.len();
        return Err(Error::invalid(format!("{n_ports} ports; a sandbox can expose {MAX_EXPOSED_PORTS}")));
    }
    for (index, port) in ports.iter().enumerate() {
        port.check()?;
        let is_same = |earlier: &PortSpec| (earlier.inside, earlier.protocol) == (port.inside, port.protocol);
        if ports[..index].iter().any(is_same) {
            return Err(Error::invalid(format!("port {} is exposed twice", port.inside))
                .with_hint("A port inside has one port of the host."));
        }
    }
    Ok(())
}

/// `[ADDRESS:]HOST:INSIDE`, or `INSIDE` alone for any free port of the host; with `/udp` for a UDP port.
impl FromStr for PortSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let shown: String = text.chars().take(64).collect();
            Error::invalid(format!("{shown:?} does not say which port to publish")).with_hint(
                "Write [ADDRESS:]HOST:INSIDE[/udp], such as 8080:80, 127.0.0.1:8080:80 or [::1]:5353:53/udp.",
            )
        };
        let (plain, protocol) = match text.rsplit_once('/') {
            None => (text, Protocol::Tcp),
            Some((plain, "tcp")) => (plain, Protocol::Tcp),
            Some((plain, "udp")) => (plain, Protocol::Udp),
            Some(_) => return Err(wrong()),
        };
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            match digits.parse::<u16>() {
                Ok(number) if is_number => Ok(number),
                Err(_too_large) if is_number => {
                    let shown: String = digits.chars().take(64).collect();
                    Err(Error::invalid(format!("{shown} is not a port: ports go up to {}", u16::MAX)))
                }
                _ => Err(wrong()),
            }
        };
        let (outside, inside) = match plain.rsplit_once(':') {
            Some((outside, inside)) => (Some(outside), inside),
            None => (None, plain),
        };
        let (address, host) = match outside.map(|outside| outside.rsplit_once(':').ok_or(outside)) {
            None => (None, 0),
            Some(Err(host)) => (None, number(host)?),
            Some(Ok((address, host))) => {
                let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                let address: IpAddr = match bare {
                    Some(six) => IpAddr::V6(six.parse().map_err(|_malformed| wrong())?),
                    None => IpAddr::V4(address.parse().map_err(|_malformed| wrong())?),
                };
                (Some(address), number(host)?)
            }
        };
        let spec = Self { inside: number(inside)?, protocol, host: Some(host), address, public: false };
        spec.check().map(|()| spec)
    }
}

/// A port that is exposed, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExposedPort {
    pub port: u16,
    #[serde(default, skip_serializing_if = "Protocol::is_tcp")]
    pub protocol: Protocol,
    /// Where the host listens for it while the sandbox runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<SocketAddr>,
    #[serde(default)]
    pub public: bool,
}

/// A port that is exposed, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortView {
    /// The port inside.
    pub port: u16,
    /// TCP when absent.
    #[serde(default, skip_serializing_if = "Protocol::is_tcp")]
    pub protocol: Protocol,
    /// Address and port of the host on which it is published while the sandbox runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "127.0.0.1:8080")]
    pub published: Option<SocketAddr>,
    /// Everybody who reaches the daemon can use it, without a key or a token.
    pub public: bool,
    /// Why the host does not listen although the sandbox runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl fmt::Display for ExposedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{host}->{}", self.port),
            None => write!(f, "{}", self.port),
        }?;
        match self.protocol {
            Protocol::Tcp => Ok(()),
            Protocol::Udp => f.write_str("/udp"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ports_are_read_as_people_write_them() {
        let spec = |host, inside, address: &str| PortSpec {
            inside,
            protocol: Protocol::Tcp,
            host: Some(host),
            address: address.parse().ok(),
            public: false,
        };
        for (text, expected) in [
            ("8080:80", spec(8080, 80, "")),
            ("80", spec(0, 80, "")),
            ("0:80/tcp", spec(0, 80, "")),
            ("0.0.0.0:8080:80", spec(8080, 80, "0.0.0.0")),
            ("[::1]:8080:80", spec(8080, 80, "::1")),
            ("5353:53/udp", PortSpec { protocol: Protocol::Udp, ..spec(5353, 53, "") }),
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap(), expected, "{text}");
        }
        for text in [
            "",
            ":",
            "80:",
            ":80",
            "8080:0",
            "x:80",
            "+8080:80",
            "8080:80/sctp",
            "8080:80/",
            "8080/udp:80",
            "70000:80",
            "::1:8080:80",
        ] {
            assert!(text.parse::<PortSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_says_how_it_is_exposed_and_only_once() {
        let open = PortSpec { inside: 80, protocol: Protocol::Tcp, host: None, address: None, public: true };
        assert!(check_ports(std::slice::from_ref(&open)).is_ok());
        for wrong in [
            PortSpec { public: false, ..open.clone() },
            PortSpec { inside: 0, ..open.clone() },
            PortSpec { protocol: Protocol::Udp, ..open.clone() },
            PortSpec { protocol: Protocol::Udp, host: Some(80), ..open.clone() },
            PortSpec { address: Some([127, 0, 0, 1].into()), ..open.clone() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        assert!(check_ports(&[open.clone(), PortSpec::published(1, 80)]).is_err());
        let datagrams = PortSpec { protocol: Protocol::Udp, ..PortSpec::published(1, 80) };
        assert!(check_ports(&[open.clone(), datagrams]).is_ok());
        let many: Vec<_> = (1..=65).map(|inside| PortSpec { inside, ..open.clone() }).collect();
        assert!(check_ports(&many).is_err());
    }
}
