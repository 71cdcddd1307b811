//! The part of a sandbox that others may see while its driver owns it.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use sandbox::{
    Action, ByteSize, Error, ErrorKind, ExecState, Instance, KeyId, KillReason, Next, RequestId, Result,
    SandboxName, SandboxState, Thing,
};
use store::{Ledger, LedgerLimits, SandboxRecord};
use tokio::{
    sync::{Notify, OwnedRwLockReadGuard, RwLock, mpsc, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    SandboxView, client::GuestClient, clock::Clock, driver::Command, error, events::Subject, live::LiveExecs,
    metrics::CountedTraffic, network::NetworkLog, packages::Standing, ports::Listeners, tasks::Tasks,
    view::weaknesses,
};

/// How long a request waits for a sandbox that is being adopted from an earlier daemon.
const ADOPTED_WITHIN: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) subject: Subject,
    /// Its name in messages and events. While it is being replaced its record has a temporary one, and this stays.
    name: Mutex<SandboxName>,
    pub(crate) request_id: Option<RequestId>,
    /// The key that made it.
    pub(crate) owner: Option<KeyId>,
    /// Its share of its owner's memory quota; see `Core::claimed_memory`.
    claimed_memory: AtomicU64,
    /// Digest of the image it is made on.
    pub(crate) image_digest: Option<String>,
    /// Only the driver sends.
    pub(crate) status: watch::Sender<Status>,
    pub(crate) inbox: mpsc::Sender<Command>,
    pub(crate) execs: LiveExecs,
    pub(crate) activity: Arc<Activity>,
    /// False until the guest of an adopted sandbox has reported which execs are still open.
    pub(crate) is_settled: watch::Sender<bool>,
    /// Execs that ended since the engine opened; now and then old ones are removed.
    pub(crate) n_ended: AtomicUsize,
    /// Number of callers so far who waited for a drain; each gets a number.
    pub(crate) n_drains: AtomicU64,
    /// Held for reading by writers of files through the guest, for writing while the files are copied.
    pub(crate) still: Arc<RwLock<()>>,
    /// Notified when an exec ends.
    pub(crate) exec_ended: Notify,
    /// Somebody removes it by force although its back end does not answer.
    pub(crate) given_up: Notify,
    /// The listeners of its published ports.
    pub(crate) listeners: Listeners,
    pub(crate) network: NetworkLog,
    pub(crate) traffic: CountedTraffic,
    logs: PathBuf,
    ledger_limits: LedgerLimits,
    ledger: Mutex<Option<Ledger>>,
}

/// The current state of a sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) record: SandboxRecord,
    /// Present while a reachable instance exists.
    pub(crate) life: Option<Arc<Life>>,
    pub(crate) draining: bool,
    /// Work is in progress.
    pub(crate) busy: bool,
    /// Only its record is known: whether its instance still exists is being determined.
    pub(crate) adopting: bool,
    /// Why its back end cannot say whether its instance still exists. The record has the last known state.
    pub(crate) unreachable: Option<String>,
    /// Its record is gone; if it was never made, why.
    pub(crate) gone: Option<Gone>,
}

#[derive(Debug, Clone)]
pub(crate) enum Gone {
    Removed,
    NotMade(Error),
}

impl Shared {
    pub(crate) fn new(
        record: SandboxRecord,
        memory: ByteSize,
        inbox: mpsc::Sender<Command>,
        logs: PathBuf,
        ledger_limits: LedgerLimits,
    ) -> Self {
        let subject = Subject { id: record.id.clone(), namespace: record.namespace.clone() };
        let name = Mutex::new(record.name.clone());
        let request_id = record.spec.request_id.clone();
        let owner = record.owner.clone();
        let image_digest = record.plan.image_digest.clone();
        let activity = Arc::new(Activity::new(record.last_active_at));
        let status = Status {
            record,
            life: None,
            draining: false,
            busy: false,
            adopting: false,
            unreachable: None,
            gone: None,
        };
        Self {
            subject,
            name,
            request_id,
            owner,
            claimed_memory: AtomicU64::new(memory.bytes()),
            image_digest,
            status: watch::Sender::new(status),
            inbox,
            execs: LiveExecs::default(),
            activity,
            is_settled: watch::Sender::new(true),
            n_ended: AtomicUsize::new(0),
            n_drains: AtomicU64::new(0),
            still: Arc::default(),
            exec_ended: Notify::new(),
            given_up: Notify::new(),
            listeners: Listeners::default(),
            network: NetworkLog::default(),
            traffic: CountedTraffic::default(),
            logs,
            ledger_limits,
            ledger: Mutex::default(),
        }
    }

