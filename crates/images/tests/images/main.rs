//! Images against a real registry, real archives, and registries and layers that mean harm. All on loopback.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what a test cannot do, it reports by panicking"
)]
#![expect(clippy::print_stdout, reason = "what a test leaves out, it says")]

mod archives;
mod builds;
mod cap;
mod crash;
mod docker;
mod fixture;
mod full_disk;
mod hostile_layers;
mod hostile_registry;
mod keep;
mod layers;
mod pull;
mod reach;
mod server;
mod tls;
