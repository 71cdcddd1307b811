//! The engine as front ends hold it: opening, closing, looking around.

use std::{sync::Arc, time::Duration};

use sandbox::{Backend, Capabilities, Result, SandboxState};
use store::Store;
use tokio::{sync::oneshot, time::timeout};
use tokio_util::sync::DropGuard;

use crate::{
    EngineConfig, Principal, SandboxFilter, SandboxRef, SandboxView, Scope, adopt,
    clock::{Clock, SystemClock},
    core::Core,
    driver::Command,
};

/// How long closing waits for work that is under way, such as a stop, before it leaves it to the next daemon.
const CLOSE_WITHIN: Duration = Duration::from_secs(15);

/// Decides what happens to sandboxes. Clones share everything; when the last one goes the engine's tasks end, as if the
/// daemon had died, and the sandboxes live on.
#[derive(Debug, Clone)]
pub struct Engine {
    core: Arc<Core>,
    _ends_tasks: Option<Arc<DropGuard>>,
}

impl Engine {
    /// Finds out what works here and begins to take up the sandboxes of an earlier daemon; see [`Engine::settled`].
    pub async fn open(config: EngineConfig, store: Store, backend: Arc<dyn Backend>) -> Result<Self> {
        Self::open_all(config, store, vec![backend], Arc::new(SystemClock)).await
    }

    /// As [`Engine::open`], with time under someone else's hand.
    pub async fn open_with_clock(
        config: EngineConfig,
        store: Store,
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::open_all(config, store, vec![backend], clock).await
    }

    /// As [`Engine::open_with_clock`], over several back ends, the default first.
    pub async fn open_all(
        config: EngineConfig,
        store: Store,
        backends: Vec<Arc<dyn Backend>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let core = adopt::open(config, store, backends, clock).await?;
        let ends_tasks = Arc::new(core.closing.clone().drop_guard());
        Ok(Self { core, _ends_tasks: Some(ends_tasks) })
    }

    /// For a task of the engine itself, which must not be what keeps the engine going.
    pub(crate) fn for_task(&self) -> Self {
        Self { core: Arc::clone(&self.core), _ends_tasks: None }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// What each back end can do here, the default first. There is at least one.
    pub fn backends(&self) -> &[Capabilities] {
        self.core.backends.capabilities()
    }

    /// What the default back end can do here.
    pub fn capabilities(&self) -> &Capabilities {
        &self.backends()[0]
    }

    /// What an operator should know: records that cannot be read or were missing. Nobody can tell in which namespace those are, so who
    /// may see only one is not told.
    pub fn warnings(&self, who: &Principal) -> Vec<String> {
        if who.scope != Scope::All {
            return Vec::new();
        }
        let corrupt = self.core.corrupt();
        let volumes = self.core.volumes.corrupt();
        let all = corrupt.iter().chain(volumes.iter());
        let unreadable = all.map(|row| format!("cannot read the record of {}: {}", row.id, row.reason));
        unreadable.chain(self.core.recovery.warnings()).collect()
    }

    /// Finishes what is under way, lets go of every sandbox and closes the store. The sandboxes live on.
    pub async fn close(&self) {
        let drivers: Vec<_> = self.core.all();
        // One that is still being taken up has begun nothing that a next daemon could not do.
        let begun = drivers.iter().filter(|shared| !shared.status.borrow().adopting);
        let closed = begun.map(|shared| async {
            let (reply, closed) = oneshot::channel();
            if shared.inbox.send(Command::Close { reply }).await.is_ok() {
                drop(closed.await);
            }
        });
        let is_late = timeout(CLOSE_WITHIN, futures_util::future::join_all(closed)).await.is_err();
        if is_late {
            tracing::warn!("closing does not wait any longer for work under way");
        }
        // Nobody would end them until the next daemon comes.
        self.core.volumes.places.close_all().await;
        self.core.closing.cancel();
        self.core.drivers.close();
        self.core.drivers.wait().await;
        for shared in drivers {
            let (life, state) = {
                let status = shared.status.borrow();
                (status.life.clone(), status.record.state)
            };
            if let Some(life) = life {
                // One that was held for a copy is not to stand still until the next daemon comes.
                if is_late && state == SandboxState::Running {
                    life.instance.resume().await.unwrap_or_else(|error| {
                        tracing::warn!(sandbox = %shared.label(), %error, "it may stand still");
                    });
                }
                life.pumps.close();
                life.pumps.wait().await;
            }
        }
        self.core.events.flush().await;
        self.core.audit.flush().await;
        self.core.store.close().await;
    }

    /// Returns when every sandbox of an earlier daemon is taken up and what was left of others is swept; until then they
    /// are listed as they were recorded, and requests to one of them wait for it.
    pub async fn settled(&self) {
        self.core.settled().await;
    }

    /// Whether nothing is alive and nothing is being done.
    pub async fn is_idle(&self) -> bool {
        let is_at_rest = |shared: &Arc<crate::shared::Shared>| {
            let status = shared.status.borrow();
            !status.busy && !status.record.state.is_live()
        };
        *self.core.is_settled.borrow()
            && !self.core.has_unrecorded()
            && !self.core.volumes.is_at_work()
            && self.core.all().iter().all(is_at_rest)
    }

    pub async fn sandbox(&self, who: &Principal, which: &SandboxRef) -> Result<SandboxView> {
        Ok(self.core.find(who, which)?.view())
    }

    /// Oldest first.
    pub async fn sandboxes(&self, who: &Principal, filter: &SandboxFilter) -> Result<Vec<SandboxView>> {
        self.core.keys.admit(who, self.core.clock.now())?;
        let visible = self.core.all().into_iter().filter(|shared| who.sees(&shared.subject.namespace));
        Ok(visible.map(|shared| shared.view()).filter(|view| filter.matches(view)).collect())
    }
}
