//! Reaching servers inside a sandbox: an HTTP and WebSocket reverse proxy over connections to them.
//!
//! The proxy decides nothing about access: whoever calls it has a principal, and the engine refuses what that principal
//! may not do.

mod endpoint;
mod headers;
mod listening;
mod name;
mod page;
mod pool;
mod proxy;
mod tie;

pub use self::name::PortDomain;
pub(crate) use self::{
    endpoint::{Endpoint, ExposeOptions, expose},
    headers::{TOKEN_COOKIES, TOKEN_HEADER, TOKEN_PARAMETER, shows_key},
    listening::{ListeningPort, listening_ports, listening_processes},
    name::{PortHost, label, port_of_path, url},
    page::{failure_page, wants_page},
    proxy::Proxy,
    tie::Tie,
};
