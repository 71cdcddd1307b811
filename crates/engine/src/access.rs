//! Access rules. Front ends authenticate; only this file refuses.

use std::sync::Arc;

use images::Reach;
use sandbox::{
    ByteSize, Error, ErrorKind, KeyId, KeyView, Namespace, NetworkRequest, Policy, Result, SandboxId, ShareId,
};

use crate::{events::Subject, sessions::SessionId};

/// The caller, as authenticated by a front end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// For the log, the events and the audit.
    pub name: String,
    pub scope: Scope,
    /// The key it used, if any.
    pub key: Option<KeyId>,
    pub access: Access,
    pub quota: Quota,
    /// A ceiling on what its sandboxes reach, in addition to the operator's own.
    pub network: Option<Arc<Policy>>,
    /// Runs the daemon, and is the only one to manage its keys.
    pub is_owner: bool,
    /// The session of the dashboard that it came by, if any: it ends with that.
    pub session: Option<SessionId>,
    /// The share that it watches by, if any.
    pub share: Option<ShareId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every namespace.
    All,
    /// One namespace, as if there were no other.
    One(Namespace),
    /// One sandbox, and nothing else of its namespace: no volumes, no snapshots, nothing new.
    Sandbox { namespace: Namespace, id: SandboxId },
    /// The sandboxes that one key made, and that key's calls. `namespace` is the key's; absent for every namespace.
    Maker { namespace: Option<Namespace>, key: KeyId },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Access {
    #[default]
    ReadWrite,
    /// May read everything in its scope and change nothing.
    ReadOnly,
}

/// The most that a key may have at the same time. Only existing sandboxes that the key itself made count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    pub sandboxes: Option<u32>,
    /// Memory and swap of all its sandboxes together.
    pub memory: Option<ByteSize>,
}

impl Principal {
    /// The user who runs the daemon: may do everything.
    pub fn operator(name: impl Into<String>) -> Self {
        Self { is_owner: true, ..Self::without_key(name.into(), Scope::All) }
    }

    /// A caller admitted without a key, while the operator tries things out: may do everything with sandboxes, but
    /// cannot create lasting access.
    pub fn developer(name: impl Into<String>) -> Self {
        Self::without_key(name.into(), Scope::All)
    }

    pub fn of_namespace(name: impl Into<String>, namespace: Namespace) -> Self {
        Self::without_key(name.into(), Scope::One(namespace))
    }

    fn without_key(name: String, scope: Scope) -> Self {
        let (access, quota) = (Access::ReadWrite, Quota::default());
        Self {
            name,
            scope,
            key: None,
            access,
            quota,
            network: None,
            is_owner: false,
            session: None,
            share: None,
        }
    }

    pub(crate) fn of_key(key: &KeyView) -> Self {
        Self {
            name: format!("key {}", key.name()),
            scope: key.namespace.clone().map_or(Scope::All, Scope::One),
            key: Some(key.id.clone()),
            access: if key.read_only { Access::ReadOnly } else { Access::ReadWrite },
            quota: Quota { sandboxes: key.max_sandboxes, memory: key.max_memory },
            network: key.network.clone().map(Arc::new),
            is_owner: false,
            session: None,
            share: None,
        }
    }

    /// Whether things of `namespace` exist for this principal at all. For sandboxes see [`Self::sees_sandbox`].
    pub fn sees(&self, namespace: &Namespace) -> bool {
        match &self.scope {
            Scope::All => true,
            Scope::One(own) => own == namespace,
            Scope::Sandbox { .. } | Scope::Maker { .. } => false,
        }
    }

    /// Whether this sandbox exists for this principal. `owner`: the key that made it.
    pub(crate) fn sees_sandbox(&self, sandbox: &Subject, owner: Option<&KeyId>) -> bool {
        match &self.scope {
            Scope::Sandbox { id, .. } => *id == sandbox.id,
            Scope::Maker { key, .. } => owner == Some(key),
            Scope::All | Scope::One(_) => self.sees(&sandbox.namespace),
        }
    }

    /// Whether this caller was shown something by another, and may not pass it on: what it signed would have the
    /// rights of whoever shared, and outlive the share.
    pub fn is_watcher(&self) -> bool {
        self.share.is_some()
    }

    /// Refuses callers who only watch along.
    pub(crate) fn may_pass_on(&self) -> Result<()> {
        if !self.is_watcher() {
            return Ok(());
        }
        let message = format!("{} may watch, and not pass anything on", self.name);
        Err(Error::new(ErrorKind::Denied, message).with_hint("Ask whoever shared this with you."))
    }

    /// Whether this caller has a whole namespace or more, and not just one thing that it was given.
    pub(crate) fn has_namespace(&self) -> bool {
        matches!(self.scope, Scope::All | Scope::One(_))
    }

    /// Images belong to no namespace: everyone sees them, except those who were given a single thing.
    pub(crate) fn may_see_images(&self) -> Result<()> {
        if self.has_namespace() {
            return Ok(());
        }
        let message = format!("{} may not see images", self.name);
        Err(Error::new(ErrorKind::Denied, message).with_hint("Ask whoever gave you this access."))
    }

    /// The namespace for names without one.
    pub fn home_namespace(&self) -> Namespace {
        match &self.scope {
            Scope::All => Namespace::default(),
            Scope::Maker { namespace, .. } => namespace.clone().unwrap_or_default(),
            Scope::One(own) | Scope::Sandbox { namespace: own, .. } => own.clone(),
        }
    }

