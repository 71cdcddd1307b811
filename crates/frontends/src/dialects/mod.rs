//! Dialects: what the clients of other systems speak, over the same engine. Each is a thin adapter in a module of its own.

mod microsandbox;
mod microsandbox_mcp;

use axum::Router;

use crate::mcp::{Dialect, Mcp, NATIVE};

/// Every dialect. All are served at once, each under its own name.
pub const ALL: &[Dialect] = &[microsandbox::DIALECT, microsandbox_mcp::CURRENT, microsandbox_mcp::OLDER];

/// What dialects serve beside MCP, for [`crate::http::app`].
pub fn routes(mcp: &Mcp) -> Router {
    microsandbox::routes(mcp)
}

/// The names that can be chosen, our own surface first.
pub fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(&NATIVE).chain(ALL).map(|dialect| dialect.name)
}

/// The surface with this name.
pub fn named(name: &str) -> Option<Dialect> {
    std::iter::once(&NATIVE).chain(ALL).find(|dialect| dialect.name == name).copied()
}
