//! Calls about secrets.

use frontends::rest::v1;

use super::{Client, Target};
use crate::error::CommandResult;

impl Client {
    /// The path of one secret, in the namespace that the command was given.
    fn of_secret(&self, secret: &str) -> Target {
        Target::new(&["secrets", secret]).maybe("namespace", self.namespace())
    }

    pub(crate) async fn set_secret(
        &self,
        secret: &str,
        body: &v1::SecretRequest,
    ) -> CommandResult<v1::Secret> {
        self.put_json(self.of_secret(secret), body).await
    }

    pub(crate) async fn secrets(&self) -> CommandResult<v1::SecretList> {
        self.get(Target::new(&["secrets"]).maybe("namespace", self.namespace())).await
    }

    pub(crate) async fn secret(&self, secret: &str) -> CommandResult<v1::Secret> {
        self.get(self.of_secret(secret)).await
    }

    pub(crate) async fn remove_secret(&self, secret: &str, force: bool) -> CommandResult<()> {
        self.delete(self.of_secret(secret).with("force", force)).await
    }
}
