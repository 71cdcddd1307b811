//! Keys: made, listed and revoked by the daemon's owner; recognised for everyone else. All of them are in memory, so
//! that authentication reads no file.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use sandbox::{Error, ErrorKind, KeyId, KeyLabel, KeySpec, KeyView, Limit, Namespace, Next, Result, Thing};
use store::{KeyRecord, Store, StoreError};
use tokio::sync::watch;

use crate::{
    Engine, Principal,
    clock::later,
    core::Core,
    error, names,
    secret::{self, Hash},
    sessions::{Sessions, signed_out},
};

/// Most valid keys.
const MAX_KEYS: usize = 10_000;
/// Revoked and expired keys that are remembered, so that lists and refusals can explain them.
const MAX_ENDED_KEYS: usize = 1000;
/// Precision of the time of the last use.
const LAST_USED_EVERY: Duration = Duration::from_secs(60);

/// A new key: its secret exists nowhere else and is not shown again.
#[derive(Clone, PartialEq, Eq)]
pub struct NewKey {
    pub key: KeyView,
    pub secret: String,
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("key", &self.key).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct Keys {
    by_id: Mutex<HashMap<KeyId, KeyRecord>>,
    /// Sessions of the dashboard, most of which stem from keys.
    pub(crate) sessions: Sessions,
    /// Counts revocations, ends of sessions and unbound SSH keys; waiters for the end of a key or a session sleep on
    /// it.
    revocations: watch::Sender<u64>,
}

impl Keys {
    pub(crate) async fn load(store: &Store) -> Result<Self, StoreError> {
        let records = store.keys().await?;
        let by_id = records.into_iter().map(|record| (record.key.id.clone(), record)).collect();
        Ok(Self {
            by_id: Mutex::new(by_id),
            sessions: Sessions::default(),
            revocations: watch::Sender::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyId, KeyRecord>> {
        // Every change in there is one insert, remove or assignment; a panic elsewhere leaves it consistent.
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a caller whose key or session has ended meanwhile: a front end may hold a principal for hours.
    pub(crate) fn admit(&self, who: &Principal, now: Timestamp) -> Result<()> {
        if who.session.is_some_and(|session| self.sessions.expires_at(session).is_none_or(|end| end <= now)) {
            return Err(signed_out());
        }
        let Some(id) = &who.key else { return Ok(()) };
        match self.lock().get(id) {
            Some(record) => refuse_ended(&record.key, now),
            None => Err(unknown_key()),
        }
    }

    /// The principal of the key with this id; none if the key has ended.
    pub(crate) fn principal(&self, id: &KeyId, now: Timestamp) -> Option<Principal> {
        let keys = self.lock();
        let key = &keys.get(id)?.key;
        key.ended_at(now).is_none().then(|| Principal::of_key(key))
    }

    /// The principal whose quota counts what a key made, whether the key has ended or not.
    pub(crate) fn quota_holder(&self, id: &KeyId) -> Option<Principal> {
        self.lock().get(id).map(|record| Principal::of_key(&record.key))
    }

    /// When a key ends by itself.
    pub(crate) fn expires_at(&self, id: &KeyId) -> Option<Timestamp> {
        self.lock().get(id)?.key.expires_at
    }

    /// The namespace of a key, whether it has ended or not; the inner none means all.
    pub(crate) fn namespace_of(&self, id: &KeyId) -> Option<Option<Namespace>> {
        self.lock().get(id).map(|record| record.key.namespace.clone())
    }

    /// Returns the name of a key, whether it has ended or not.
    pub(crate) fn name_of(&self, id: &KeyId) -> Option<String> {
        self.lock().get(id).map(|record| record.key.name().to_owned())
    }

    /// The key with this id or label.
    pub(crate) fn id_of(&self, which: &str) -> Option<KeyId> {
        self.named(which).map(|key| key.id)
    }

    /// Wakes whoever waits for the end of a session.
    pub(crate) fn note_ended_sessions(&self) {
        self.revocations.send_modify(|count| *count += 1);
    }

    /// The key with this secret, whether it has ended or not.
    fn find(&self, secret: &str) -> Option<KeyView> {
        let id = secret::id_of(secret);
        // Only the hash is fetched before the comparison: the time taken must not reveal whether the id exists either.
        let expected: Option<Hash> = id.as_ref().and_then(|id| self.lock().get(id).map(|record| record.hash));
        if !secret::matches(secret, expected.as_ref()) {
            return None;
        }
        self.lock().get(&id?).map(|record| record.key.clone())
    }

    /// Records that a key is in use. Returns whether that is worth storing.
    pub(crate) fn touch(&self, id: &KeyId, now: Timestamp) -> bool {
        let mut keys = self.lock();
        let Some(KeyRecord { key, .. }) = keys.get_mut(id) else { return false };
        let is_known = key.last_used_at.is_some_and(|last| now < later(last, LAST_USED_EVERY));
        if !is_known {
            key.last_used_at = Some(now);
        }
        !is_known
    }

    /// By id or label. If several keys have one label, all but one are revoked; that one is meant.
    pub(crate) fn named(&self, which: &str) -> Option<KeyView> {
        let keys = self.lock();
        let mut found: Vec<_> = keys
            .values()
            .map(|record| &record.key)
            .filter(|key| key.id.as_str() == which || key.name() == which)
            .collect();
        found.sort_by_key(|key| (key.revoked_at.is_some(), std::cmp::Reverse(key.created_at)));
        found.first().map(|key| (*key).clone())
    }

    /// The expired key that still has this label and was not revoked.
    fn expired_holder(&self, label: &KeyLabel, now: Timestamp) -> Option<KeyId> {
        let keys = self.lock();
        let mut all = keys.values().map(|record| &record.key);
        let holder = all.find(|key| key.label.as_ref() == Some(label) && key.revoked_at.is_none())?;
        holder.ended_at(now).map(|_| holder.id.clone())
    }

    fn count_living(&self, now: Timestamp) -> usize {
        self.lock().values().filter(|record| record.key.ended_at(now).is_none()).count()
    }

    fn note_revocation(&self, id: &KeyId, now: Timestamp) {
        if let Some(record) = self.lock().get_mut(id) {
            record.key.revoked_at = Some(now);
        }
        self.note_change();
    }

    /// Wakes whoever waits for the end of a key.
    pub(crate) fn note_change(&self) {
        self.revocations.send_modify(|count| *count += 1);
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.revocations.subscribe()
    }

    /// Removes and returns the ended keys beyond those that are remembered.
    fn take_forgotten(&self, now: Timestamp) -> Vec<KeyId> {
        let mut keys = self.lock();
        let mut ended: Vec<_> = keys
            .values()
            .filter_map(|record| record.key.ended_at(now).map(|at| (at, record.key.id.clone())))
            .collect();
        ended.sort();
        ended.truncate(ended.len().saturating_sub(MAX_ENDED_KEYS));
        let gone: Vec<_> = ended.into_iter().map(|(_, id)| id).collect();
        gone.iter().for_each(|id| drop(keys.remove(id)));
        gone
    }
}

impl Core {
    async fn revoke(&self, id: KeyId, now: Timestamp) -> Result<()> {
        self.store.revoke_key(id.clone(), now).await.map_err(error::from_store)?;
        self.keys.note_revocation(&id, now);
        Ok(())
    }

    /// The principal of a key that the caller proved to hold, unless the key has ended. Notes the use.
    pub(crate) fn admit_key(&self, key: &KeyView) -> Result<Principal> {
        let now = self.clock.now();
        refuse_ended(key, now)?;
        if self.keys.touch(&key.id, now) {
            self.audit.note_use(key.id.clone(), now);
        }
        Ok(Principal::of_key(key))
    }
}

impl Engine {
    /// Makes a key. Its secret is only in the answer.
    #[crate::boxed]
    pub async fn create_key(&self, who: &Principal, spec: KeySpec) -> Result<NewKey> {
        who.may_manage_keys()?;
        let core = self.core();
        let label = spec.check()?;
        let now = core.clock.now();
        if core.keys.count_living(now) >= MAX_KEYS {
            let message = format!("the limit of {MAX_KEYS} keys is reached");
            return Err(Error::over_limit(Limit::Keys, MAX_KEYS as u64, MAX_KEYS as u64 + 1, message)
                .with_next(Next::Remove(Thing::Key)));
        }
        let key = KeyView {
            id: KeyId::from_random(names::random_bytes()?),
            label,
            namespace: spec.namespace,
            created_at: now,
            expires_at: spec.expires_in.map(|span| later(now, span)),
            revoked_at: None,
            last_used_at: None,
            max_sandboxes: spec.max_sandboxes,
            max_memory: spec.max_memory,
            read_only: spec.read_only,
            network: spec.network,
        };
        let secret = secret::make(&key, spec.format)?;
        let record = KeyRecord { key: key.clone(), hash: secret::hash(&secret) };
        whole(core, |core| async move {
            // An expired key no longer needs its label.
            if let Some(label) = &record.key.label
                && let Some(id) = core.keys.expired_holder(label, now)
            {
                core.revoke(id, now).await?;
            }
            core.store.insert_key(record.clone()).await.map_err(error::from_store)?;
            core.keys.lock().insert(record.key.id.clone(), record);
            let forgotten = core.keys.take_forgotten(now);
            core.ssh_keys.forget(&forgotten);
            if !forgotten.is_empty()
                && let Err(error) = core.store.remove_keys(forgotten).await
            {
                tracing::warn!(%error, "records of keys that ended long ago stay");
            }
            Ok(())
        })
        .await?;
        Ok(NewKey { key, secret })
    }

    /// Oldest first, including revoked ones.
    #[crate::boxed]
    pub async fn keys(&self, who: &Principal) -> Result<Vec<KeyView>> {
        who.may_manage_keys()?;
        let mut all: Vec<_> = self.core().keys.lock().values().map(|record| record.key.clone()).collect();
        all.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(all)
    }

    /// Ends a key, named by its id or its label, at once and for good. Revoking it twice is fine.
    #[crate::boxed]
    pub async fn revoke_key(&self, who: &Principal, which: &str) -> Result<KeyView> {
        who.may_manage_keys()?;
        let core = self.core();
        let mut key = core.keys.named(which).ok_or_else(|| no_such_key(which))?;
        if key.revoked_at.is_some() {
            return Ok(key);
        }
        let now = core.clock.now();
        key.revoked_at = Some(now);
        let id = key.id.clone();
        whole(core, |core| async move { core.revoke(id, now).await }).await?;
        Ok(key)
    }

    /// The principal with this secret. Only a caller who proved to hold a key is told what is wrong with it.
    #[crate::boxed]
    pub async fn authenticate_key(&self, secret: &str) -> Result<Principal> {
        let key = self.core().keys.find(secret).ok_or_else(unknown_key)?;
        self.core().admit_key(&key)
    }

    /// Returns when the principal's key was revoked or has expired, or its session has ended; never for one without
    /// either.
    #[crate::boxed]
    pub async fn principal_ended(&self, who: &Principal) {
        if who.key.is_none() && who.session.is_none() {
            return std::future::pending().await;
        }
        let core = self.core();
        let mut revocations = core.keys.revocations.subscribe();
        loop {
            if core.keys.admit(who, core.clock.now()).is_err() {
                return;
            }
            let of_key = who.key.as_ref().and_then(|id| core.keys.expires_at(id));
            let of_session = who.session.and_then(|id| core.keys.sessions.expires_at(id));
            let expired = async {
                match [of_key, of_session].into_iter().flatten().min() {
                    Some(at) => core.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = expired => {}
                // `core` holds the sender, so it cannot be gone.
                _ = revocations.changed() => {}
            }
        }
    }
}

/// Completes the work even if the caller goes away in the middle: store and memory must agree.
pub(crate) async fn whole<F>(core: &Arc<Core>, work: impl FnOnce(Arc<Core>) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let task = core.drivers.spawn(work(Arc::clone(core)));
    task.await
        .map_err(|error| Error::new(ErrorKind::Internal, "could not change a record").with_source(error))?
}

pub(crate) fn refuse_ended(key: &KeyView, now: Timestamp) -> Result<()> {
    if key.ended_at(now).is_none() {
        return Ok(());
    }
    let how = if key.revoked_at.is_some() { "was revoked" } else { "has expired" };
    Err(Error::new(ErrorKind::Unauthenticated, format!("the key {} {how}", key.name()))
        .with_next(Next::MakeKey))
}

/// The same words whatever is wrong: an unknown key, a wrong secret, text that is not a key.
pub(crate) fn unknown_key() -> Error {
    Error::new(ErrorKind::Unauthenticated, "unknown key").with_next(Next::MakeKey)
}

pub(crate) fn no_such_key(which: &str) -> Error {
    let shown: String = which.chars().take(64).collect();
    Error::no_such(Thing::Key, format!("{shown:?}"))
}
