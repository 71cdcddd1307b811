//! The MCP protocol: its messages, sessions and transports. Nothing outside this directory names the library behind it.
//!
//! [`handler`] turns messages into calls of tools, resources and prompts. `http` (Streamable HTTP), `sse` (its
//! predecessor) and `stdio` (for `warren mcp`) carry messages; each is generic over the [`Profile`], so that the
//! conformance suite's fixtures go through the very same code.

mod client;
#[cfg(feature = "conformance")]
mod conformance;
mod convert;
mod events;
mod fixed_list;
mod grants;
mod handler;
mod hello;
mod http;
mod listing;
mod misshapen;
mod patient;
mod person;
mod sessions;
mod sse;
mod stdio;
mod subscriptions;

use std::sync::{Arc, LazyLock, OnceLock};

use axum::{Router, body::Bytes};
use rmcp::ServerHandler;
use tokio_util::sync::CancellationToken;

use self::{client::Client, handler::Handler, listing::Lists};
use super::{Mcp, Settings, surface::Surface};
use crate::http::Activity;

pub use self::http::http_path;
pub use self::stdio::{Greeting, SETTINGS_HEADER, UPGRADE_PROTOCOL, stdio_path};

/// Longest message that is read, on every transport: files are written through tools.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Returns the result of `tools/list`, for tests that weigh it.
#[cfg(test)]
pub(super) fn listed(surface: &Surface, sets: &super::Toolsets) -> serde_json::Value {
    serde_json::json!({ "tools": listing::tools(surface, sets) })
}

/// The server behind a set of routes.
pub(super) trait Profile: Clone + Send + Sync + 'static {
    type Handler: ServerHandler;

    /// For clients that bring none of their own.
    fn settings(&self) -> &Arc<Settings>;

    /// One for each client, or for each request where the client has no session.
    fn handler(&self, client: Client) -> Self::Handler;

    /// The result of `tools/list` as JSON, where it is the same for every client.
    fn fixed_list(&self) -> Option<&Bytes>;
}

/// A surface that clients of another system know, served beside the native one.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// As in `/mcp/<name>`.
    pub name: &'static str,
    pub(crate) surface: fn() -> Arc<Surface>,
}

/// Our own.
pub const NATIVE: Dialect = Dialect { name: "warren", surface: || Arc::new(Surface::native()) };

/// One surface as its routes serve it. Clones are the same.
#[derive(Debug, Clone)]
struct Served {
    mcp: Mcp,
    /// Made when the first client comes: a daemon that none uses does not pay for it.
    surface: Arc<LazyLock<Arc<Surface>>>,
    lists: Arc<Lists>,
    fixed_list: Arc<OnceLock<Option<Bytes>>>,
}

impl Served {
    fn new(mcp: Mcp, dialect: Dialect) -> Self {
        let surface = Arc::new(LazyLock::new(dialect.surface));
        Self { mcp, surface, lists: Arc::default(), fixed_list: Arc::default() }
    }
}

impl Profile for Served {
    type Handler = Handler;

    fn settings(&self) -> &Arc<Settings> {
        self.mcp.settings()
    }

    fn handler(&self, client: Client) -> Handler {
        let surface = Arc::clone(LazyLock::force(&self.surface));
        Handler::new(self.mcp.clone(), surface, Arc::clone(&self.lists), client)
    }

    fn fixed_list(&self) -> Option<&Bytes> {
        match self.surface.manner.has_toolsets {
            true => None,
            false => self.fixed_list.get_or_init(|| fixed_list::json(&self.surface)).as_ref(),
        }
    }
}

/// `/mcp`, `/sse`, `/messages` and, on the Unix socket, `/mcp/stdio`, each for the plain surface and, with `/<name>`
/// behind it, for every dialect. Requests must come with their `Peer` and `Principal` as extensions: `http::app` sees
/// to that. `stop` ends open streams, so that a daemon can leave; `activity` counts clients on stdio, whose requests
/// are over when they begin.
pub fn router(
    mcp: &Mcp,
    plain: Dialect,
    dialects: &[Dialect],
    stop: &CancellationToken,
    activity: &Activity,
) -> Router {
    plain_router(mcp, plain, stop, activity).merge(named_router(mcp, dialects, stop, activity))
}

/// The part of [`router`] that has no name behind its paths: each listener may have another.
pub fn plain_router(mcp: &Mcp, plain: Dialect, stop: &CancellationToken, activity: &Activity) -> Router {
    routes(Served::new(mcp.clone(), plain), "", stop.clone(), activity.clone())
}

/// The part of [`router`] with names. Clones of it have the same sessions, so all listeners can share them.
pub fn named_router(
    mcp: &Mcp,
    dialects: &[Dialect],
    stop: &CancellationToken,
    activity: &Activity,
) -> Router {
    let named = [NATIVE].iter().chain(dialects).map(|dialect| {
        let (served, at) = (Served::new(mcp.clone(), *dialect), format!("/{}", dialect.name));
        routes(served, &at, stop.clone(), activity.clone())
    });
    named.fold(Router::new(), Router::merge)
}

/// The same transports with what the official conformance suite expects behind them; `None` in a build for users.
#[cfg(feature = "conformance")]
pub fn conformance_router(stop: CancellationToken, activity: Activity) -> Option<Router> {
    Some(routes(conformance::Conformance::new(), "", stop, activity))
}

#[cfg(not(feature = "conformance"))]
pub fn conformance_router(_stop: CancellationToken, _activity: Activity) -> Option<Router> {
    None
}

/// `at` is what follows the paths of the plain surface.
fn routes<P: Profile>(profile: P, at: &str, stop: CancellationToken, activity: Activity) -> Router {
    http::routes(profile.clone(), at, stop.clone())
        .merge(sse::routes(profile.clone(), at, stop.clone()))
        .merge(stdio::routes(profile, at, stop, activity))
}
