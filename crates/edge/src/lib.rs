//! The edge: where the traffic of sandboxes leaves the machine.
//!
//! A sandbox's own kernel ends every connection, on sockets that were made in its network namespace and handed to this
//! process. The edge hears a SYN, asks the policy, dials, and only then lets the sandbox's connection be made; it
//! answers DNS, holds connections to the names they were allowed for, and carries bytes.
//!
//! ```text
//!   SYN ─→ tcp::hold ─→ handling ─→ tcp::dial ─→ SYN released ─→ accepted ─→ names ─→ tcp::splice
//!                                                              └─→ secrets (hosts of the sandbox's secrets)
//!   datagram ─→ udp ─→ dns (port 53 of any address) | udp::flows (where a rule allows UDP)
//! ```
//!
//! Where the kernel holds no first packet (the form of named ports), connections are accepted first and decided then
//! (`tcp::named`).
//!
//! [`serve`] is the process's whole body; the daemon talks to it with [`Client`]. Everything from a sandbox is hostile.
#![forbid(unsafe_code)]

mod client;
mod control;
mod dns;
mod events;
mod handling;
mod host;
mod hosts;
mod limits;
mod names;
mod packets;
mod pins;
mod raw;
mod sandbox;
mod secrets;
mod serve;
mod sockets;
mod tcp;
mod udp;
mod watched;
mod workers;

pub use client::{Client, ClientError, EdgeReport};
pub use control::Around;
pub use events::Counters;
pub use secrets::make_authority;
pub use serve::serve;
pub use sockets::sort_sockets;
pub use tcp::proxy::UpstreamProxy;

/// Entry points for fuzzers: the functions that see a sandbox's bytes first.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::{
        dns::fuzz_message,
        names::{http::fuzz_requests, tls::fuzz_hello},
        packets::fuzz_packet,
        secrets::fuzz_scrub,
    };
}
