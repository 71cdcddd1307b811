//! Keys on the wire.

use std::fmt;

use sandbox::{ByteSize, KeyFormat, Namespace, Policy};
pub use sandbox::{KeyView as Key, SshKeyView as SshKey};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request for a new key. Every field is optional.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyRequest {
    /// A label for people. Unique among keys that were not revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The one namespace that it sees; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// It sees every namespace.
    #[serde(default)]
    pub all_namespaces: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Sandboxes that it may have at the same time, stopped ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sandboxes: Option<u32>,
    /// Bytes: memory limits of all its sandboxes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<ByteSize>,
    /// It may look and change nothing.
    #[serde(default)]
    pub read_only: bool,
    /// The most that sandboxes of its callers may reach, beside the operator's own ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Policy>,
    /// The form of its secret.
    #[serde(default)]
    pub format: KeyFormat,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    pub keys: Vec<Key>,
}

/// A public key of SSH to bind to a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SshKeyRequest {
    /// Id or label of the key.
    pub key: String,
    /// The line of a file such as `id_ed25519.pub`.
    pub public_key: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SshKeyList {
    pub ssh_keys: Vec<SshKey>,
}

/// A new key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewKey {
    pub key: Key,
    /// Sent as `Authorization: Bearer …`. Returned only once.
    pub secret: String,
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("key", &self.key).finish_non_exhaustive()
    }
}
