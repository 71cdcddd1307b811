//! The audit log: who called what, when, with which outcome. One task stores calls in batches; no call is lost while
//! the daemon lives.

use std::time::Duration;

use jiff::Timestamp;
use sandbox::{Call, Error, ErrorKind, Frontend, KeyId, Namespace, Result};
use store::{CallQuery, NewCall, Store, StoreError};
use tokio::{
    sync::{mpsc, mpsc::error::TrySendError, oneshot},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Engine, Principal, SandboxRef, Scope, error,
    feed::{Feed, Happening},
};

/// Calls queued for the store; further callers wait.
const MAX_QUEUED_CALLS: usize = 1024;
/// Calls stored in one transaction.
const MAX_BATCH: usize = 256;
/// Longest caller's text in one column, in characters.
const MAX_TEXT_CHARS: usize = 256;
/// Calls listed if the caller gives no limit.
const DEFAULT_LIMIT: u32 = 100;
/// Most calls in one list.
const MAX_LISTED_CALLS: u32 = 10_000;
/// Longest text that is searched for, in characters, and most words in it.
const MAX_SEARCH_CHARS: usize = 256;
const MAX_SEARCH_WORDS: usize = 16;
/// The first pause before a refused write is tried again; each next one is twice as long.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LONGEST_RETRY: Duration = Duration::from_secs(2);
/// How long a reader waits for queued calls to be stored.
const FLUSHED_WITHIN: Duration = Duration::from_secs(3);

/// One call, as the front end that answered it saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecord {
    pub frontend: Frontend,
    /// Name of the tool, or method and route: `POST /v1/sandboxes`.
    pub action: String,
    /// As the caller named it.
    pub sandbox: Option<String>,
    /// As the caller named it. A principal of one namespace always calls in its own.
    pub namespace: Option<Namespace>,
    /// The stable code of the error, if there was one.
    pub outcome: Result<(), String>,
    pub duration: Duration,
    /// The client program, as the caller names it.
    pub client: Option<String>,
}

/// Which calls to list. All given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFilter {
    /// The first number; without it, the last `limit` calls.
    pub from: Option<u64>,
    /// Only calls with lower numbers.
    pub before: Option<u64>,
    pub limit: Option<u32>,
    /// Name of the caller, or label or id of its key.
    pub who: Option<String>,
    /// Words, each of which must be found somewhere in the call.
    pub search: Option<String>,
    /// Only those that failed, or only those that did not.
    pub has_failed: Option<bool>,
}

/// The queue of calls.
#[derive(Debug)]
pub(crate) struct AuditLog {
    queue: mpsc::Sender<Message>,
}

#[derive(Debug)]
enum Message {
    Call(NewCall),
    /// When a key was last used.
    Used(KeyId, Timestamp),
    /// Answered when everything before it is stored.
    Flush(oneshot::Sender<()>),
}

impl AuditLog {
    /// Starts the task that stores calls. It ends with this handle. `closing`: gives up on calls that cannot be stored.
    pub(crate) fn start(store: Store, closing: CancellationToken, feed: Feed) -> Self {
        let (queue, inbox) = mpsc::channel(MAX_QUEUED_CALLS);
        tokio::spawn(keep(Keeper { store, closing, feed, batch: Vec::new() }, inbox));
        Self { queue }
    }

    async fn put(&self, call: NewCall) {
        let Err(TrySendError::Full(message)) = self.queue.try_send(Message::Call(call)) else { return };
        // In a task of its own: the entry must be kept even if the caller stops waiting.
        let queue = self.queue.clone();
        let sent = tokio::spawn(async move { queue.send(message).await.is_ok() });
        sent.await.unwrap_or(false);
    }

    /// Approximate, so it waits for nobody: if the queue is full, the next use is recorded.
    pub(crate) fn note_use(&self, key: KeyId, at: Timestamp) {
        drop(self.queue.try_send(Message::Used(key, at)));
    }

    /// Returns when everything queued before is stored.
    pub(crate) async fn flush(&self) {
        let (reply, flushed) = oneshot::channel();
        drop(self.queue.send(Message::Flush(reply)).await);
        drop(flushed.await);
    }
}

struct Keeper {
    store: Store,
    closing: CancellationToken,
    feed: Feed,
    batch: Vec<NewCall>,
}

async fn keep(mut keeper: Keeper, mut inbox: mpsc::Receiver<Message>) {
    let mut messages = Vec::new();
    while inbox.recv_many(&mut messages, MAX_BATCH).await > 0 {
        for message in messages.drain(..) {
            match message {
                Message::Call(call) => keeper.batch.push(call),
                Message::Used(key, at) => keeper.write_use(key, at).await,
                Message::Flush(reply) => {
                    keeper.write_batch().await;
                    reply.send(()).unwrap_or(());
                }
            }
        }
        keeper.write_batch().await;
    }
}

