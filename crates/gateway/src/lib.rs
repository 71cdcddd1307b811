//! The way out for package managers in sandboxes that have no network.
//!
//! A client inside a sandbox speaks HTTP/1.1 over any byte stream; [`Gateway::serve`] answers it. It reaches the
//! configured package indexes and what their pages name, nothing else, and keeps what it fetched, so that the second
//! install needs no index.
//!
//! ```text
//!   client (hostile) ── serve ── route ──┬─ pip, npm: pages are read, their links made ours, files verified ──┐
//!                                        └─ apt: files by address ─────────────────────────────────────────────┤
//!                            cache (blobs by content, records by key) ── files, pages ── upstream (guarded) ───┘
//! ```
//!
//! Two sides are not trusted. The client may send anything: it names projects and files, never addresses. The index may
//! answer anything: its pages are parsed within bounds, its links are followed to public addresses only, and a file
//! whose hash is not the one that was stated never completes.
#![forbid(unsafe_code)]

mod apt;
mod cache;
mod clients;
mod config;
mod digest;
mod error;
mod files;
mod host;
mod missing;
mod npm;
mod pages;
mod pip;
mod reply;
mod route;
mod serve;
mod stats;
mod table;
mod upstream;

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

pub use self::{
    clients::ClientId,
    config::{Credential, GatewayConfig, Manager, Patience, Proxies},
    error::GatewayError,
    host::{AptSource, HostPackages, SignedBy},
    stats::Stats,
};
/// Addresses in [`GatewayConfig`] are of this type.
pub use url::Url;

use self::{cache::Cache, clients::Clients, files::Files, pages::Pages, stats::Counters, upstream::Upstream};

/// The indexes that one client may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scope {
    pub pip: bool,
    pub npm: bool,
    pub apt: bool,
}

impl Scope {
    pub const ALL: Self = Self { pip: true, npm: true, apt: true };
}

/// Cheap to clone; clones share the cache and the connections.
#[derive(Debug, Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pip_index: Url,
    npm_registry: Url,
    apt_sources: Vec<Url>,
    pages: Pages,
    files: Files,
    clients: Clients,
    counters: Arc<Counters>,
}

impl Gateway {
    /// Takes the cache's directory for itself and sweeps what an earlier process left half-made. Touches no network.
    pub fn open(config: GatewayConfig) -> Result<Self, GatewayError> {
        let counters = Arc::new(Counters::default());
        let cache = Arc::new(Cache::open(&config.cache, config.max_cache_bytes)?);
        let pip_index = config::base(&config.pip_index)?;
        let npm_registry = config::base(&config.npm_registry)?;
        let apt_sources = config.apt_sources.iter().map(config::base).collect::<Result<Vec<_>, _>>()?;
        let upstream = Arc::new(Upstream::new(&config, Arc::clone(&counters))?);
        let pages =
            Pages::new(Arc::clone(&cache), Arc::clone(&upstream), Arc::clone(&counters), config.fresh_for);
        let files = Files::new(cache, upstream, Arc::clone(&counters), config.fresh_for);
        let clients = Clients::default();
        let inner = Inner { pip_index, npm_registry, apt_sources, pages, files, clients, counters };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Answers one connection until it ends. How many there may be at a time is the caller's to bound; what all of one
    /// client take together is bounded here. Must run inside a Tokio runtime with time and I/O.
    pub async fn serve<S>(&self, stream: S, scope: Scope, client: ClientId)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let client = self.inner.clients.enter(client);
        serve::serve(&self.inner, stream, scope, &client).await;
    }

    pub fn stats(&self) -> Stats {
        self.inner.counters.snapshot()
    }
}
