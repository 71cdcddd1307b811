//! What stands between a package manager inside, which has no network, and its index outside.

use std::fmt;

use futures_util::future::BoxFuture;
use sandbox::{PackageManager, Result, SandboxId};

use crate::PortStream;

/// Reaches package indexes for sandboxes. What a client may reach is decided by the manager that it installs with.
pub trait PackageGateway: fmt::Debug + Send + Sync {
    /// Makes ready for clients, where that was not done before; a failure is told to who wanted packages.
    fn open(&self) -> Result<()>;

    /// Answers one client, hostile as everything inside, until it leaves. All clients of one sandbox share what it may take.
    fn serve(
        &self,
        client: PortStream,
        manager: PackageManager,
        sandbox: &SandboxId,
    ) -> BoxFuture<'static, ()>;

    /// The text of a sources file for apt (deb822). `gateway`: where the sandbox finds it, such as `http://127.0.0.1:1234`.
    fn apt_sources(&self, gateway: &str) -> Result<String>;
}
