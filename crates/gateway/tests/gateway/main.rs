//! The gateway between real package managers and an index on loopback that does as the test says.
#![expect(clippy::unwrap_used, reason = "what a test cannot do, it reports by panicking")]

mod apt;
mod cache;
mod client;
mod hostile_clients;
mod hostile_indexes;
mod index;
mod killed;
mod managers;
mod npm;
mod packages;
mod pip;
mod served;
