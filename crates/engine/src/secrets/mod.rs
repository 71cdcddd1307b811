//! Secrets, for callers: set and removed by the daemon's owner, used by name. No view has a value.
//!
//! A sandbox has a placeholder in place of each. Its values are handed to the back end's network before its instance is
//! made or adopted, again whenever they change, and taken back when it stops (`hold.rs`).

mod hold;
mod resolve;
mod trust;

use std::sync::Arc;

use jiff::Timestamp;
use sandbox::{
    Error, ErrorKind, Namespace, Next, Result, SandboxName, SecretName, SecretRules, SecretValue, Thing,
};
use serde::{Deserialize, Serialize};
use store::SecretRecord;
use tokio::sync::oneshot;

pub use self::resolve::GivenSecrets;
pub(crate) use self::{
    hold::{hold_changed, prepare, release},
    resolve::{carried, resolve},
    trust::trust,
};
use crate::{Engine, Force, Principal, core::Core, driver::Command, error};

/// Most secrets of one namespace.
pub const MAX_SECRETS_EACH: usize = 256;
/// Most users that a message names.
const MAX_NAMED_USERS: usize = 8;

/// A caller's reference to a secret: a name in a namespace, by default the principal's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRef {
    pub namespace: Option<Namespace>,
    pub name: SecretName,
}

/// A secret to set: a new one, or another value for one that exists.
#[derive(Debug)]
pub struct SecretSpec {
    pub rules: SecretRules,
    pub value: SecretValue,
}

/// A secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Secret)]
pub struct SecretView {
    pub name: SecretName,
    pub namespace: Namespace,
    pub rules: SecretRules,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When a sandbox was last started with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// Sandboxes that have it, running or not.
    pub used_by: Vec<SandboxName>,
}

impl Engine {
    /// Sets a secret. Running sandboxes that use it have the new value when this returns.
    #[crate::boxed]
    pub async fn set_secret(
        &self,
        who: &Principal,
        which: &SecretRef,
        spec: SecretSpec,
    ) -> Result<SecretView> {
        who.may_manage_secrets()?;
        let core = self.core();
        let (namespace, now) = (core.namespace_of(who, which), core.clock.now());
        // A value that came over a wire may not have been checked there.
        let value = SecretValue::new(spec.value.expose().to_owned())?;
        let rules = spec.rules.checked()?;
        let others = core.secrets_in(&namespace).await?;
        let is_new = others.iter().all(|other| other.name != which.name);
        if is_new && others.len() >= MAX_SECRETS_EACH {
            let message = format!("namespace {namespace} has {MAX_SECRETS_EACH} secrets, which is the limit");
            return Err(Error::new(ErrorKind::LimitReached, message).with_next(Next::Remove(Thing::Secret)));
        }
        let record = SecretRecord {
            namespace: namespace.clone(),
            name: which.name.clone(),
            rules,
            value,
            created_at: now,
            updated_at: now,
            last_used_at: None,
        };
        core.store.set_secret(record).await.map_err(error::from_store)?;
        core.pass_on(&namespace, &which.name).await;
        self.secret(who, which).await
    }

