//! The REST front end over a real engine with real sandboxes: every route, every kind of error, every form of stream.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what a test cannot do, it reports by panicking"
)]

mod audit;
mod code;
mod conformance;
mod contexts;
mod entries;
mod errors;
mod events;
mod execs;
mod files;
mod images;
mod keys;
mod listen;
mod namespaces;
mod network;
mod openapi;
mod ports;
mod runs;
mod sandboxes;
mod secrets;
mod snapshots;
mod support;
mod system;
mod volumes;
