//! Networks of real sandboxes, in a world of the test's own: see [`world`].
#![expect(
    clippy::print_stdout,
    reason = "what was not tested, and what was measured, is shown with --nocapture"
)]

mod asking;
mod attacks;
mod clients;
mod faults;
mod floods;
mod named_ports;
mod own;
mod policy;
mod proxy;
mod secrets;
#[path = "../../../../edge/tests/edge/servers.rs"]
mod servers;
mod services;
mod surfaces;
mod widening;
mod world;
#[path = "../../../../edge/tests/edge/zone.rs"]
mod zone;
