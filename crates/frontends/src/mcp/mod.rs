//! MCP: the surface that agents use. Names and parameters follow microsandbox-mcp, and go beyond it in the same style.
//!
//! A tool is a function from typed arguments to a typed answer (`tool`, `tools/`); what every call shares is in `call`
//! (who asks, under which settings), `arguments` (validation), `envelope` (one shape for every answer and failure) and
//! `output` (cutting what is too long). Only `protocol/` knows the MCP library, its transports and its sessions.

mod arguments;
mod call;
mod complete;
mod envelope;
mod hostfs;
mod output;
mod prompts;
mod protocol;
mod resources;
mod schema;
mod settings;
#[cfg(test)]
mod testing;
mod tool;
mod tools;
mod toolset;
mod turns;

use std::sync::{Arc, Weak};

use engine::Engine;
use tokio_util::task::TaskTracker;

pub use self::{
    protocol::{Greeting, SETTINGS_HEADER, UPGRADE_PROTOCOL, conformance_router, router},
    settings::{HostPolicy, HostRoot, Settings},
    toolset::{Toolset, Toolsets},
};
use self::{tools::Sessions, turns::Turns};

/// What all MCP clients of one daemon share. Clones are the same.
#[derive(Debug, Clone)]
pub struct Mcp {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Engine,
    /// For clients that bring none of their own, which is everyone but those on stdio.
    settings: Arc<Settings>,
    /// What goes on after a call was answered, such as stopping a sandbox that was started for one command.
    background: TaskTracker,
    sessions: Arc<Sessions>,
    turns: Arc<Turns>,
}

/// Does not keep the engine alive.
#[derive(Debug, Clone)]
pub(crate) struct WeakMcp {
    shared: Weak<Shared>,
}

impl WeakMcp {
    pub(crate) fn upgrade(&self) -> Option<Mcp> {
        self.shared.upgrade().map(|shared| Mcp { shared })
    }
}

impl Mcp {
    pub fn new(engine: Engine, settings: Settings) -> Self {
        let (settings, background) = (Arc::new(settings), TaskTracker::new());
        let (sessions, turns) = (Arc::default(), Arc::default());
        Self { shared: Arc::new(Shared { engine, settings, background, sessions, turns }) }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    pub(crate) fn settings(&self) -> &Arc<Settings> {
        &self.shared.settings
    }

    pub(crate) fn downgrade(&self) -> WeakMcp {
        WeakMcp { shared: Arc::downgrade(&self.shared) }
    }

    /// Calls that are going on.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.shared.turns
    }

    /// Exec sessions whose stdin is open.
    pub(crate) fn sessions(&self) -> &Arc<Sessions> {
        &self.shared.sessions
    }

    /// Goes on with something after its call was answered.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.background.spawn(task);
    }

    /// Returns when nothing is left to be done for calls that were answered.
    #[cfg(test)]
    pub(crate) async fn quiet(&self) {
        self.shared.background.close();
        self.shared.background.wait().await;
    }
}
