//! The rights of someone in the dashboard, so that the page offers nothing else.

use jiff::Timestamp;
use sandbox::{KeyId, SandboxId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Access, Engine, Principal, Scope};

/// The way the caller was authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    /// Runs the daemon.
    Owner,
    Key,
    /// The daemon asks nobody for a key (`--dev`).
    Dev,
    /// Watches along by a shared address.
    Share,
}

/// The caller and its rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Session)]
pub struct SessionView {
    pub who: SessionKind,
    /// A name for people, such as `key ana`.
    pub label: String,
    #[schema(required = true)]
    pub key_id: Option<KeyId>,
    /// The caller's namespace; `*` for all.
    pub namespace: String,
    pub read_only: bool,
    pub is_owner: bool,
    /// Absent where nothing ends by itself.
    #[schema(required = true)]
    pub expires_at: Option<Timestamp>,
    pub may: SessionRights,
    /// The one thing that a shared address shows.
    #[schema(required = true)]
    pub watch: Option<Watched>,
}

/// The actions to offer. The engine refuses all others, whatever a page offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionRights {
    /// Make sandboxes.
    pub create: bool,
    /// Changes: run, write, stop, remove.
    pub change: bool,
    /// Make and revoke keys.
    pub keys: bool,
    /// See images.
    pub images: bool,
    /// Name and remove images.
    pub manage_images: bool,
    pub volumes: bool,
    pub snapshots: bool,
    /// See the names of secrets.
    pub secrets: bool,
    /// Set and remove secrets.
    pub manage_secrets: bool,
    pub audit: bool,
    pub fleet: bool,
    pub doctor: bool,
    /// Share what they see.
    pub share: bool,
}

/// The target of a shared address: one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Watch)]
pub struct Watched {
    #[schema(required = true)]
    pub sandbox: Option<SandboxId>,
    #[schema(required = true)]
    pub key: Option<KeyId>,
}

impl Engine {
    /// The caller as the dashboard shows it.
    pub fn session_view(&self, who: &Principal) -> SessionView {
        let keys = &self.core().keys;
        let watch = watched(who);
        let kind = match (&watch, who.is_owner, &who.key) {
            (Some(_), ..) => SessionKind::Share,
            (None, true, _) => SessionKind::Owner,
            (None, false, Some(_)) => SessionKind::Key,
            (None, false, None) => SessionKind::Dev,
        };
        let expires_at = match (who.session, &who.key) {
            (Some(session), _) => keys.sessions.expires_at(session),
            (None, Some(key)) => keys.expires_at(key),
            (None, None) => None,
        };
        SessionView {
            who: kind,
            label: who.name.clone(),
            key_id: who.key.clone(),
            namespace: match &who.scope {
                Scope::All | Scope::Maker { namespace: None, .. } => "*".to_owned(),
                _ => who.home_namespace().to_string(),
            },
            read_only: who.access == Access::ReadOnly,
            is_owner: who.is_owner,
            expires_at,
            may: rights(who),
            watch,
        }
    }
}

fn watched(who: &Principal) -> Option<Watched> {
    match &who.scope {
        Scope::Sandbox { id, .. } => Some(Watched { sandbox: Some(id.clone()), key: None }),
        Scope::Maker { key, .. } => Some(Watched { sandbox: None, key: Some(key.clone()) }),
        Scope::All | Scope::One(_) => None,
    }
}

fn rights(who: &Principal) -> SessionRights {
    let (sees_namespace, is_everywhere) = (who.has_namespace(), who.scope == Scope::All);
    let change = who.may_change().is_ok();
    SessionRights {
        create: change && sees_namespace,
        change,
        keys: who.may_manage_keys().is_ok(),
        images: sees_namespace,
        manage_images: change && is_everywhere,
        volumes: sees_namespace,
        snapshots: sees_namespace,
        secrets: sees_namespace,
        manage_secrets: who.may_manage_secrets().is_ok(),
        audit: !matches!(who.scope, Scope::Sandbox { .. }),
        fleet: is_everywhere,
        doctor: who.is_owner,
        share: who.may_pass_on().is_ok() && sees_namespace,
    }
}