    /// Waits while it is being adopted from an earlier daemon, but not forever: its guest may be silent.
    pub(crate) async fn adopted(&self) -> Result<()> {
        if !self.status.borrow().adopting {
            return Ok(());
        }
        let mut status = self.status.subscribe();
        let known = status.wait_for(|status| !status.adopting || status.unreachable.is_some());
        // `self` holds the sender, so only the time can run out.
        match timeout(ADOPTED_WITHIN, known).await.map(|status| status.ok()?.unreachable.clone()) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => {
                let message = format!("cannot reach {}: {why}", self.label());
                Err(Error::new(ErrorKind::Unavailable, message)
                    .about(Thing::Sandbox, self.name().as_str())
                    .with_next(Next::Retry))
            }
            Err(_) => {
                let message = format!("{} is still being adopted from an earlier daemon", self.label());
                Err(Error::new(ErrorKind::Unavailable, message).with_next(Next::Retry))
            }
        }
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        self.status.borrow().unreachable.is_some()
    }

    /// Stops waiting for a back end that does not answer: the sandbox counts as stopped from now on.
    pub(crate) async fn give_up(&self) {
        self.given_up.notify_one();
        // `self` holds the sender, so the wait ends only with the adoption.
        drop(self.status.subscribe().wait_for(|status| !status.adopting).await);
    }

    pub(crate) fn claimed_memory(&self) -> ByteSize {
        ByteSize(self.claimed_memory.load(Ordering::Relaxed))
    }

    /// Sets the claim without a check; [`crate::core::Core::claim_memory`] checks the quota.
    pub(crate) fn claim_memory(&self, memory: ByteSize) {
        self.claimed_memory.store(memory.bytes(), Ordering::Relaxed);
    }

    /// Its name in messages and events.
    pub(crate) fn name(&self) -> SandboxName {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_name(&self, name: &SandboxName) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name.clone();
    }

    pub(crate) fn label(&self) -> sandbox::Subject {
        sandbox::Subject::new(Thing::Sandbox, self.name().as_str())
    }

    pub(crate) fn state(&self) -> SandboxState {
        self.status.borrow().record.state
    }

    /// The ledger of its execs, opened at first use: most sandboxes of a long list are never asked.
    pub(crate) fn ledger(&self) -> Result<Ledger> {
        let mut ledger = self.lock_ledger();
        if let Some(ledger) = &*ledger {
            return Ok(ledger.clone());
        }
        let opened = Ledger::open(self.logs.clone(), self.ledger_limits).map_err(error::from_ledger)?;
        Ok(ledger.insert(opened).clone())
    }

    fn lock_ledger(&self) -> MutexGuard<'_, Option<Ledger>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The instance, for an action that the state allows now. The guard counts as work until it is dropped.
    pub(crate) fn enter(&self, action: Action, clock: &Arc<dyn Clock>) -> Result<(Arc<Life>, ActivityGuard)> {
        let guard = Activity::begin(&self.activity, Arc::clone(clock));
        let status = self.status.borrow();
        if status.gone.is_some() {
            return Err(error::no_such_sandbox(self.name()));
        }
        let state = status.record.state;
        match &status.life {
            Some(life) if state.allows(action) => Ok((Arc::clone(life), guard)),
            _ => Err(error::wrong_state(&self.label(), state, action)),
        }
    }

    pub(crate) fn view(&self) -> SandboxView {
        let status = self.status.borrow().clone();
        let record = status.record;
        let n_running_execs = self.execs.count(|exec| exec.state != ExecState::Done);
        let last_active_at = self.activity.last_at().max(record.last_active_at);
        let is_idle = record.state.is_live() && n_running_execs == 0 && self.activity.n_in_flight() == 0;
        let ports = self.port_views();
        let weak = |isolation| weaknesses(isolation, &record.spec.limits);
        let of_walls = record.isolation.as_ref().map(weak).unwrap_or_default();
        let warnings = record.plan.all_warnings().cloned().chain(of_walls).collect();
        SandboxView {
            id: record.id,
            name: record.name,
            namespace: record.namespace,
            spec: record.spec,
            plan: record.plan,
            state: record.state,
            reason: status.unreachable.clone().or(record.reason),
            unreachable: status.unreachable.is_some(),
            isolation: record.isolation,
            created_at: record.created_at,
            started_at: record.started_at,
            stopped_at: record.stopped_at,
            expires_at: record.expires_at,
            lifetime: record.lifetime,
            last_active_at,
            owner: record.owner,
            n_running_execs,
            idle_since: is_idle.then_some(last_active_at),
            draining: status.draining,
            ports,
            warnings,
        }
    }
}

