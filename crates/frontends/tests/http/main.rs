//! HTTP on TCP, with a real engine and real sockets: who passes the gate, how much they get, what the listener bears.
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
mod opensandbox_execd;
mod opensandbox_input;
mod ports;
mod support;
mod terminal;
mod tls;
mod web;
