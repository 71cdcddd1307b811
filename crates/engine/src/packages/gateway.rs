//! The gateway between a package manager inside, which has no network, and its index outside.

use std::fmt;

use futures_util::future::BoxFuture;
use sandbox::{PackageManager, Result, SandboxId};

use crate::{PackagesCache, PortStream};

/// Counts of what a gateway did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatewayStats {
    pub requests: u64,
    pub hits: u64,
    pub misses: u64,
    pub stale: u64,
    pub mismatches: u64,
    pub errors: u64,
    pub bytes_fetched: u64,
    pub bytes_served: u64,
}

/// Reaches package indexes for sandboxes.
pub trait PackageGateway: fmt::Debug + Send + Sync {
    /// Prepares for clients, if not done before; a failure is returned to the caller who wanted packages.
    fn open(&self) -> Result<()>;

    /// Answers one client, hostile like everything inside, until it leaves. It may reach the index of this manager, or
    /// that of any if absent. All clients of one sandbox share its limits.
    fn serve(
        &self,
        client: PortStream,
        manager: Option<PackageManager>,
        sandbox: &SandboxId,
    ) -> BoxFuture<'static, ()>;

    /// Returns the cache of installed packages; may have to count files. Absent if there is none.
    fn cache(&self) -> Option<PackagesCache> {
        None
    }

    /// Returns its counts so far. Absent if it was never needed.
    fn stats(&self) -> Option<GatewayStats> {
        None
    }

    /// The text of a sources file for apt (deb822). `gateway`: its address inside, such as `http://127.0.0.1:1234`.
    fn apt_sources(&self, gateway: &str) -> Result<String>;
}