impl Keeper {
    /// Retries until it is stored. Meanwhile the queue fills up and callers wait: that is better than a gap in the
    /// audit.
    async fn write_batch(&mut self) {
        let calls = std::mem::take(&mut self.batch);
        if calls.is_empty() {
            return;
        }
        let mut pause = FIRST_RETRY;
        loop {
            let error = match self.store.append_calls(calls.clone()).await {
                Ok(numbers) => return self.tell(numbers, calls),
                Err(error) => error,
            };
            if matches!(error, StoreError::Closed) || self.closing.is_cancelled() {
                tracing::error!(n_lost = calls.len(), %error, "calls are missing from the audit");
                return;
            }
            tracing::error!(error = &error as &dyn std::error::Error, "the audit waits for the store");
            tokio::select! {
                () = self.closing.cancelled() => {}
                () = sleep(pause) => {}
            }
            pause = pause.saturating_mul(2).min(LONGEST_RETRY);
        }
    }

    fn tell(&self, numbers: Vec<u64>, calls: Vec<NewCall>) {
        for (number, call) in numbers.into_iter().zip(calls) {
            self.feed.tell(|| Happening::Call(call.numbered(number)));
        }
    }

    async fn write_use(&self, key: KeyId, at: Timestamp) {
        if let Err(error) = self.store.touch_key(key.clone(), at).await {
            tracing::warn!(%key, %error, "could not record that a key was used");
        }
    }
}

impl Engine {
    /// Records a call; the front end that answered it calls this. Waits only while very many are queued.
    #[crate::boxed]
    pub async fn record_call(&self, who: &Principal, call: CallRecord) {
        let core = self.core();
        let mut new = new_call(call, core.clock.now());
        new.who = Some(cut(who.name.clone()));
        new.key = who.key.clone();
        new.namespace = match &who.scope {
            Scope::One(own) | Scope::Sandbox { namespace: own, .. } => Some(own.clone()),
            Scope::All | Scope::Maker { .. } => {
                new.namespace.or_else(|| self.namespace_of(who, new.sandbox.as_deref()))
            }
        };
        core.audit.put(new).await;
    }

    /// Records the refusal of an unidentified caller. The namespace that it named is not its own: only those who see
    /// all of them see its calls.
    #[crate::boxed]
    pub async fn record_unknown_call(&self, call: CallRecord) {
        let core = self.core();
        let call = CallRecord { namespace: None, ..call };
        core.audit.put(new_call(call, core.clock.now())).await;
    }

    /// Calls in order. A principal of one namespace sees the calls in it.
    #[crate::boxed]
    pub async fn calls(&self, who: &Principal, filter: CallFilter) -> Result<Vec<Call>> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        // Callers see their own earlier calls; if the store accepts nothing now, the stored ones can still be read.
        drop(timeout(FLUSHED_WITHIN, core.audit.flush()).await);
        let (namespace, of) = match &who.scope {
            Scope::All => (None, filter.who),
            Scope::One(own) => (Some(own.clone()), filter.who),
            Scope::Maker { key, .. } => (None, Some(key.to_string())),
            Scope::Sandbox { .. } => {
                let message = format!("{} may not read the calls of a namespace", who.name);
                return Err(Error::new(ErrorKind::Denied, message));
            }
        };
        let limit = filter.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LISTED_CALLS);
        let words = words_of(filter.search.as_deref().unwrap_or_default())?;
        let CallFilter { from, before, has_failed, .. } = filter;
        let query = CallQuery { from, before, limit, namespace, who: of, words, has_failed };
        core.store.calls(query).await.map_err(error::from_store)
    }

    /// The namespace of a sandbox that still exists.
    fn namespace_of(&self, who: &Principal, sandbox: Option<&str>) -> Option<Namespace> {
        let which: SandboxRef = sandbox?.parse().ok()?;
        Some(self.core().find(who, &which).ok()?.subject.namespace.clone())
    }
}

fn words_of(search: &str) -> Result<Vec<String>> {
    let words: Vec<_> = search.split_whitespace().map(str::to_owned).collect();
    if search.chars().count() > MAX_SEARCH_CHARS || words.len() > MAX_SEARCH_WORDS {
        let message =
            format!("cannot search for more than {MAX_SEARCH_WORDS} words or {MAX_SEARCH_CHARS} characters");
        return Err(Error::invalid(message).with_hint("Search for fewer words."));
    }
    Ok(words)
}

fn new_call(call: CallRecord, at: Timestamp) -> NewCall {
    NewCall {
        at,
        who: None,
        key: None,
        frontend: call.frontend,
        action: cut(call.action),
        sandbox: call.sandbox.map(cut),
        namespace: call.namespace,
        error: call.outcome.err().map(cut),
        duration_ms: u64::try_from(call.duration.as_millis()).unwrap_or(u64::MAX),
        client: call.client.map(cut),
    }
}

/// A caller's text may be as long as a request.
fn cut(text: String) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}
