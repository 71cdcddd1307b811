//! Exposing a port, and the address at which somebody reaches it.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use engine::{Engine, MAX_LINK_TTL, Principal, SandboxRef};
use jiff::Timestamp;
use sandbox::{Error, PortSpec, PortView, Result, network::Protocol};

use super::{TOKEN_HEADER, listening_ports};
use crate::links::AskersLinks;

/// How a caller wants to reach a port.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExposeOptions {
    pub(crate) protocol: Protocol,
    pub(crate) public: bool,
    /// The port of the host to publish on.
    pub(crate) host: Option<u16>,
    pub(crate) address: Option<IpAddr>,
    /// How long a signed address is valid.
    pub(crate) ttl: Option<Duration>,
}

/// The address of a port.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) port: u16,
    /// With a token, unless the port is public. None where no browser reaches the daemon.
    pub(crate) url: Option<String>,
    pub(crate) expires_at: Option<Timestamp>,
    /// For programs, in place of the token in the address.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) exposed: Option<PortView>,
    /// Whether a server listens on it now; unknown if the sandbox does not run.
    pub(crate) listening: Option<bool>,
}

/// Exposes a port as asked, if at all, and says where it is reached.
pub(crate) async fn expose(
    engine: &Engine,
    who: &Principal,
    links: &AskersLinks,
    which: &SandboxRef,
    port: u16,
    options: &ExposeOptions,
) -> Result<Endpoint> {
    // Whoever may only look reaches no port, so an address would be of no use.
    who.may_change()?;
    check_ttl(options.ttl)?;
    if port == 0 {
        return Err(Error::invalid("0 is not a port").with_hint("Ports go from 1 to 65535."));
    }
    let ExposeOptions { protocol, public, host, address, ttl } = *options;
    let spec = PortSpec { inside: port, protocol, host, address, public };
    if protocol == Protocol::Udp {
        // It is reached by the port of the host only.
        let exposed = Some(engine.expose_port(who, which, &spec).await?);
        return Ok(Endpoint {
            port,
            url: None,
            expires_at: None,
            headers: BTreeMap::new(),
            exposed,
            listening: None,
        });
    }
    if public || host.is_some() || address.is_some() {
        engine.expose_port(who, which, &spec).await?;
    }
    let view = engine.sandbox(who, which).await?;
    let exposed =
        view.ports.iter().find(|exposed| exposed.port == port && exposed.protocol == Protocol::Tcp).cloned();
    let is_public = exposed.as_ref().is_some_and(|exposed| exposed.public);
    let listening = listening_ports(engine, who, which).await.ok();
    let listening = listening.map(|all| all.iter().any(|found| found.port == port));
    let mut endpoint =
        Endpoint { port, url: None, expires_at: None, headers: BTreeMap::new(), exposed, listening };
    match links.for_port(&view, port, ttl, is_public) {
        Ok(address) => {
            endpoint.url = Some(address.url);
            endpoint.expires_at = address.expires_at;
            endpoint.headers.extend(address.token.map(|token| (TOKEN_HEADER.to_owned(), token)));
            Ok(endpoint)
        }
        // A published port is reached without the daemon's own listener.
        Err(_) if endpoint.exposed.as_ref().is_some_and(|exposed| exposed.published.is_some()) => {
            Ok(endpoint)
        }
        Err(error) => Err(error),
    }
}

fn check_ttl(ttl: Option<Duration>) -> Result<()> {
    match ttl.filter(|ttl| ttl.is_zero() || *ttl > MAX_LINK_TTL) {
        None => Ok(()),
        Some(ttl) => Err(Error::invalid(format!("an address cannot be valid for {} seconds", ttl.as_secs()))
            .with_hint(format!("Choose 1 to {} seconds.", MAX_LINK_TTL.as_secs()))),
    }
}
