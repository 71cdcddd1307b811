//! All sessions and one-time tokens, by the hashes of their secrets.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use sandbox::{Result, ShareId};

use super::{Holder, too_many, too_many_once};
use crate::secret::{self, Hash};

/// Sessions of one key, of its shares together, and of those without a key; the oldest ends for a further one.
const MAX_SESSIONS_EACH: usize = 64;
/// All sessions together.
const MAX_SESSIONS: usize = 8192;
/// One-time tokens of one holder that wait for their use; the oldest is forgotten for a further one.
const MAX_ONCE_TOKENS_EACH: usize = 64;
/// All one-time tokens together.
const MAX_ONCE_TOKENS: usize = 8192;

/// Names a session, and is not secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) holder: Holder,
    proof: Hash,
    expires_at: Timestamp,
}

struct OnceHolder {
    holder: Holder,
    expires_at: Timestamp,
}

#[derive(Default)]
struct Known {
    last: u64,
    sessions: HashMap<Hash, Session>,
    once: HashMap<Hash, OnceHolder>,
}

#[derive(Default)]
pub(crate) struct Sessions(Mutex<Known>);

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every change in there is one insert or remove; a panic elsewhere leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(
        &self,
        token: &str,
        proof: &str,
        holder: Holder,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> Result<SessionId> {
        let mut known = self.lock();
        known.sessions.retain(|_, session| now < session.expires_at);
        known.make_room(&holder);
        if known.sessions.len() >= MAX_SESSIONS {
            return Err(too_many(MAX_SESSIONS));
        }
        known.last += 1;
        let id = SessionId(known.last);
        let session = Session { id, holder, proof: secret::hash(proof), expires_at };
        known.sessions.insert(secret::hash(token), session);
        Ok(id)
    }

    pub(super) fn find(&self, token: &str, proof: &str, now: Timestamp) -> Option<Session> {
        let session = self.lock().sessions.get(&secret::hash(token)).cloned();
        let is_proven = secret::matches(proof, session.as_ref().map(|session| &session.proof));
        session.filter(|session| is_proven && now < session.expires_at)
    }

    /// When a session ends by itself; none if it has ended.
    pub(crate) fn expires_at(&self, id: SessionId) -> Option<Timestamp> {
        self.lock().sessions.values().find(|session| session.id == id).map(|session| session.expires_at)
    }

    pub(super) fn remove(&self, id: SessionId) {
        self.lock().sessions.retain(|_, session| session.id != id);
    }

    pub(super) fn remove_of_share(&self, id: &ShareId) {
        let is_of_it = |holder: &Holder| matches!(holder, Holder::Share(share) if share.id == *id);
        self.lock().sessions.retain(|_, session| !is_of_it(&session.holder));
    }

    pub(super) fn insert_once(
        &self,
        token: &str,
        holder: Holder,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> Result<()> {
        let mut known = self.lock();
        known.once.retain(|_, once| now < once.expires_at);
        known.make_room_once(&holder);
        // The daemon's owner is never kept out by others.
        if known.once.len() >= MAX_ONCE_TOKENS && !matches!(holder, Holder::Owner(_)) {
            return Err(too_many_once(MAX_ONCE_TOKENS));
        }
        known.once.insert(secret::hash(token), OnceHolder { holder, expires_at });
        Ok(())
    }

    /// Takes the holder of this token, which works once.
    pub(super) fn take_once(&self, token: &str, now: Timestamp) -> Option<Holder> {
        let once = self.lock().once.remove(&secret::hash(token))?;
        (now < once.expires_at).then_some(once.holder)
    }
}

impl Known {
    /// Forgets the oldest one-time tokens of the same holder, so that nobody pushes out others.
    fn make_room_once(&mut self, holder: &Holder) {
        let same = self.once.iter().filter(|(_, once)| once.holder == *holder);
        let mut same: Vec<_> = same.map(|(hash, once)| (once.expires_at, *hash)).collect();
        same.sort_unstable();
        let n_surplus = (same.len() + 1).saturating_sub(MAX_ONCE_TOKENS_EACH);
        same.into_iter().take(n_surplus).for_each(|(_, hash)| drop(self.once.remove(&hash)));
    }

    /// Ends the oldest sessions of the same account, so that nobody pushes out others.
    fn make_room(&mut self, holder: &Holder) {
        let account = holder.account();
        let is_share = matches!(holder, Holder::Share(_));
        let is_same = |session: &Session| {
            session.holder.account() == account && matches!(session.holder, Holder::Share(_)) == is_share
        };
        let mut same: Vec<_> =
            self.sessions.values().filter(|session| is_same(session)).map(|session| session.id).collect();
        same.sort();
        let n_surplus = (same.len() + 1).saturating_sub(MAX_SESSIONS_EACH);
        for id in same.into_iter().take(n_surplus) {
            self.sessions.retain(|_, session| session.id != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn owner() -> Holder {
        Holder::Owner("uid 0".to_owned())
    }

    #[test]
    fn a_session_needs_both_halves_and_its_time() {
        let sessions = Sessions::default();
        let id = sessions.insert("cookie", "page", owner(), at(100), at(0)).unwrap();
        assert_eq!(sessions.find("cookie", "page", at(99)).map(|session| session.id), Some(id));
        for (token, proof, now) in
            [("cookie", "page", 100), ("cookie", "", 0), ("cookie", "cookie", 0), ("page", "page", 0)]
        {
            assert!(sessions.find(token, proof, at(now)).is_none(), "{token} {proof} {now}");
        }
        sessions.remove(id);
        assert!(sessions.find("cookie", "page", at(0)).is_none() && sessions.expires_at(id).is_none());
    }

    #[test]
    fn a_one_time_token_is_good_once_and_for_a_while() {
        let sessions = Sessions::default();
        sessions.insert_once("first", owner(), at(300), at(0)).unwrap();
        assert_eq!(sessions.take_once("first", at(299)), Some(owner()));
        assert_eq!(sessions.take_once("first", at(299)), None);
        sessions.insert_once("late", owner(), at(300), at(0)).unwrap();
        assert_eq!(sessions.take_once("late", at(300)), None);
        assert_eq!(sessions.take_once("late", at(0)), None, "a late try uses it up too");
    }

    #[test]
    fn numbers_are_bounded_and_nobody_ends_the_sessions_of_others() {
        let sessions = Sessions::default();
        let key = Holder::Key(sandbox::KeyId::from_random([1; 8]));
        let kept = sessions.insert("kept", "page", key.clone(), at(100), at(0)).unwrap();
        let mut ids = Vec::new();
        for n in 0..=MAX_SESSIONS_EACH {
            ids.push(sessions.insert(&format!("{n}"), "page", owner(), at(100), at(0)).unwrap());
        }
        assert_eq!(sessions.expires_at(ids[0]), None);
        assert!(ids[1..].iter().chain([&kept]).all(|id| sessions.expires_at(*id).is_some()));
        sessions.insert_once("kept", key.clone(), at(200), at(0)).unwrap();
        for n in 0..=MAX_ONCE_TOKENS_EACH {
            sessions.insert_once(&format!("{n}"), owner(), at(300 + n as i64), at(0)).unwrap();
        }
        assert_eq!(sessions.take_once("0", at(0)), None);
        assert_eq!(sessions.take_once("1", at(0)), Some(owner()));
        assert_eq!(sessions.take_once("kept", at(0)), Some(key));
    }
}
