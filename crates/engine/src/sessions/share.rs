//! Shares: a signed token that lets its holder watch one sandbox, or what one key does, and nothing else.
//!
//! A token names a record by its id. It is good as long as the record is there, and ends with its time, with what it
//! shows, and with the key of whoever shared.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use sandbox::{Error, ErrorKind, KeyId, Result, SandboxId, ShareId, Thing};
use serde::{Deserialize, Serialize};
use store::{ShareRecord, Store, StoreError};
use utoipa::ToSchema;

use crate::{
    Access, Engine, MAX_LINK_TTL, Principal, Quota, SandboxRef, Scope, clock::later, core::Core, error,
    keys::whole, names,
};

/// Prefix of the signed data: no link is a share.
const DOMAIN: &[u8] = b"warren share\0";
/// Shares of one key, and of those without a key together, that hold at the same time.
const MAX_SHARES_EACH: usize = 256;

/// The target of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShareTarget {
    Sandbox(SandboxRef),
    /// The activity of one key, given by its id or label.
    Key(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareSpec {
    pub target: ShareTarget,
    /// At most [`MAX_LINK_TTL`].
    pub ttl: Duration,
}

/// A new share. Its token exists nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedShare {
    pub id: ShareId,
    pub token: String,
    pub expires_at: Timestamp,
}

/// A share that holds: who made it, of what, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Share)]
pub struct ShareView {
    pub id: ShareId,
    /// The caller who made it, as named in the audit.
    pub made_by: String,
    /// The key of whoever made it, if one was used. The share ends with it.
    #[schema(required = true)]
    pub key: Option<KeyId>,
    /// A shared sandbox…
    #[schema(required = true)]
    pub sandbox: Option<SandboxId>,
    /// …or what this key does.
    #[schema(required = true)]
    pub shown_key: Option<KeyId>,
    /// The name of the sandbox, or the label of the key.
    pub name: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// All shares, by id. They are in memory, so that a request of a watcher reads no file.
#[derive(Debug)]
pub(crate) struct Shares(Mutex<BTreeMap<ShareId, ShareRecord>>);

impl Shares {
    pub(crate) async fn load(store: &Store) -> Result<Self, StoreError> {
        let records = store.shares().await?;
        Ok(Self(Mutex::new(records.into_iter().map(|record| (record.id.clone(), record)).collect())))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ShareId, ShareRecord>> {
        // Every change in there is one insert or remove; a panic elsewhere leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: &ShareId, now: Timestamp) -> Option<ShareRecord> {
        self.lock().get(id).filter(|record| now < record.expires_at).cloned()
    }

    fn all(&self) -> Vec<ShareRecord> {
        self.lock().values().cloned().collect()
    }

    /// Forgets those whose time is over.
    fn take_expired(&self, now: Timestamp) -> Vec<ShareId> {
        let mut shares = self.lock();
        let over: Vec<_> = shares
            .values()
            .filter(|record| record.expires_at <= now)
            .map(|record| record.id.clone())
            .collect();
        over.iter().for_each(|id| drop(shares.remove(id)));
        over
    }
}

impl Core {
    /// The share of a token, if it holds.
    pub(super) fn open_share(&self, token: &str) -> Result<ShareRecord> {
        let id = self.link_secret.open(DOMAIN, token);
        let id = id.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok());
        let share = id.and_then(|id| self.shares.get(&id, self.clock.now())).ok_or_else(no_such_share)?;
        match self.watcher(&share) {
            Some(_) => Ok(share),
            None => Err(no_such_share()),
        }
    }

    /// Whoever watches by a share: as long as it is not revoked, the sharer's key lasts, and there is something to see.
    pub(super) fn watcher(&self, share: &ShareRecord) -> Option<Principal> {
        let now = self.clock.now();
        self.shares.get(&share.id, now)?;
        let sharer = match &share.key {
            None => Principal::developer("the owner"),
            Some(key) => self.keys.principal(key, now)?,
        };
        let scope = match (&share.sandbox, &share.shown_key) {
            (Some(id), _) => {
                let found = self.find(&sharer, &SandboxRef::from(id)).ok()?;
                Scope::Sandbox { namespace: found.subject.namespace.clone(), id: id.clone() }
            }
            // Of a key that has ended there is still something to see.
            (None, Some(key)) => Scope::Maker { namespace: self.keys.namespace_of(key)?, key: key.clone() },
            (None, None) => return None,
        };
        Some(Principal {
            name: format!("a share of {}", sharer.name),
            scope,
            key: sharer.key,
            access: Access::ReadOnly,
            quota: Quota::default(),
            network: None,
            is_owner: false,
            session: None,
            share: Some(share.id.clone()),
        })
    }

