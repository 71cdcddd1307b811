//! Sessions of Streamable HTTP: each belongs to whoever began it, and there are only so many.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{Stream, StreamExt as _};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::{
        WorkerTransport,
        streamable_http_server::session::{
            EventStream, ServerSseMessage, SessionId, SessionManager,
            local::{
                LocalSessionManager, LocalSessionManagerError, LocalSessionWorker, SessionConfig,
                SessionError,
            },
        },
    },
};
use tokio_util::sync::CancellationToken;

use super::{
    client::Owner,
    events::{self, EventBudget, EventLog},
    hello,
};

/// A session that nobody used for so long is over: longer than a night's sleep of someone's laptop.
const IDLE_LIMIT: Duration = Duration::from_secs(12 * 60 * 60);
/// How long a client may take between opening a session and initializing it.
const INIT_LIMIT: Duration = Duration::from_secs(30);
/// All sessions together. One more, and whoever has the most loses the one that is idle longest.
const MAX_SESSIONS: usize = 1024;
/// The sessions of one key, or of one user without a key; one more costs it the one that is idle longest. Where none is
/// idle, there is no further one.
const MAX_SESSIONS_EACH: usize = 256;
/// The time between two looks for events that nobody will come back for.
const PRUNE_EVERY: Duration = Duration::from_secs(30);

/// Every session of a daemon.
#[derive(Debug)]
pub(super) struct Sessions {
    max: usize,
    max_each: usize,
    entries: Mutex<HashMap<SessionId, Entry>>,
    events: Arc<EventBudget>,
}

/// A session, with the library's part of it for itself: what one session stores, no other can ask for.
#[derive(Debug, Clone)]
struct Entry {
    local: Arc<LocalSessionManager>,
    events: Arc<EventLog>,
    owner: Owner,
    last_used: Instant,
    ended: CancellationToken,
    /// Held once more by every open stream, and by whoever works with a copy of this entry: while a request is not
    /// answered.
    in_use: Arc<()>,
}

impl Entry {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.in_use) == 1
    }

    /// A stream that keeps its session from making room for others.
    fn while_open(
        &self,
        stream: impl Stream<Item = ServerSseMessage> + Send + Sync + 'static,
    ) -> EventStream {
        let in_use = Arc::clone(&self.in_use);
        Box::pin(stream.inspect(move |_event| {
            let _held = &in_use;
        }))
    }

    async fn close(&self, id: &SessionId) -> Result<(), Error> {
        self.ended.cancel();
        self.events.clear();
        self.local.close_session(id).await
    }
}

impl Sessions {
    pub(super) fn new() -> Arc<Self> {
        Self::at_most(MAX_SESSIONS, MAX_SESSIONS_EACH)
    }

    fn at_most(max: usize, max_each: usize) -> Arc<Self> {
        Arc::new(Self { max, max_each, entries: Mutex::default(), events: Arc::default() })
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<SessionId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sessions as `owner` sees them: its own, and no other.
    /// `ended` is told of the end of a session that begins now.
    pub(super) fn of(self: &Arc<Self>, owner: Owner, ended: CancellationToken) -> Arc<OwnSessions> {
        Arc::new(OwnSessions { all: Arc::clone(self), owner, ended, is_full: AtomicBool::new(false) })
    }

    /// Makes room for one more of `owner` where there is none: takes the session that was idle longest, of its own
    /// account or of the one that has the most. An error where all are in use.
    fn make_room(&self, owner: &Owner) -> Result<Option<(SessionId, Entry)>, Full> {
        let mut entries = self.entries();
        let mut n_each: HashMap<&str, usize> = HashMap::new();
        entries.values().for_each(|entry| *n_each.entry(entry.owner.account()).or_default() += 1);
        let most = if n_each.get(owner.account()).is_some_and(|n| *n >= self.max_each) {
            owner.account().to_owned()
        } else if entries.len() >= self.max {
            n_each.into_iter().max_by_key(|(_, n)| *n).ok_or(Full)?.0.to_owned()
        } else {
            return Ok(None);
        };
        let idle = entries.iter().filter(|(_, entry)| entry.owner.account() == most && entry.is_idle());
        let id = idle.min_by_key(|(_, entry)| entry.last_used).ok_or(Full)?.0.clone();
        Ok(entries.remove_entry(&id))
    }

    /// Forgets old events from time to time, while there are sessions to look at.
    pub(super) fn prune_until(self: &Arc<Self>, stop: CancellationToken) {
        let sessions: Weak<Self> = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(PRUNE_EVERY) => {}
                }
                let Some(sessions) = sessions.upgrade() else { return };
                sessions.entries().values().for_each(|entry| entry.events.prune());
            }
        });
    }
}

