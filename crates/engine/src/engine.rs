//! The engine as front ends use it: opening, closing, listing.

use std::{sync::Arc, time::Duration};

use sandbox::{Backend, Capabilities, Defaults, Result, SandboxState};
use store::Store;
use tokio::{sync::oneshot, time::timeout};
use tokio_util::sync::DropGuard;

use crate::{
    EngineConfig, Principal, SandboxFilter, SandboxRef, SandboxView, Scope, adopt,
    clock::{Clock, SystemClock},
    core::Core,
    driver::Command,
    network,
};

/// How long closing waits for work in progress, such as a stop, before it leaves it to the next daemon.
const CLOSE_WITHIN: Duration = Duration::from_secs(15);

/// Decides what happens to sandboxes. Clones share everything; when the last one is dropped the engine's tasks end, as
/// if the daemon had died, and the sandboxes live on.
#[derive(Debug, Clone)]
pub struct Engine {
    core: Arc<Core>,
    _ends_tasks: Option<Arc<DropGuard>>,
}

impl Engine {
    /// Probes the back end and begins to adopt the sandboxes of an earlier daemon; see [`Engine::settled`].
    #[crate::boxed]
    pub async fn open(config: EngineConfig, store: Store, backend: Arc<dyn Backend>) -> Result<Self> {
        Self::open_all(config, store, vec![backend], Arc::new(SystemClock)).await
    }

    /// Like [`Engine::open`], with another clock.
    #[crate::boxed]
    pub async fn open_with_clock(
        config: EngineConfig,
        store: Store,
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::open_all(config, store, vec![backend], clock).await
    }

    /// Like [`Engine::open_with_clock`], over several back ends, the default first.
    #[crate::boxed]
    pub async fn open_all(
        config: EngineConfig,
        store: Store,
        backends: Vec<Arc<dyn Backend>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let core = adopt::open(config, store, backends, clock).await?;
        network::watch(&core);
        if core.config.keeps_history {
            core.sampler.start(&core);
        }
        let ends_tasks = Arc::new(core.closing.clone().drop_guard());
        Ok(Self { core, _ends_tasks: Some(ends_tasks) })
    }

    /// For a task of the engine itself, which must not keep the engine alive.
    pub(crate) fn for_task(&self) -> Self {
        Self { core: Arc::clone(&self.core), _ends_tasks: None }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The capabilities of each back end, the default first. There is at least one.
    pub fn backends(&self) -> &[Capabilities] {
        self.core.backends.capabilities()
    }

    /// The defaults for everything that a request for a sandbox leaves out.
    pub fn defaults(&self) -> &Defaults {
        &self.core().config.defaults
    }

    /// The capabilities of the default back end.
    pub fn capabilities(&self) -> &Capabilities {
        &self.backends()[0]
    }

    /// Warnings for an operator: records that cannot be read or were missing. Their namespaces are unknown, so a caller
    /// of one namespace gets none.
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

    /// Finishes work in progress, releases every sandbox and closes the store. The sandboxes live on.
    #[crate::boxed]
    pub async fn close(&self) {
        let drivers: Vec<_> = self.core.all();
        // A sandbox still being adopted has begun nothing that the next daemon could not do.
        let begun = drivers.iter().filter(|shared| !shared.status.borrow().adopting);
        let closed = begun.map(|shared| async {
            let (reply, closed) = oneshot::channel();
            if shared.inbox.send(Command::Close { reply }).await.is_ok() {
                drop(closed.await);
            }
        });
        let is_late = timeout(CLOSE_WITHIN, futures_util::future::join_all(closed)).await.is_err();
        if is_late {
            tracing::warn!("closing no longer waits for work in progress");
        }
        // Nobody would end them until the next daemon starts.
        self.core.volumes.in_use.close_all().await;
        self.core.closing.cancel();
        self.core.drivers.close();
        self.core.drivers.wait().await;
        for shared in drivers {
            let (life, state) = {
                let status = shared.status.borrow();
                (status.life.clone(), status.record.state)
            };
            if let Some(life) = life {
                // A sandbox held for a copy must not stand still until the next daemon starts.
                if is_late && state == SandboxState::Running {
                    life.instance.resume().await.unwrap_or_else(|error| {
                        tracing::warn!(sandbox = %shared.label(), %error, "it may remain paused");
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

    /// Returns when every sandbox of an earlier daemon is adopted and leftovers are swept; until then they are listed
    /// as recorded, and requests to one of them wait for it.
    #[crate::boxed]
    pub async fn settled(&self) {
        self.core.settled().await;
    }

    /// Whether nothing is alive and no work is in progress.
    #[crate::boxed]
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

    #[crate::boxed]
    pub async fn sandbox(&self, who: &Principal, which: &SandboxRef) -> Result<SandboxView> {
        let shared = self.core.find(who, which)?;
        let mut view = shared.view();
        let life = shared.status.borrow().life.clone();
        if let Some(life) = life {
            view.warnings.extend(life.instance.remarks().await);
        }
        Ok(view)
    }

    /// Oldest first.
    #[crate::boxed]
    pub async fn sandboxes(&self, who: &Principal, filter: &SandboxFilter) -> Result<Vec<SandboxView>> {
        self.core.keys.admit(who, self.core.clock.now())?;
        let visible = self
            .core
            .all()
            .into_iter()
            .filter(|shared| who.sees_sandbox(&shared.subject, shared.owner.as_ref()));
        Ok(visible.map(|shared| shared.view()).filter(|view| filter.matches(view)).collect())
    }
}
