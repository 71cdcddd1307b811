//! MCP: the surface that agents use. Names and parameters follow microsandbox-mcp, and go beyond it in the same style.
//!
//! A tool is a function from typed arguments to a typed answer (`tool`, `tools/`); a surface (`surface`) is a choice of
//! tools and the form of their answers; what every call shares is in `call` (who asks, under which settings),
//! `arguments` (validation) and `envelope` (one shape for every answer and failure). Only `protocol/` knows the MCP
//! library, its transports and its sessions.

/// A table of tools of one set: name, title, what it does to the world, its function, and `core` or `always` where it
/// is shown in more than its set; then what a client reads of it.
macro_rules! tools {
    ($set:ident; $($name:literal, $title:literal, $hints:ident, $run:path $(, $shown:ident)*: $description:expr;)+) => {
        vec![$(
            $crate::mcp::tool::Tool::new(
                $crate::mcp::Toolset::$set,
                $name,
                $title,
                $description,
                $crate::mcp::tool::Hints::$hints,
                $run,
            )
            $(.$shown())*
        ),+]
    };
}

mod aliases;
mod arguments;
mod call;
mod complete;
mod envelope;
mod foreign;
mod instructions;
mod located;
mod mount_words;
mod next_call;
mod octets;
mod prompts;
mod protocol;
mod resources;
mod schema;
mod settings;
mod surface;
#[cfg(test)]
mod testing;
mod tool;
mod tools;
mod toolset;
mod turns;
mod words;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use engine::Engine;
use futures_util::future::BoxFuture;
use tokio_util::task::TaskTracker;

pub use self::{
    protocol::{
        Dialect, Greeting, NATIVE, SETTINGS_HEADER, UPGRADE_PROTOCOL, conformance_router, http_path,
        named_router, plain_router, router, stdio_path,
    },
    settings::Settings,
    toolset::{Toolset, Toolsets},
};
// Names that nearly every tool needs, also those of dialects.
pub(crate) use self::{
    call::Call,
    envelope::{Answer, Failure, Part, ToolResult, WordedFailure},
    octets::from_base64,
    schema::{JsonObject, Nullable},
    tool::{Hints, Tool},
};
use self::{call::Progress, envelope::Truncated, schema::Native};
use self::{tools::Sessions, turns::Turns};
// Names that dialects are made of.
pub(crate) use self::{
    envelope::Envelope,
    prompts::{Prompt, Values},
    surface::{Form, Habits, Manner, Reply, Surface},
    tools::{Followed, all as native_tools, create, follow_package_job, once, read_up_to, while_running},
    words::KnownTools,
};
pub use crate::hostfs::{HostPolicy, HostRoot};
use crate::{
    hostfs,
    links::{LinkSettings, Links},
    output,
};

/// How long a daemon that stops waits for work that goes on after its call was answered.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// Whether a tool of the native surface only looks, so that calling it twice does no more than calling it once. An
/// unknown one does not.
pub fn is_read_only(tool: &str) -> bool {
    Surface::native().find(tool).is_some_and(|tool| tool.hints.read_only)
}

/// The state that all MCP clients of one daemon share. Clones are the same.
#[derive(Debug, Clone)]
pub struct Mcp {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Engine,
    links: Links,
    /// For clients that bring none of their own, which is everyone but those on stdio.
    settings: Arc<Settings>,
    /// The work that goes on after a call was answered, such as stopping a sandbox that was started for one command.
    background: TaskTracker,
    sessions: Arc<Sessions>,
    turns: Arc<Turns>,
    creations: engine::Turns<String>,
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
        let links = Links::new(engine.clone(), LinkSettings::default());
        Self::with_links(engine, settings, links)
    }

    /// With links as the operator wants them.
    pub fn with_links(engine: Engine, settings: Settings, links: Links) -> Self {
        let (settings, background) = (Arc::new(settings), TaskTracker::new());
        let (sessions, turns) = (Arc::default(), Arc::default());
        let creations = engine::Turns::default();
        Self { shared: Arc::new(Shared { engine, links, settings, background, sessions, turns, creations }) }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    pub(crate) fn links(&self) -> &Links {
        &self.shared.links
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

    /// Creations of sandboxes that count against a limit of a dialect, by user.
    pub(crate) fn creations(&self) -> &engine::Turns<String> {
        &self.shared.creations
    }

    /// Exec sessions whose stdin is open.
    pub(crate) fn sessions(&self) -> &Arc<Sessions> {
        &self.shared.sessions
    }

    /// Goes on with something after its call was answered.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Boxed, so that tokio's task is compiled once and not for each future.
        let task: BoxFuture<'static, ()> = Box::pin(task);
        self.shared.background.spawn(task);
    }

    /// Waits for what goes on after its call was answered, though not for ever. For a daemon that answers no calls any
    /// more.
    pub async fn close(&self) {
        self.shared.background.close();
        if tokio::time::timeout(CLOSE_GRACE, self.shared.background.wait()).await.is_err() {
            tracing::warn!(n = self.shared.background.len(), "what MCP clients left to be done was given up");
        }
    }

    /// Returns when nothing is left to be done for calls that were answered.
    #[cfg(test)]
    pub(crate) async fn quiet(&self) {
        self.shared.background.close();
        self.shared.background.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::{is_read_only, testing::Client};

    #[tokio::test]
    async fn closing_waits_for_what_was_left_to_be_done() {
        let client = Client::new().await;
        let mcp = &client.call.mcp;
        let (go_on, may_go_on) = oneshot::channel::<()>();
        let is_done = std::sync::Arc::new(AtomicBool::new(false));
        let done = std::sync::Arc::clone(&is_done);
        mcp.spawn(async move {
            may_go_on.await.ok();
            done.store(true, Ordering::SeqCst);
        });
        let mut closing = Box::pin(mcp.close());
        assert!((&mut closing).now_or_never().is_none());
        go_on.send(()).unwrap();
        closing.await;
        assert!(is_done.load(Ordering::SeqCst));
    }

    #[test]
    fn tools_that_look_are_told_from_those_that_act() {
        assert!(is_read_only("sandbox_list") && is_read_only("sandbox_exec_poll"));
        assert!(!is_read_only("sandbox_exec") && !is_read_only("sandbox_remove") && !is_read_only("nothing"));
    }
}
