//! Sessions of the dashboard.

use engine::{SessionView, ShareView};
use jiff::Timestamp;
use sandbox::{Namespace, ShareId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub type Session = SessionView;

/// The credentials: exactly one of the three.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignInRequest {
    /// The secret of a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The token of an address that `warren dashboard` printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
    /// The token of a shared address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
}

impl std::fmt::Debug for SignInRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignInRequest")
    }
}

/// A session that has just begun.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewSession {
    #[serde(flatten)]
    pub session: SessionView,
    /// The half of the session that the page keeps, and sends with every request as the header `x-warren-dashboard`.
    pub proof: String,
}

impl std::fmt::Debug for NewSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewSession").field("session", &self.session).finish_non_exhaustive()
    }
}

/// An address of the dashboard that carries a right, after its `#`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PageAddress {
    pub address: String,
    pub expires_at: Timestamp,
}

/// A share that has just been made. Its address is in no other answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewShare {
    pub id: ShareId,
    pub address: String,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareList {
    pub shares: Vec<ShareView>,
}

/// The sandbox or key to share.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShareRequest {
    /// Id or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The namespace in which the name is looked up; the caller's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Id or label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its lifetime in seconds: at most a week; an hour when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}
