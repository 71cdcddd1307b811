//! Public keys of SSH, each bound to a key of the daemon.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{KeyId, SshKeyId};

/// A public key that may log in over SSH, with the rights of the key that it is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SshKey)]
pub struct SshKeyView {
    pub id: SshKeyId,
    /// The key whose rights a login with it has.
    pub key: KeyId,
    /// As `ssh-keygen -l` shows it.
    #[schema(example = "SHA256:uNiVztksCsDhcc0u9e8BrQh6bc0c4hBLnGcYNNbJNUI")]
    pub fingerprint: String,
    #[schema(example = "ssh-ed25519")]
    pub algorithm: String,
    pub comment: String,
    pub created_at: Timestamp,
}
