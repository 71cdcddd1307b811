//! Calls about ports.

use frontends::rest::v1;

use super::Client;
use crate::error::CommandResult;

impl Client {
    /// Returns the ports that are listened on inside, and those that are exposed.
    pub(crate) async fn ports(&self, sandbox: &str) -> CommandResult<v1::PortList> {
        self.get(self.of(sandbox, &["ports"])).await
    }

    pub(crate) async fn expose_port(
        &self,
        sandbox: &str,
        request: &v1::ExposeRequest,
    ) -> CommandResult<v1::Endpoint> {
        self.post_json(self.of(sandbox, &["ports"]), request).await
    }

    pub(crate) async fn withdraw_port(&self, sandbox: &str, port: u16) -> CommandResult<()> {
        self.delete(self.of(sandbox, &["ports", &port.to_string()])).await
    }
}
