//! OpenSandbox: the tools of its MCP server, and the three APIs that its SDKs use: its server's (`lifecycle`), that of
//! its daemon inside each sandbox (`execd`) and that of its network sidecar (`egress`).
//!
//! `tools`, `lifecycle` and `execd` only read what they are asked and word the answers. What they do is beneath them,
//! once: `create`, `view`, `endpoint`, `commands`, `files`, `metrics`.
//!
//! Nothing listens inside for them: `execd` and `egress` answer from here, over the engine, at the addresses that
//! `lifecycle` gives to clients. Names, fields and codes are OpenSandbox's; `docs/dialects.md` says where we differ.

mod ask;
mod commands;
mod create;
mod egress;
mod endpoint;
mod execd;
mod files;
mod handle;
mod lifecycle;
mod listed;
mod metrics;
mod openapi;
mod page;
mod proxy;
mod resources;
mod tools;
mod view;

use axum::Router;

use self::ask::Front;
use crate::{
    http,
    mcp::{Dialect, Mcp},
    ports::Proxy,
};

pub(super) const DIALECT: Dialect = Dialect { name: "opensandbox", surface: tools::surface };

/// Its routes. `http` leads its clients to them, wherever those think they are.
pub(super) fn routes(mcp: &Mcp, proxy: Proxy) -> Router {
    let own = lifecycle::routes()
        .merge(openapi::routes())
        .nest("/sandboxes/{sandbox}/proxy/44772", execd::routes())
        .nest("/sandboxes/{sandbox}/proxy/18080", egress::routes())
        .merge(proxy::routes());
    Router::new().nest(http::OPENSANDBOX, own.with_state(Front { mcp: mcp.clone(), proxy }))
}
