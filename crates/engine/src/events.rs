//! Events in order: one task numbers and stores them; readers are cursors over the store, woken when there is more.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use sandbox::{Error, Event, EventKind, ExecId, Namespace, Result, SandboxId, SandboxName};
use store::{NewEvent, Store, StoreError};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{Engine, Follow, Principal, core::Core, error, metrics::Metrics};

/// Events queued for the store; further senders wait.
const MAX_QUEUED_EVENTS: usize = 1024;
/// Events written in one transaction.
const MAX_EVENTS_PER_WRITE: usize = 64;
/// Events read at once for one reader.
const EVENTS_PER_READ: u32 = 256;

/// The queue of events. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct EventLog {
    queue: mpsc::Sender<Message>,
    pub(crate) metrics: Arc<Metrics>,
    /// See [`Engine::event_history`].
    history: Option<Arc<str>>,
    /// Number of the last event stored; readers sleep on it.
    pub(crate) last: watch::Receiver<u64>,
}

#[derive(Debug)]
enum Message {
    Event(NewEvent),
    /// Answered when everything before it is stored.
    Flush(oneshot::Sender<()>),
}

/// The sandbox that an event is about, without its name, which may change.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) id: SandboxId,
    pub(crate) namespace: Namespace,
}

impl EventLog {
    /// Starts the task that stores events. It ends when the last clone is gone.
    pub(crate) async fn start(store: Store, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        let last_stored = last_number(&store).await?;
        let history = store.history().await?.map(Arc::from);
        let (queue, inbox) = mpsc::channel(MAX_QUEUED_EVENTS);
        let (tell, last) = watch::channel(last_stored);
        tokio::spawn(keep(store, inbox, tell));
        Ok(Self { queue, metrics, history, last })
    }

    pub(crate) async fn emit(&self, event: NewEvent) {
        self.metrics.event(event.kind);
        // Fails only while the engine is closing, when nobody could store it.
        drop(self.queue.send(Message::Event(event)).await);
    }

    /// Returns when everything emitted before is stored.
    pub(crate) async fn flush(&self) {
        let (reply, flushed) = oneshot::channel();
        drop(self.queue.send(Message::Flush(reply)).await);
        drop(flushed.await);
    }
}

async fn keep(store: Store, mut inbox: mpsc::Receiver<Message>, tell: watch::Sender<u64>) {
    let mut queued = Vec::new();
    while inbox.recv_many(&mut queued, MAX_EVENTS_PER_WRITE).await > 0 {
        let (mut events, mut flushes) = (Vec::with_capacity(queued.len()), Vec::new());
        for message in queued.drain(..) {
            match message {
                Message::Event(event) => events.push(event),
                Message::Flush(reply) => flushes.push(reply),
            }
        }
        let n_events = events.len();
        if n_events > 0 {
            match store.append_events(events).await {
                Ok(events) => drop(events.last().map(|event| tell.send_replace(event.number))),
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::error!(n_events, error = &error as &dyn std::error::Error, "events were lost");
                }
            }
        }
        for reply in flushes {
            reply.send(()).unwrap_or(());
        }
    }
}

/// Finds the last number by bisection, since numbers only grow.
async fn last_number(store: &Store) -> Result<u64, StoreError> {
    let Some(first) = store.events(0, 1).await?.first().map(|event| event.number) else { return Ok(0) };
    let (mut known, mut step) = (first, 1_u64);
    loop {
        match store.events(known.saturating_add(step), 1).await?.first() {
            Some(event) => {
                known = event.number;
                step = step.saturating_mul(2);
            }
            None if step == 1 => return Ok(known),
            None => step = (step / 4).max(1),
        }
    }
}

impl Core {
    pub(crate) async fn emit(
        &self,
        subject: &Subject,
        name: &SandboxName,
        kind: EventKind,
        exec: Option<&ExecId>,
        detail: impl Into<String>,
    ) {
        let event = NewEvent {
            at: self.clock.now(),
            kind,
            sandbox: Some(subject.id.clone()),
            name: Some(name.clone()),
            namespace: Some(subject.namespace.clone()),
            exec: exec.cloned(),
            detail: detail.into(),
        };
        self.events.emit(event).await;
    }
}

struct Reader {
    store: Store,
    last: watch::Receiver<u64>,
    next: u64,
    follow: Follow,
}

impl Engine {
    /// Number of the last event that was stored; 0 if there was none.
    pub fn last_event_number(&self) -> u64 {
        *self.core().events.last.borrow()
    }

    /// Changes when the numbers of events do not continue those of the daemon before: its records were lost, or
    /// replaced by an old copy. `None`: not known.
    pub fn event_history(&self) -> Option<&str> {
        self.core().events.history.as_deref()
    }

    /// Events from number `from` on, without gaps; `None`: only future ones. Refuses a number beyond the next one:
    /// whoever has it read events of records that were lost since.
    #[crate::boxed]
    pub async fn events(
        &self,
        who: &Principal,
        from: Option<u64>,
        follow: Follow,
    ) -> Result<stream::BoxStream<'static, Result<Event>>> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let last = core.events.last.clone();
        let upcoming = last.borrow().saturating_add(1);
        if let Some(from) = from.filter(|from| *from > upcoming) {
            let message = format!("there is no event {from} yet: the next one has the number {upcoming}");
            return Err(Error::invalid(message).with_hint(
                "Numbers begin anew when the daemon's records were lost: read from 1 to see what is kept.",
            ));
        }
        let next = from.unwrap_or(upcoming);
        let reader = Reader { store: core.store.clone(), last, next, follow };
        let who = who.clone();
        let seen = move |event: &Result<Event>| match event {
            Ok(event) => event.namespace.as_ref().is_none_or(|namespace| who.sees(namespace)),
            Err(_) => true,
        };
        Ok(stream::try_unfold(reader, Reader::step)
            .map(|batch| match batch {
                Ok(events) => stream::iter(events.into_iter().map(Ok).collect::<Vec<_>>()),
                Err(error) => stream::iter(vec![Err(error)]),
            })
            .flatten()
            .filter(move |event| std::future::ready(seen(event)))
            .take_until(core.closing.clone().cancelled_owned())
            .boxed())
    }
}

impl Reader {
    /// The next events; a follower waits for one.
    async fn step(mut self) -> Result<Option<(Vec<Event>, Self)>> {
        loop {
            // Marked as seen before reading, so that an event stored meanwhile wakes us again.
            self.last.borrow_and_update();
            let events = self.store.events(self.next, EVENTS_PER_READ).await.map_err(error::from_store)?;
            if let Some(event) = events.last() {
                self.next = event.number + 1;
                return Ok(Some((events, self)));
            }
            if self.follow == Follow::No || self.last.changed().await.is_err() {
                return Ok(None);
            }
        }
    }
}
