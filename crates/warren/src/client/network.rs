//! Calls about a sandbox's network.

use engine::{NetworkPatch, NetworkRequestView, NetworkView};
use frontends::rest::v1;
use sandbox::NetworkHosts;

use super::{Client, Target};
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

    pub(crate) async fn network_hosts(&self, sandbox: &str) -> CommandResult<NetworkHosts> {
        self.get(self.of(sandbox, &["network", "hosts"])).await
    }

    /// Requests that wait for an answer.
    pub(crate) async fn pending_network_requests(&self) -> CommandResult<v1::NetworkRequestList> {
        let target = Target::new(&["network", "requests"]).maybe("namespace", self.namespace());
        self.get(target.with("pending", true)).await
    }

    pub(crate) async fn grant_network_request(
        &self,
        sandbox: &str,
        request: &str,
        body: &v1::NetworkGrantRequest,
    ) -> CommandResult<NetworkRequestView> {
        self.post_json(self.of(sandbox, &["network", "requests", request, "grant"]), body).await
    }

    pub(crate) async fn refuse_network_request(
        &self,
        sandbox: &str,
        request: &str,
        body: &v1::NetworkRefusal,
    ) -> CommandResult<NetworkRequestView> {
        self.post_json(self.of(sandbox, &["network", "requests", request, "refuse"]), body).await
    }
}
