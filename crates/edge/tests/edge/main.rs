//! The edge between sandboxes and a world, both made of network namespaces.
#![expect(clippy::unwrap_used, reason = "what a test cannot do, it reports by panicking")]
#![expect(clippy::print_stdout, reason = "what a test measured is shown with --nocapture")]

mod dns;
mod edge;
mod https;
mod inside;
mod names;
mod proxy;
mod secrets;
mod servers;
mod tcp;
mod udp;
mod world;
mod zone;
