//! The base of every download of the daemon: the HTTP client, its certificates, and where it may lead.
//!
//! The daemon downloads packages and images for callers who do not run it. They name hosts, and those hosts name
//! others. None of that may lead into the daemon's own network. A [`Guard`] checks each URL before it is requested, and
//! [`PublicOnly`] checks the addresses that a name resolves to, which are exactly the ones that are dialled.
#![forbid(unsafe_code)]

mod addresses;
mod client;
mod guard;

pub use self::{
    client::{cause, client_builder, reason},
    guard::{Guard, PublicOnly, Refused, check_name},
};
