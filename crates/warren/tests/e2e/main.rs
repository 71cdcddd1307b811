//! The real binary, from the outside: commands, a daemon, a socket. In real sandboxes of the default back end.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what a test cannot do, it reports by panicking"
)]

mod browser;
mod code;
mod copying;
mod daemon;
mod dashboard;
mod docker;
mod execs;
mod host_image;
mod http;
mod images;
mod inside;
mod interrupted;
mod keys;
mod lifecycle;
mod links;
mod links_browser;
mod links_stream;
mod listeners;
mod looking_on;
mod mcp;
mod msb;
mod output;
mod pool;
mod ports;
mod ports_browser;
mod reference;
mod registries;
mod run_directory;
mod sandboxfile;
mod secrets;
mod service;
mod shells;
mod space;
mod support;
mod terminal;
mod tutorial;
mod upgrade;
mod volumes;
