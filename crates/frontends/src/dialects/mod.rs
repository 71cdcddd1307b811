//! Dialects: what the clients of other systems speak, over the same engine. Each is a thin adapter in a module of its own.

mod microsandbox_mcp;

use crate::mcp::{Dialect, NATIVE};

/// Every dialect. All are served at once, each under its own name.
pub const ALL: &[Dialect] = &[microsandbox_mcp::CURRENT, microsandbox_mcp::OLDER];

/// The names that can be chosen, our own surface first.
pub fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(&NATIVE).chain(ALL).map(|dialect| dialect.name)
}

/// The surface with this name.
pub fn named(name: &str) -> Option<Dialect> {
    std::iter::once(&NATIVE).chain(ALL).find(|dialect| dialect.name == name).copied()
}
