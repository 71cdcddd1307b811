//! Dialects: what the clients of other systems speak, over the same engine. Each is a thin adapter in a module of its own.

mod mcp_sandbox;
mod microsandbox;
mod microsandbox_mcp;

use axum::Router;

use crate::mcp::{Dialect, Mcp, NATIVE};

/// Python sandboxes by seven tools, over SSE.
pub const MCP_SANDBOX: Dialect = mcp_sandbox::DIALECT;

/// Every dialect. All are served at once, each under its own name.
pub const ALL: &[Dialect] =
    &[microsandbox::DIALECT, microsandbox_mcp::CURRENT, microsandbox_mcp::OLDER, MCP_SANDBOX];

/// The names that can be chosen, our own surface first.
pub fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(&NATIVE).chain(ALL).map(|dialect| dialect.name)
}

/// The surface with this name.
pub fn named(name: &str) -> Option<Dialect> {
    std::iter::once(&NATIVE).chain(ALL).find(|dialect| dialect.name == name).copied()
}

/// What dialects serve besides MCP: each below its own name, and the one that was chosen at its plain paths too.
pub fn routes(mcp: &Mcp, plain: Dialect) -> Router {
    microsandbox::routes(mcp).merge(mcp_sandbox::routes(mcp, plain.name == MCP_SANDBOX.name))
}
