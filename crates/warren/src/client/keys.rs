//! Calls about keys and the audit.

use frontends::rest::v1;

use super::{Client, Target};
use crate::error::CommandResult;

impl Client {
    pub(crate) async fn create_key(&self, request: &v1::KeyRequest) -> CommandResult<v1::NewKey> {
        self.post_json(Target::new(&["keys"]), request).await
    }

    pub(crate) async fn keys(&self) -> CommandResult<Vec<v1::Key>> {
        Ok(self.get::<v1::KeyList>(Target::new(&["keys"])).await?.keys)
    }

    /// By id or label.
    pub(crate) async fn revoke_key(&self, key: &str) -> CommandResult<v1::Key> {
        self.delete_for(Target::new(&["keys", key])).await
    }

    pub(crate) async fn add_ssh_key(&self, request: &v1::SshKeyRequest) -> CommandResult<v1::SshKey> {
        self.post_json(Target::new(&["ssh-keys"]), request).await
    }

    pub(crate) async fn ssh_keys(&self) -> CommandResult<Vec<v1::SshKey>> {
        Ok(self.get::<v1::SshKeyList>(Target::new(&["ssh-keys"])).await?.ssh_keys)
    }

    pub(crate) async fn remove_ssh_key(&self, key: &str) -> CommandResult<()> {
        self.delete(Target::new(&["ssh-keys", key])).await
    }

    pub(crate) async fn calls(
        &self,
        from: Option<u64>,
        limit: Option<u32>,
        who: Option<&str>,
    ) -> CommandResult<v1::CallList> {
        let target = Target::new(&["calls"]).maybe("from", from).maybe("limit", limit);
        self.get(target.maybe("who", who)).await
    }
}
