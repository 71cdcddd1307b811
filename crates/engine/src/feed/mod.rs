//! Live events for those who watch: one channel that every part of the engine reports to, and one sampler of usage for
//! all listeners together.
//!
//! Events (`events.rs`) are the record of what happened and can be read later. Nothing here is kept: a listener that is
//! too slow is told so and begins anew.

mod fleet;
mod listen;
mod sampler;

use std::sync::Arc;

use sandbox::{Call, ExecId, NetworkRequest, SandboxId};
use tokio::sync::broadcast;

pub use self::{
    fleet::{BackendHealth, FleetMoment, FleetView, HomeDisk, PackagesCache},
    listen::{LiveEvent, LiveSpec, LiveTopic},
    sampler::{LoadSample, SandboxLoad},
};
pub(crate) use self::{
    fleet::{Counters, disk_of},
    sampler::Sampler,
};
use crate::NetworkLogEntry;

/// The most events that a listener may fall behind before it is told to begin anew. Each is some hundred bytes.
const MAX_BEHIND: usize = 1024;

/// One thing that happened.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A sandbox was made, changed or removed.
    Sandbox(SandboxId),
    /// An exec began or ended.
    Exec(SandboxId, ExecId),
    /// A line was written to the audit.
    Call(Call),
    /// Something was decided about a sandbox's traffic.
    Network(SandboxId, NetworkLogEntry),
    /// Somebody asked for more network, or was answered, or a grant ended.
    Request(SandboxId, NetworkRequest),
}

/// The channel. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Feed(broadcast::Sender<Arc<Happening>>);

impl Default for Feed {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_BEHIND))
    }
}

impl Feed {
    /// Tells all listeners; `what` is made only if there is one.
    pub(crate) fn tell(&self, what: impl FnOnce() -> Happening) {
        if self.0.receiver_count() > 0 {
            // Fails if the last listener has just gone.
            drop(self.0.send(Arc::new(what())));
        }
    }

    pub(crate) fn sandbox(&self, id: &SandboxId) {
        self.tell(|| Happening::Sandbox(id.clone()));
    }

    pub(crate) fn exec(&self, sandbox: &SandboxId, exec: &ExecId) {
        self.tell(|| Happening::Exec(sandbox.clone(), exec.clone()));
        // The number of its execs is part of a sandbox's view.
        self.sandbox(sandbox);
    }

    pub(crate) fn request(&self, sandbox: &SandboxId, request: &NetworkRequest) {
        self.tell(|| Happening::Request(sandbox.clone(), request.clone()));
    }

    fn listen(&self) -> broadcast::Receiver<Arc<Happening>> {
        self.0.subscribe()
    }
}
