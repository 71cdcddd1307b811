//! HTTP on TCP: who gets through the gate, how much they get, and what the listener bears. On a real engine and real sockets.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what a test cannot do, it reports by panicking"
)]

mod gate;
mod limits;
mod links;
mod listen;
mod opensandbox;
mod opensandbox_input;
mod ports;
mod support;
mod terminal;
mod tls;
mod web;