    /// Where pulls for this principal may connect: only the user who runs the daemon reaches its own network.
    pub(crate) fn reach(&self) -> Reach {
        if self.is_owner { Reach::Everywhere } else { Reach::Public }
    }

    pub(crate) fn may_create_in(&self, namespace: &Namespace) -> Result<()> {
        self.may_change()?;
        if self.sees(namespace) {
            return Ok(());
        }
        let own = self.home_namespace();
        let message = format!("{} may not create anything in namespace {namespace}", self.name);
        Err(Error::new(ErrorKind::Denied, message).with_hint(format!("Use the namespace {own}.")))
    }

    /// Refuses read-only callers. For changes made by a front end itself; the engine checks its own.
    pub fn may_change(&self) -> Result<()> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => {
                let message = format!("{} is read-only", self.name);
                Err(Error::new(ErrorKind::Denied, message).with_hint("Use a key with write access."))
            }
        }
    }

    /// Only the daemon's owner sets and removes secrets: whoever names a value's hosts can have it sent to themselves.
    pub(crate) fn may_manage_secrets(&self) -> Result<()> {
        self.may_change()?;
        if self.is_owner {
            return Ok(());
        }
        let message = format!("{} may not manage secrets", self.name);
        Err(Error::new(ErrorKind::Denied, message)
            .with_hint("Secrets are managed on the daemon's machine, by the user who runs the daemon."))
    }

    /// Only the daemon's owner is shown what is wrong with its machine.
    pub fn may_diagnose(&self) -> Result<()> {
        if self.is_owner {
            return Ok(());
        }
        let message = format!("{} may not see the state of the daemon's machine", self.name);
        Err(Error::new(ErrorKind::Denied, message).with_hint("Look there, as the user who runs the daemon."))
    }

    /// The daemon's owner grants every request for more network. Others grant requests that are not their own, within
    /// their own ceilings: an agent that asks must not be able to answer itself.
    pub(crate) fn may_grant(&self, request: &NetworkRequest) -> Result<()> {
        self.may_change()?;
        let is_of_one_sandbox = matches!(self.scope, Scope::Sandbox { .. });
        if self.is_owner || !is_of_one_sandbox && self.key != request.key {
            return Ok(());
        }
        let what = if is_of_one_sandbox { "requests" } else { "its own request" };
        let message = format!("{} may not grant {what} for more network", self.name);
        Err(Error::new(ErrorKind::Denied, message)
            .with_hint("Wait for the user who runs the daemon, or for the holder of another key."))
    }

    /// Whether this caller made the request. Callers without a key are told apart by their names.
    pub(crate) fn has_asked(&self, request: &NetworkRequest) -> bool {
        self.key == request.key && (self.key.is_some() || self.name == request.asked_by)
    }

    /// Only the daemon's owner binds public keys of SSH. They are not secret: whoever binds another person's decides
    /// where that person's logins lead.
    pub(crate) fn may_bind_ssh_keys(&self) -> Result<()> {
        self.may_change()?;
        if self.is_owner {
            return Ok(());
        }
        let message = format!("{} may not add SSH keys", self.name);
        Err(Error::new(ErrorKind::Denied, message).with_hint(
            "Ask the user who runs the daemon for it, or log in with the key itself as the password.",
        ))
    }

    /// Only the daemon's owner makes and revokes keys, never a key: a leaked one must not be able to make itself a
    /// successor.
    pub(crate) fn may_manage_keys(&self) -> Result<()> {
        self.may_change()?;
        if self.is_owner {
            return Ok(());
        }
        let message = format!("{} may not manage keys", self.name);
        Err(Error::new(ErrorKind::Denied, message)
            .with_hint("Keys are managed on the daemon's machine, by the user who runs the daemon."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_sees_its_own_namespace_and_no_other() {
        let (red, blue): (Namespace, Namespace) = ("red".parse().unwrap(), "blue".parse().unwrap());
        let ana = Principal::of_namespace("ana", red.clone());
        assert!(ana.sees(&red) && !ana.sees(&blue));
        assert_eq!(ana.may_create_in(&blue).unwrap_err().kind(), ErrorKind::Denied);
        assert!(Principal::operator("root").may_create_in(&blue).is_ok());
    }

    #[test]
    fn only_whoever_runs_the_daemon_manages_keys_and_secrets() {
        let operator = Principal::operator("root");
        assert!(operator.may_manage_keys().is_ok());
        let key = Some(KeyId::from_random([1; 8]));
        let with_key = Principal { key, is_owner: false, ..operator.clone() };
        let reader = Principal { access: Access::ReadOnly, ..operator };
        let namespaced = Principal::of_namespace("ana", Namespace::default());
        for who in [with_key, reader, namespaced, Principal::developer("dev")] {
            assert_eq!(who.may_manage_keys().unwrap_err().kind(), ErrorKind::Denied, "{who:?}");
            assert_eq!(who.may_manage_secrets().unwrap_err().kind(), ErrorKind::Denied, "{who:?}");
            assert_eq!(who.may_bind_ssh_keys().unwrap_err().kind(), ErrorKind::Denied, "{who:?}");
        }
    }
}