/// The sessions as the library sees them while it serves a request of one owner.
#[derive(Debug)]
pub(super) struct OwnSessions {
    all: Arc<Sessions>,
    owner: Owner,
    ended: CancellationToken,
    is_full: AtomicBool,
}

/// All sessions that might make room are in use.
#[derive(Debug)]
struct Full;

type Error = LocalSessionManagerError;

impl OwnSessions {
    pub(super) fn has(&self, id: &str) -> bool {
        self.all.entries().get(id).is_some_and(|entry| entry.owner == self.owner)
    }

    /// Whether a session was asked for that could not be had.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn entry(&self, id: &SessionId) -> Result<Entry, Error> {
        let mut entries = self.all.entries();
        let entry = entries.get_mut(id).filter(|entry| entry.owner == self.owner);
        let entry = entry.ok_or_else(|| Error::SessionNotFound(id.clone()))?;
        entry.last_used = Instant::now();
        Ok(entry.clone())
    }
}

fn local(events: &Arc<EventLog>) -> LocalSessionManager {
    let mut config = SessionConfig::default();
    config.keep_alive = Some(IDLE_LIMIT);
    config.init_timeout = Some(INIT_LIMIT);
    // Messages that were sent are in the log of events, which has a limit; the library would keep them once more.
    config.completed_cache_ttl = Duration::ZERO;
    let mut local = LocalSessionManager::default();
    local.session_config = config;
    local.with_event_store(Arc::clone(events) as _)
}

