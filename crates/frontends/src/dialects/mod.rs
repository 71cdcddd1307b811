//! Dialects: what the clients of other systems speak, over the same engine. Each is a thin adapter in its own module.

mod mcp_sandbox;
mod microsandbox;
mod microsandbox_mcp;
mod opensandbox;
mod python;

use axum::Router;
use tokio_util::sync::CancellationToken;

pub use self::{
    mcp_sandbox::mcp_sandbox_routes,
    microsandbox::{lacks_language, rpc_methods, stand_in},
};
use crate::{
    http::Activity,
    mcp::{Dialect, Mcp, NATIVE},
    ports::Proxy,
};

/// microsandbox's own server, as up to version 0.2.
pub const MICROSANDBOX: Dialect = microsandbox::DIALECT;
/// Python sandboxes by seven tools, over SSE.
pub const MCP_SANDBOX: Dialect = mcp_sandbox::DIALECT;

/// OpenSandbox: the tools of opensandbox-mcp.
pub const OPENSANDBOX: Dialect = opensandbox::DIALECT;

/// Every dialect. All are served at once, each under its own name.
pub const ALL: &[Dialect] =
    &[MICROSANDBOX, microsandbox_mcp::CURRENT, microsandbox_mcp::OLDER, MCP_SANDBOX, OPENSANDBOX];

/// The names that can be chosen, our own surface first.
pub fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(&NATIVE).chain(ALL).map(|dialect| dialect.name)
}

/// The surface with this name.
pub fn named(name: &str) -> Option<Dialect> {
    std::iter::once(&NATIVE).chain(ALL).find(|dialect| dialect.name == name).copied()
}

/// Returns the routes that dialects serve besides MCP: each below its own name, and those of the chosen dialect at its
/// plain paths too. `stop` ends what is open; `activity` counts streams that outlive their request.
pub fn routes(mcp: &Mcp, plain: Dialect, activity: &Activity, stop: &CancellationToken) -> Router {
    let proxy = Proxy::new(mcp.engine().clone(), activity.clone(), stop.clone());
    microsandbox::routes(mcp)
        .merge(mcp_sandbox::routes(mcp, plain.name == MCP_SANDBOX.name))
        .merge(opensandbox::routes(mcp, proxy))
}