    fn share_view(&self, share: ShareRecord) -> ShareView {
        let of_sandbox = share.sandbox.as_ref().and_then(|id| self.recorded(id));
        let name = match (of_sandbox, &share.shown_key) {
            (Some(shared), _) => shared.status.borrow().record.name.to_string(),
            (None, Some(key)) => self.keys.name_of(key).unwrap_or_else(|| key.to_string()),
            (None, None) => String::new(),
        };
        let ShareRecord { id, made_by, key, sandbox, shown_key, created_at, expires_at } = share;
        ShareView { id, made_by, key, sandbox, shown_key, name, created_at, expires_at }
    }
}

impl Principal {
    /// The daemon's owner has every share, others those that they made.
    fn has_share(&self, share: &ShareRecord) -> bool {
        match self.scope {
            // Whoever was shown one thing has no shares, whosever key that was.
            Scope::Sandbox { .. } | Scope::Maker { .. } => false,
            Scope::All | Scope::One(_) if self.is_owner => true,
            Scope::All => self.key == share.key,
            Scope::One(_) => self.key.is_some() && self.key == share.key,
        }
    }
}

impl Engine {
    /// Makes a share for a caller who may see what it shows.
    #[crate::boxed]
    pub async fn share(&self, who: &Principal, spec: &ShareSpec) -> Result<SignedShare> {
        who.may_pass_on()?;
        let (core, now) = (self.core(), self.core().clock.now());
        core.keys.admit(who, now)?;
        let (sandbox, shown_key) = match &spec.target {
            ShareTarget::Sandbox(which) => (Some(core.find(who, which)?.subject.id.clone()), None),
            ShareTarget::Key(which) => (None, Some(self.watchable_key(who, which)?)),
        };
        let over = core.shares.take_expired(now);
        let n_made = core.shares.lock().values().filter(|share| share.key == who.key).count();
        if n_made >= MAX_SHARES_EACH {
            let message = format!("the limit of {MAX_SHARES_EACH} shares is reached");
            return Err(Error::new(ErrorKind::LimitReached, message).with_hint("Revoke one of them."));
        }
        let id = ShareId::from_random(names::random_bytes()?);
        let token = core.link_secret.sign(DOMAIN, id.as_str().as_bytes())?;
        let expires_at = later(now, spec.ttl.clamp(Duration::from_secs(1), MAX_LINK_TTL));
        let (made_by, key) = (who.name.clone(), who.key.clone());
        let record =
            ShareRecord { id: id.clone(), made_by, key, sandbox, shown_key, created_at: now, expires_at };
        whole(core, |core| async move {
            core.store.remove_shares(over).await.map_err(error::from_store)?;
            core.store.insert_share(record.clone()).await.map_err(error::from_store)?;
            core.shares.lock().insert(record.id.clone(), record);
            Ok(())
        })
        .await?;
        Ok(SignedShare { id, token, expires_at })
    }

    /// Shares that hold, oldest first: all of them for the daemon's owner, their own for others.
    #[crate::boxed]
    pub async fn shares(&self, who: &Principal) -> Result<Vec<ShareView>> {
        let core = self.core();
        who.may_pass_on()?;
        core.keys.admit(who, core.clock.now())?;
        let mut shares = core.shares.all();
        shares.retain(|share| who.has_share(share) && core.watcher(share).is_some());
        shares.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(shares.into_iter().map(|share| core.share_view(share)).collect())
    }

    /// Ends a share, and what its watchers have open. Whoever may share may take it back, read-only callers too.
    #[crate::boxed]
    pub async fn revoke_share(&self, who: &Principal, id: &ShareId) -> Result<()> {
        let (core, now) = (self.core(), self.core().clock.now());
        who.may_pass_on()?;
        core.keys.admit(who, now)?;
        let found = core.shares.get(id, now).filter(|share| who.has_share(share));
        let share = found.ok_or_else(|| no_share_called(id))?.id;
        whole(core, |core| async move {
            core.store.remove_shares(vec![share.clone()]).await.map_err(error::from_store)?;
            core.shares.lock().remove(&share);
            core.keys.sessions.remove_of_share(&share);
            core.keys.note_ended_sessions();
            Ok(())
        })
        .await
    }

    /// A key shows itself; the daemon's owner, who manages keys, any.
    fn watchable_key(&self, who: &Principal, which: &str) -> Result<KeyId> {
        let found = self.core().keys.id_of(which);
        let is_own = found.is_some() && found == who.key;
        if !is_own && !who.is_owner {
            let message = format!("{} may share its own key only", who.name);
            return Err(Error::new(ErrorKind::Denied, message));
        }
        found.ok_or_else(|| {
            let shown: String = which.chars().take(64).collect();
            Error::no_such(Thing::Key, format!("{shown:?}"))
        })
    }
}

/// The same words for a share that was never made, was revoked, has expired, or whose sandbox or key is gone.
fn no_such_share() -> Error {
    Error::new(ErrorKind::Unauthenticated, "this shared address is invalid or has expired")
        .with_hint("Ask whoever shared it for a new one.")
}

fn no_share_called(id: &ShareId) -> Error {
    Error::not_found(format!("there is no share {id}")).with_hint("List the active shares.")
}