impl SessionManager for OwnSessions {
    type Error = Error;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Error> {
        let evicted = self.all.make_room(&self.owner).map_err(|Full| {
            self.is_full.store(true, Ordering::Relaxed);
            // Nobody sees this error: the answer is made from the mark.
            Error::SessionNotFound(SessionId::default())
        })?;
        if let Some((id, evicted)) = evicted {
            tracing::info!(owner = %evicted.owner, "too many MCP sessions: the one that was idle longest was ended");
            evicted.close(&id).await?;
        }
        let events = EventLog::new(&self.all.events);
        let local = Arc::new(local(&events));
        let (id, transport) = local.create_session().await?;
        let (owner, ended) = (self.owner.clone(), self.ended.clone());
        let in_use = Arc::default();
        let entry = Entry { local, events, owner, last_used: Instant::now(), ended, in_use };
        self.all.entries().insert(id.clone(), entry);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Error> {
        if let Err(refused) = hello::cut(&mut message) {
            self.close_session(id).await?;
            return Ok(ServerJsonRpcMessage::error(refused.error, Some(refused.id)));
        }
        self.entry(id)?.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Error> {
        Ok(self.has(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Error> {
        let entry = {
            let mut entries = self.all.entries();
            match entries.get(id) {
                Some(entry) if entry.owner == self.owner => entries.remove(id),
                _ => None,
            }
        };
        match entry {
            Some(entry) => entry.close(id).await,
            None => Ok(()),
        }
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Error> {
        let entry = self.entry(id)?;
        Ok(entry.while_open(entry.local.create_stream(id, message).await?))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Error> {
        self.entry(id)?.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Error> {
        let entry = self.entry(id)?;
        Ok(entry.while_open(entry.local.create_standalone_stream(id).await?))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Error> {
        let entry = self.entry(id)?;
        // The event that opens the standalone stream, before anything was sent.
        if last_event_id == "0" {
            return Ok(entry.while_open(entry.local.create_standalone_stream(id).await?));
        }
        let stream = events::after(&entry.events, &last_event_id).ok_or(SessionError::InvalidEventId)?;
        Ok(entry.while_open(stream))
    }
}

#[cfg(test)]
mod tests {
    use engine::{Access, Principal};

    use super::*;

    #[tokio::test]
    async fn one_more_than_there_may_be_costs_whoever_has_the_most() {
        let sessions = Sessions::at_most(3, 3);
        let of = |name| sessions.of(Owner::of(&Principal::operator(name)), CancellationToken::new());
        let (ana, bob) = (of("ana"), of("bob"));
        let mut ids = Vec::new();
        let mut transports = Vec::new();
        for own in [&bob, &ana, &ana] {
            let (id, transport) = own.create_session().await.unwrap();
            ids.push(id);
            transports.push(transport);
        }
        assert!(!ana.has(&ids[0]) && bob.has(&ids[0]), "a session is its owner's");
        ana.entry(&ids[1]).unwrap();
        transports.push(bob.create_session().await.unwrap().1);
        assert!(bob.has(&ids[0]), "the oldest of all, but not of the one who has the most");
        assert!(ana.has(&ids[1]) && !ana.has(&ids[2]), "the one used least lately");
        assert_eq!(sessions.entries().len(), 3);
        ana.close_session(&ids[0]).await.unwrap();
        assert!(bob.has(&ids[0]), "nobody ends a session of others");
    }

    #[tokio::test]
    async fn one_owner_has_only_so_many() {
        let sessions = Sessions::at_most(9, 2);
        let of = |name| sessions.of(Owner::of(&Principal::operator(name)), CancellationToken::new());
        let (ana, bob) = (of("ana"), of("bob"));
        let mut made = Vec::new();
        for own in [&bob, &ana, &ana, &ana] {
            made.push(own.create_session().await.unwrap());
        }
        assert!(bob.has(&made[0].0) && !ana.has(&made[1].0), "its own oldest one");
        assert!(ana.has(&made[2].0) && ana.has(&made[3].0));
        // With other rights she is another owner, and has no further sessions.
        let who = Principal { access: Access::ReadOnly, ..Principal::operator("ana") };
        let looks = sessions.of(Owner::of(&who), CancellationToken::new());
        let (third, _third) = looks.create_session().await.unwrap();
        assert!(looks.has(&third) && !ana.has(&third) && !ana.has(&made[2].0) && ana.has(&made[3].0));
    }

    #[tokio::test]
    async fn a_session_in_use_is_not_ended_for_a_new_one() {
        let sessions = Sessions::at_most(9, 2);
        let ana = sessions.of(Owner::of(&Principal::operator("ana")), CancellationToken::new());
        let (first, _first) = ana.create_session().await.unwrap();
        let (second, _second) = ana.create_session().await.unwrap();
        let open = |id| ana.entry(id).unwrap().while_open(futures_util::stream::pending());
        let (held, further) = (open(&first), open(&first));
        let (third, _third) = ana.create_session().await.unwrap();
        assert!(ana.has(&first) && !ana.has(&second), "the one used least lately has a stream");
        let last = open(&third);
        assert!(ana.create_session().await.is_err() && ana.is_full());
        assert!(ana.has(&first) && ana.has(&third));
        drop((held, last));
        let (fourth, _fourth) = ana.create_session().await.unwrap();
        assert!(ana.has(&first) && ana.has(&fourth) && !ana.has(&third));
        drop(further);
    }
}
