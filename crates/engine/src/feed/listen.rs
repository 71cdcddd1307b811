//! One listener: what it may see of all that happens.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use futures_util::{StreamExt, stream, stream::BoxStream};
use jiff::Timestamp;
use sandbox::{Call, Result, SandboxId};
use tokio::sync::{
    broadcast::{Receiver, error::RecvError},
    watch,
};

use super::{Happening, LoadSample, SandboxLoad};
use crate::{
    Engine, ExecView, NetworkLogEntry, NetworkRequestView, Principal, SandboxRef, SandboxView, Scope,
    core::Core, shared::Shared,
};

/// A topic that a listener can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LiveTopic {
    Sandboxes,
    Usage,
    Execs,
    Calls,
    Network,
    /// Requests that wait for a person's answer.
    Pending,
}

#[derive(Debug, Clone, Default)]
pub struct LiveSpec {
    pub topics: BTreeSet<LiveTopic>,
    /// Only what concerns this sandbox.
    pub sandbox: Option<SandboxRef>,
}

/// One thing that a listener hears.
#[derive(Debug, Clone)]
pub enum LiveEvent {
    /// A sandbox as it is now: each at the start, then whenever it changes.
    Sandbox(Box<SandboxView>),
    /// A sandbox that was told of is gone.
    Gone(SandboxId),
    /// All sandboxes were told of.
    Ready,
    Usage {
        at: Timestamp,
        sandboxes: BTreeMap<SandboxId, SandboxLoad>,
    },
    Exec(Box<ExecView>),
    Call(Box<Call>),
    Network(Box<NetworkLogEntry>),
    /// A request for more network: each that waits at the start, then whenever one is made, answered or ends.
    Request(Box<NetworkRequestView>),
    /// The listener was too slow, and missed so much; all sandboxes follow again.
    Lagged(u64),
}

struct Listener {
    engine: Engine,
    who: Principal,
    topics: BTreeSet<LiveTopic>,
    only: Option<SandboxId>,
    happenings: Receiver<Arc<Happening>>,
    samples: Option<watch::Receiver<Arc<LoadSample>>>,
    /// Not told of yet, of those that were there at the start.
    untold: VecDeque<Arc<Shared>>,
    /// The same of requests that wait.
    untold_requests: VecDeque<NetworkRequestView>,
    is_ready: bool,
    /// Sandboxes that were told of.
    told: BTreeSet<SandboxId>,
}

impl Engine {
    /// Streams events from now on, as far as this caller may see them; begins with all sandboxes. Ends with the engine.
    #[crate::boxed]
    pub async fn live(&self, who: &Principal, spec: LiveSpec) -> Result<BoxStream<'static, LiveEvent>> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let only = match &spec.sandbox {
            Some(which) => Some(core.find(who, which)?.subject.id.clone()),
            None => None,
        };
        let samples = spec.topics.contains(&LiveTopic::Usage).then(|| core.sampler.listen(core));
        let mut listener = Listener {
            engine: self.for_task(),
            who: who.clone(),
            topics: spec.topics,
            only,
            happenings: core.feed.listen(),
            samples,
            untold: VecDeque::new(),
            untold_requests: VecDeque::new(),
            is_ready: false,
            told: BTreeSet::new(),
        };
        listener.begin();
        let events = stream::unfold(listener, Listener::step);
        Ok(events.take_until(core.closing.clone().cancelled_owned()).boxed())
    }
}

impl Listener {
    fn core(&self) -> &Core {
        self.engine.core()
    }

    fn wants(&self, topic: LiveTopic) -> bool {
        self.topics.contains(&topic)
    }

    fn begin(&mut self) {
        self.is_ready = false;
        let seen: VecDeque<_> = self.core().all().into_iter().filter(|shared| self.sees(shared)).collect();
        if self.wants(LiveTopic::Pending) {
            let requests = seen.iter().flat_map(|shared| self.pending_requests(shared)).collect();
            self.untold_requests = requests;
        }
        if self.wants(LiveTopic::Sandboxes) {
            self.untold = seen;
        }
    }

    fn pending_requests(&self, shared: &Shared) -> Vec<NetworkRequestView> {
        let view = |request| NetworkRequestView::new(self.core(), &self.who, shared, request);
        shared.pending_requests().into_iter().map(view).collect()
    }

    fn sees(&self, shared: &Shared) -> bool {
        self.who.sees_sandbox(&shared.subject, shared.owner.as_ref())
            && self.only.as_ref().is_none_or(|only| *only == shared.subject.id)
    }

    /// The sandbox of that id, if this listener hears of it.
    fn visible(&self, id: &SandboxId) -> Option<Arc<Shared>> {
        self.core().recorded(id).filter(|shared| self.sees(shared))
    }

