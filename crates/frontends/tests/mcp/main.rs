//! MCP over every transport, as a client sees it: a real engine and real sandboxes, nothing between but the messages.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what a test cannot do, it reports by panicking"
)]

mod bad_input;
mod dialects;
mod http;
mod mcp_sandbox;
mod microsandbox;
mod opensandbox;
mod socket;
mod sse;
mod stdio;
mod streams;
mod support;