/// One run of a sandbox, from a start to the next stop.
#[derive(Debug)]
pub(crate) struct Life {
    /// Only the driver calls `stop`, `pause` and `resume`, one at a time; anyone may connect or read its usage.
    pub(crate) instance: Arc<dyn Instance>,
    pub(crate) client: Arc<GuestClient>,
    /// The signal that its image wants to be stopped by.
    pub(crate) stop_signal: Option<i32>,
    /// The instance has ended or is about to: nobody needs to try to reach it again.
    pub(crate) over: CancellationToken,
    /// The last wait for output is over too.
    pub(crate) abandoned: CancellationToken,
    /// Why its execs ended, if the guest could not say.
    pub(crate) end: OnceLock<KillReason>,
    /// Tasks that follow execs.
    pub(crate) pumps: Tasks,
    /// The package indexes that its plain commands reach.
    pub(crate) standing: Standing,
    /// Its network policy allows more than the instance was built for, and holds in full from the next start on.
    pub(crate) network_waits: AtomicBool,
}

impl Life {
    pub(crate) fn new(instance: Arc<dyn Instance>, client: GuestClient, stop_signal: Option<i32>) -> Self {
        Self {
            instance,
            over: client.over().clone(),
            client: Arc::new(client),
            stop_signal,
            abandoned: CancellationToken::new(),
            end: OnceLock::new(),
            pumps: Tasks::default(),
            standing: Standing::default(),
            network_waits: AtomicBool::new(false),
        }
    }

    pub(crate) fn kill_reason(&self) -> KillReason {
        self.end.get().copied().unwrap_or(KillReason::SandboxLost)
    }
}

/// When a sandbox was last used, and how many requests use it now.
#[derive(Debug)]
pub(crate) struct Activity {
    n_in_flight: AtomicUsize,
    last_ms: AtomicI64,
}

impl Activity {
    fn new(last: Timestamp) -> Self {
        Self { n_in_flight: AtomicUsize::new(0), last_ms: AtomicI64::new(last.as_millisecond()) }
    }

    pub(crate) fn begin(activity: &Arc<Self>, clock: Arc<dyn Clock>) -> ActivityGuard {
        activity.n_in_flight.fetch_add(1, Ordering::Relaxed);
        activity.touch(clock.now());
        ActivityGuard { activity: Arc::clone(activity), clock, writing: None }
    }

    pub(crate) fn touch(&self, now: Timestamp) {
        self.last_ms.fetch_max(now.as_millisecond(), Ordering::Relaxed);
    }

    pub(crate) fn n_in_flight(&self) -> usize {
        self.n_in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn last_at(&self) -> Timestamp {
        Timestamp::from_millisecond(self.last_ms.load(Ordering::Relaxed)).unwrap_or(Timestamp::MIN)
    }
}

/// Counts as work on a sandbox until it is dropped.
#[derive(Debug)]
pub(crate) struct ActivityGuard {
    activity: Arc<Activity>,
    clock: Arc<dyn Clock>,
    /// Its files are not copied while it writes.
    writing: Option<OwnedRwLockReadGuard<()>>,
}

impl ActivityGuard {
    /// Waits while the sandbox's files are being copied, and prevents a copy from then on.
    pub(crate) async fn begin_writing(&mut self, shared: &Shared) {
        self.writing = Some(Arc::clone(&shared.still).read_owned().await);
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.activity.touch(self.clock.now());
        self.activity.n_in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
