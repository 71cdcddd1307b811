//! Calls about a sandbox's network.

use engine::{NetworkPatch, NetworkView};
use frontends::rest::v1;

use super::Client;
use crate::error::CommandResult;

impl Client {
    pub(crate) async fn network(&self, sandbox: &str) -> CommandResult<NetworkView> {
        self.get(self.of(sandbox, &["network"])).await
    }

    pub(crate) async fn patch_network(
        &self,
        sandbox: &str,
        patch: &NetworkPatch,
    ) -> CommandResult<NetworkView> {
        self.patch_json(self.of(sandbox, &["network"]), patch).await
    }

    pub(crate) async fn network_log(&self, sandbox: &str, limit: u32) -> CommandResult<v1::NetworkLog> {
        self.get(self.of(sandbox, &["network", "log"]).with("limit", limit)).await
    }
}
