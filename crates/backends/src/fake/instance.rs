//! One simulated place.

use std::sync::{Arc, atomic::Ordering};

use async_trait::async_trait;
use sandbox::{
    BackendError, BackendKind, Enforcement, GuestStream, Instance, Isolation, LimitKind, LimitStatement,
    SandboxId, SandboxPlan, Usage, Walls,
};

use super::{
    guest::{Guest, lock},
    hostile,
    switches::Switches,
};

/// What a connection holds on its way, as a Unix socket would.
const CONNECTION_BYTES: usize = 64 * 1024;
/// Memory that a simulated process is said to use.
pub(super) const PROCESS_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Clone)]
pub(super) struct FakeInstance {
    id: SandboxId,
    guest: Arc<Guest>,
    isolation: Arc<Isolation>,
    switches: Arc<Switches>,
}

impl FakeInstance {
    pub(super) fn new(plan: &SandboxPlan, guest: Arc<Guest>, switches: Arc<Switches>) -> Self {
        Self { id: plan.id.clone(), guest, isolation: Arc::new(isolation(plan)), switches }
    }

    pub(super) fn is_live(&self) -> bool {
        !self.guest.is_ended()
    }

    pub(super) fn is_paused(&self) -> bool {
        *self.guest.is_paused.borrow()
    }

    pub(super) fn end(&self) {
        self.guest.end();
    }

    fn check_live(&self) -> Result<(), BackendError> {
        if self.is_live() { Ok(()) } else { Err(BackendError::Gone(self.id.clone())) }
    }
}

#[async_trait]
impl Instance for FakeInstance {
    fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    async fn connect(&self) -> Result<GuestStream, BackendError> {
        self.check_live()?;
        if let Some(error) = self.switches.take_connect_failure() {
            return Err(error);
        }
        let (ours, theirs) = tokio::io::duplex(CONNECTION_BYTES);
        match self.switches.take_hostility() {
            Some(hostility) => tokio::spawn(hostile::serve(Arc::clone(&self.guest), hostility, theirs)),
            None => tokio::spawn(Arc::clone(&self.guest).serve(theirs)),
        };
        Ok(Box::new(ours))
    }

    async fn stop(&self) -> Result<(), BackendError> {
        self.end();
        Ok(())
    }

    async fn pause(&self) -> Result<(), BackendError> {
        self.check_live()?;
        self.guest.is_paused.send_replace(true);
        Ok(())
    }

    async fn resume(&self) -> Result<(), BackendError> {
        self.check_live()?;
        self.guest.is_paused.send_replace(false);
        Ok(())
    }

    async fn usage(&self) -> Result<Usage, BackendError> {
        self.check_live()?;
        let n_processes = self.guest.n_processes() as u64;
        Ok(Usage {
            memory_bytes: Some(n_processes * PROCESS_BYTES),
            memory_peak_bytes: None,
            cpu_micros: Some(0),
            pids: Some(n_processes),
            disk_bytes: Some(lock(&self.guest.files).bytes()),
            oom_kills: Some(self.guest.oom_kills.load(Ordering::SeqCst)),
        })
    }

    async fn ended(&self) {
        self.guest.ended().await;
    }
}

fn isolation(plan: &SandboxPlan) -> Isolation {
    let limits = &plan.limits;
    let statement = |limit, value| LimitStatement {
        limit,
        value,
        enforcement: Enforcement::Simulated,
        note: Some("the fake back end runs no real programs".to_owned()),
    };
    Isolation {
        backend: BackendKind::Fake,
        walls: Walls::Nothing,
        rootless: true,
        id_map: "single".to_owned(),
        namespaces: Vec::new(),
        capabilities: Vec::new(),
        no_new_privileges: true,
        seccomp: None,
        network: "none".to_owned(),
        cgroups: "none".to_owned(),
        limits: vec![
            statement(LimitKind::Memory, limits.memory.bytes()),
            statement(LimitKind::Swap, limits.swap.bytes()),
            statement(LimitKind::Cpus, u64::from(limits.cpus.millis)),
            statement(LimitKind::Pids, u64::from(limits.pids)),
            statement(LimitKind::OpenFiles, u64::from(limits.open_files)),
            statement(LimitKind::Disk, limits.disk.bytes()),
            statement(LimitKind::Tmp, limits.tmp.bytes()),
            statement(LimitKind::Shm, limits.shm.bytes()),
        ],
        warnings: vec![
            "This sandbox is simulated: nothing in it is real, and nothing isolates it.".to_owned(),
        ],
    }
}