    async fn step(mut self) -> Option<(LiveEvent, Self)> {
        loop {
            if let Some(event) = self.first() {
                return Some((event, self));
            }
            let event = tokio::select! {
                happening = self.happenings.recv() => match happening {
                    Ok(happening) => self.heard(&happening).await,
                    Err(RecvError::Lagged(n)) => {
                        self.begin();
                        Some(LiveEvent::Lagged(n))
                    }
                    Err(RecvError::Closed) => return None,
                },
                Some(sample) = next_sample(&mut self.samples) => self.usage(&sample),
            };
            if let Some(event) = event {
                return Some((event, self));
            }
        }
    }

    /// The next of what is told at the start.
    fn first(&mut self) -> Option<LiveEvent> {
        while let Some(shared) = self.untold.pop_front() {
            // It may have gone meanwhile; then its end is in the channel, and nobody was told of it.
            if self.core().recorded(&shared.subject.id).is_some() {
                self.told.insert(shared.subject.id.clone());
                return Some(LiveEvent::Sandbox(Box::new(shared.view())));
            }
        }
        // One that was answered meanwhile is told of again, with its answer.
        if let Some(request) = self.untold_requests.pop_front() {
            self.told.insert(request.sandbox.clone());
            return Some(LiveEvent::Request(Box::new(request)));
        }
        if self.is_ready {
            return None;
        }
        self.is_ready = true;
        // After a break some of those that were told of may be gone.
        let core = Arc::clone(self.engine.core());
        self.told.retain(|id| core.recorded(id).is_some());
        Some(LiveEvent::Ready)
    }

    async fn heard(&mut self, happening: &Happening) -> Option<LiveEvent> {
        match happening {
            Happening::Sandbox(id) if self.wants(LiveTopic::Sandboxes) => match self.visible(id) {
                Some(shared) => {
                    self.told.insert(id.clone());
                    Some(LiveEvent::Sandbox(Box::new(shared.view())))
                }
                None => self.told.remove(id).then(|| LiveEvent::Gone(id.clone())),
            },
            Happening::Exec(sandbox, exec) if self.wants(LiveTopic::Execs) => {
                self.visible(sandbox)?;
                let which = SandboxRef::from(sandbox);
                // It may be gone with its sandbox, or the caller's right with its key.
                self.engine
                    .exec_view(&self.who, &which, exec)
                    .await
                    .ok()
                    .map(|view| LiveEvent::Exec(Box::new(view)))
            }
            Happening::Call(call) if self.wants(LiveTopic::Calls) => {
                self.sees_call(call).then(|| LiveEvent::Call(Box::new(call.clone())))
            }
            Happening::Network(sandbox, entry) if self.wants(LiveTopic::Network) => {
                self.visible(sandbox)?;
                Some(LiveEvent::Network(Box::new(entry.clone())))
            }
            Happening::Request(sandbox, request) if self.wants(LiveTopic::Pending) => {
                let shared = self.visible(sandbox)?;
                self.told.insert(sandbox.clone());
                let view = NetworkRequestView::new(self.core(), &self.who, &shared, request.clone());
                Some(LiveEvent::Request(Box::new(view)))
            }
            // Its requests are gone with it.
            Happening::Sandbox(id) if self.wants(LiveTopic::Pending) && self.visible(id).is_none() => {
                self.told.remove(id).then(|| LiveEvent::Gone(id.clone()))
            }
            Happening::Sandbox(_)
            | Happening::Exec(..)
            | Happening::Call(_)
            | Happening::Network(..)
            | Happening::Request(..) => None,
        }
    }

    fn sees_call(&self, call: &Call) -> bool {
        let is_in_scope = match &self.who.scope {
            Scope::All => true,
            Scope::One(own) => call.namespace.as_ref() == Some(own),
            Scope::Maker { key, .. } => call.key.as_ref() == Some(key),
            Scope::Sandbox { id, .. } => self.is_about(call, id),
        };
        is_in_scope && self.only.as_ref().is_none_or(|only| self.is_about(call, only))
    }

    /// Callers name a sandbox by its id or its name.
    fn is_about(&self, call: &Call, id: &SandboxId) -> bool {
        let Some(named) = call.sandbox.as_deref() else { return false };
        named == id.as_str()
            || self.visible(id).is_some_and(|shared| {
                let record = &shared.status.borrow().record;
                named == record.name.as_str() && call.namespace.as_ref() == Some(&record.namespace)
            })
    }

    fn usage(&self, sample: &LoadSample) -> Option<LiveEvent> {
        let seen = sample.sandboxes.iter().filter(|(id, _)| self.visible(id).is_some());
        let sandboxes = seen.map(|(id, load)| (id.clone(), *load)).collect();
        Some(LiveEvent::Usage { at: sample.at, sandboxes })
    }
}

/// The next sample; never, where none are wanted.
async fn next_sample(samples: &mut Option<watch::Receiver<Arc<LoadSample>>>) -> Option<Arc<LoadSample>> {
    let Some(samples) = samples else { return std::future::pending().await };
    match samples.changed().await {
        Ok(()) => Some(Arc::clone(&samples.borrow_and_update())),
        // The sampler is gone with the engine, which ends the stream.
        Err(_closed) => std::future::pending().await,
    }
}
