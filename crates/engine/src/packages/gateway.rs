//! The gateway between a package manager inside, which has no network, and its index outside.

use std::fmt;

use futures_util::future::BoxFuture;
use sandbox::{PackageManager, Result, SandboxId};

use crate::PortStream;

/// Reaches package indexes for sandboxes. The manager of an install decides what its client may reach.
pub trait PackageGateway: fmt::Debug + Send + Sync {
    /// Prepares for clients, if not done before; a failure is returned to the caller who wanted packages.
    fn open(&self) -> Result<()>;

    /// Answers one client, hostile like everything inside, until it leaves. All clients of one sandbox share its
    /// limits.
    fn serve(
        &self,
        client: PortStream,
        manager: PackageManager,
        sandbox: &SandboxId,
    ) -> BoxFuture<'static, ()>;

    /// The text of a sources file for apt (deb822). `gateway`: its address inside, such as `http://127.0.0.1:1234`.
    fn apt_sources(&self, gateway: &str) -> Result<String>;
}
