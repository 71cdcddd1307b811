//! The real binary, from the outside: commands, a daemon, a socket. On the fake back end, and on the real one where it works.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what a test cannot do, it reports by panicking"
)]

mod code;
mod copying;
mod daemon;
mod execs;
mod http;
mod images;
mod inside;
mod interrupted;
mod keys;
mod lifecycle;
mod links;
mod links_browser;
mod links_stream;
mod mcp;
mod namespace;
mod output;
mod reference;
mod space;
mod support;
mod terminal;
mod volumes;