    /// By name; those of one namespace, or of all that the caller sees.
    #[crate::boxed]
    pub async fn secrets(&self, who: &Principal, namespace: Option<&Namespace>) -> Result<Vec<SecretView>> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let mut records = core.store.secrets().await.map_err(error::from_store)?;
        records.retain(|record| {
            let own = &record.namespace;
            who.sees(own) && namespace.is_none_or(|asked| asked == own)
        });
        Ok(records.into_iter().map(|record| core.secret_view(record)).collect())
    }

    #[crate::boxed]
    pub async fn secret(&self, who: &Principal, which: &SecretRef) -> Result<SecretView> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let namespace = core.namespace_of(who, which);
        let records = if who.sees(&namespace) { core.secrets_in(&namespace).await? } else { Vec::new() };
        let found = records.into_iter().find(|record| record.name == which.name);
        found.map(|record| core.secret_view(record)).ok_or_else(|| no_such_secret(&which.name))
    }

    /// Removes a secret. While sandboxes have it, only by force: running ones lose it at once, and stopped ones do not
    /// start without it.
    #[crate::boxed]
    pub async fn remove_secret(&self, who: &Principal, which: &SecretRef, force: Force) -> Result<()> {
        who.may_manage_secrets()?;
        let core = self.core();
        let namespace = core.namespace_of(who, which);
        let users = core.secret_users(&namespace, &which.name);
        self.secret(who, which).await?;
        if force == Force::No && !users.is_empty() {
            return Err(in_use(&which.name, &users));
        }
        let removed = core.store.remove_secret(namespace.clone(), which.name.clone()).await;
        if !removed.map_err(error::from_store)? {
            return Err(no_such_secret(&which.name));
        }
        core.pass_on(&namespace, &which.name).await;
        Ok(())
    }
}

impl Core {
    fn namespace_of(&self, who: &Principal, which: &SecretRef) -> Namespace {
        which.namespace.clone().unwrap_or_else(|| who.home_namespace())
    }

    async fn secrets_in(&self, namespace: &Namespace) -> Result<Vec<SecretRecord>> {
        let mut records = self.store.secrets().await.map_err(error::from_store)?;
        records.retain(|record| record.namespace == *namespace);
        Ok(records)
    }

    fn secret_view(&self, record: SecretRecord) -> SecretView {
        let used_by = self.secret_users(&record.namespace, &record.name);
        let SecretRecord { namespace, name, rules, created_at, updated_at, last_used_at, .. } = record;
        SecretView { name, namespace, rules, created_at, updated_at, last_used_at, used_by }
    }

    /// The sandboxes that have a secret, running or not, and those that are about to.
    fn secret_users(&self, namespace: &Namespace, name: &SecretName) -> Vec<SandboxName> {
        let mut users = Vec::new();
        self.each(|shared| {
            let record = &shared.status.borrow().record;
            if uses(record, namespace, name) {
                users.push(record.name.clone());
            }
        });
        users.sort();
        users
    }

    /// Has every sandbox with the secret hold it as it is now. Those whose back end is still being asked for them do so
    /// when it answers.
    async fn pass_on(self: &Arc<Self>, namespace: &Namespace, name: &SecretName) {
        let mut users = Vec::new();
        self.each(|shared| {
            let status = shared.status.borrow();
            if uses(&status.record, namespace, name) {
                users.push((shared.inbox.clone(), status.adopting));
            }
        });
        let passed = users.into_iter().map(|(inbox, is_adopting)| async move {
            let (reply, held) = oneshot::channel();
            // One that is gone by now needs nothing.
            if inbox.send(Command::HoldSecrets { reply }).await.is_ok() && !is_adopting {
                drop(held.await);
            }
        });
        futures_util::future::join_all(passed).await;
    }
}

fn uses(record: &store::SandboxRecord, namespace: &Namespace, name: &SecretName) -> bool {
    let is_it = |secret: &sandbox::SecretPlan| !secret.is_own && secret.name == *name;
    record.namespace == *namespace && record.plan.secrets.iter().any(is_it)
}

fn no_such_secret(name: &SecretName) -> Error {
    Error::no_such(Thing::Secret, name.as_str())
}

fn in_use(name: &SecretName, users: &[SandboxName]) -> Error {
    let mut named: Vec<_> = users.iter().take(MAX_NAMED_USERS).map(ToString::to_string).collect();
    if users.len() > MAX_NAMED_USERS {
        named.push(format!("{} more", users.len() - MAX_NAMED_USERS));
    }
    let message = format!("secret {name} is used by {}", named.join(", "));
    Error::new(ErrorKind::WrongState, message).with_next(Next::RemoveUsers(Thing::Secret))
}
