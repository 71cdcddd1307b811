//! The address of a port inside, and the token that opens it. Clients send no key there, but every header that they are
//! given with the address.

use std::time::Duration;

use engine::LinkTarget;
use sandbox::{Result, SandboxId};

use crate::{
    http::{INSIDE_HEADER, OPENSANDBOX},
    links::AskersLinks,
};

/// The ports of OpenSandbox's daemons inside: commands and files, and the network.
pub(super) const OWN_PORTS: [u16; 2] = [44772, 18080];

#[derive(Debug)]
pub(super) struct Endpoint {
    /// Host, port and path, without a scheme.
    pub(super) address: String,
    pub(super) header: (&'static str, String),
}

impl Endpoint {
    /// `ttl`: how long the token holds, if not as long as links do.
    pub(super) fn of(links: &AskersLinks, id: &SandboxId, port: u16, ttl: Option<Duration>) -> Result<Self> {
        let target = match OWN_PORTS.contains(&port) {
            true => LinkTarget::Inside,
            false => LinkTarget::Port { port },
        };
        let address = format!("{}{OPENSANDBOX}/sandboxes/{id}/proxy/{port}", links.host()?);
        Ok(Self { address, header: (INSIDE_HEADER, links.token(id, &target, ttl)?.token) })
    }
}
