//! Takes over from an earlier daemon: living sandboxes are adopted, lost ones are recorded, leftovers are swept.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use guest_protocol::{ExecStatus, ExecSummary, Request, Response};
use sandbox::{
    Backend, BackendError, Capability, ErrorKind, EventKind, ExecState, Instance, KillReason, OnExpiry,
    Result, SandboxId, SandboxState, SnapshotId, Thing,
};
use store::{ExecRecord, Ledger, SandboxRecord, Store};
use tokio_util::sync::CancellationToken;

use crate::{
    EngineConfig, Entry, EntryBody, ExitEntry, Force,
    backends::Backends,
    build,
    clerk::Clerk,
    clock::Clock,
    core::{Core, until},
    disk::may_block,
    driver::{Driver, Enrolled},
    error,
    events::{EventLog, Subject},
    images,
    keys::Keys,
    live::LiveExec,
    metrics::Metrics,
    packages,
    pump::ExecTask,
    recover::{CorruptRecords, recover},
    replace, secrets,
    sessions::Shares,
    shared::{Life, Shared},
    snapshots,
    ssh_keys::SshKeys,
    volumes,
};

/// Sandboxes adopted at the same time. A silent guest occupies one slot for its whole deadline.
const ADOPT_AT_ONCE: usize = 64;
/// Pause before a silent back end is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Times a guest is asked for its execs before they count as lost.
const MAX_ASKS: u32 = 10;

const ENDED_AWAY: &str = "it exited while the daemon was not running";
const GIVEN_UP: &str = "it was removed by force while its back end did not respond";
const START_CUT_SHORT: &str = "the daemon stopped while it was starting";

pub(crate) async fn open(
    config: EngineConfig,
    store: Store,
    backends: Vec<Arc<dyn Backend>>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<Core>> {
    let backends = Backends::probe(backends).await?;
    let recovery = recover(&config.home, &store, clock.now(), CorruptRecords::Leave).await?;
    let mut rows = store.sandboxes(None).await.map_err(error::from_store)?;
    let replaced = replace::settle(&store, &mut rows.records, was_told).await;
    for row in &rows.corrupt {
        tracing::error!(sandbox = row.id, reason = row.reason, "a record cannot be read");
    }
    let keys = Keys::load(&store).await.map_err(error::from_store)?;
    let ssh_keys = SshKeys::load(&store).await.map_err(error::from_store)?;
    let shares = Shares::load(&store).await.map_err(error::from_store)?;
    let metrics = Arc::new(Metrics::new());
    metrics.show_zeros();
    let events = EventLog::start(store.clone(), metrics).await.map_err(error::from_store)?;
    // Nobody may remove a sandbox whose record or manifest is damaged.
    let mut unreadable: Vec<SandboxId> = rows.corrupt.iter().filter_map(|row| row.id.parse().ok()).collect();
    unreadable.extend(recovery.unknown_ids());
    let closing = CancellationToken::new();
    let core = Core::new(
        config,
        store,
        backends,
        clock,
        events,
        keys,
        ssh_keys,
        shares,
        rows.corrupt,
        recovery,
        closing,
    );
    let core = Arc::new(core);
    // At once, so that a list shows all sandboxes as recorded.
    let known = |record: &SandboxRecord| was_told(record) && !replaced.contains(&record.id);
    let recorded =
        rows.records.into_iter().map(|record| RecordedSandbox::new(&core, known(&record), record)).collect();
    packages::take_up(&core).await;
    volumes::take_up(&core).await?;
    let leftovers = snapshots::take_up(&core).await?;
    may_block(|| build::sweep(&core.config.home));
    let taking_up = take_up_all(Arc::clone(&core), recorded, unreadable, leftovers);
    let closing = core.closing.clone();
    // In the background: a silent guest delays only requests for its own sandbox.
    core.drivers.spawn(async move {
        until(&closing, taking_up).await;
    });
    Ok(core)
}

/// A sandbox in the records of an earlier daemon.
enum RecordedSandbox {
    Known(Enrolled),
    /// A create that was cut short before anybody was told, or a replaced sandbox: nobody sees it.
    Leftover(Box<SandboxRecord>),
}

impl RecordedSandbox {
    fn new(core: &Arc<Core>, is_known: bool, record: SandboxRecord) -> Self {
        if is_known { Self::Known(Driver::enrol(core, record)) } else { Self::Leftover(Box::new(record)) }
    }

    fn is_at_rest(&self) -> bool {
        match self {
            Self::Known(enrolled) => !enrolled.shared().state().is_live(),
            Self::Leftover(_) => false,
        }
    }
}

/// Whether anybody knows of it. A build ends with its daemon, whatever its sandboxes do.
fn was_told(record: &SandboxRecord) -> bool {
    let was_born = record.state != SandboxState::Creating || record.started_at.is_some();
    was_born && !build::is_of_builds(&record.spec)
}

async fn take_up_all(
    core: Arc<Core>,
    mut recorded: Vec<RecordedSandbox>,
    unreadable: Vec<SandboxId>,
    leftovers: Vec<SnapshotId>,
) {
    // Those without an instance first: they wait for nobody.
    recorded.sort_by_key(|recorded| !recorded.is_at_rest());
    stream::iter(recorded).for_each_concurrent(ADOPT_AT_ONCE, |recorded| take_up(&core, recorded)).await;
    sweep(&core, &unreadable).await;
    snapshots::sweep(&core, leftovers).await;
    core.is_settled.send_replace(true);
    images::open_behind(&core).await;
}

/// Removes host resources that belong to one of our ids and were not adopted.
async fn sweep(core: &Core, unreadable: &[SandboxId]) {
    if !core.recovery.is_complete {
        // The database does not know everything in the home, so an unknown id is not a leftover.
        return;
    }
    // No instance is made until this is done, so every unknown id is a leftover.
    let _nothing_is_made = core.making.write().await;
    let all = core.all();
    let ids = |live_only: bool| -> Vec<SandboxId> {
        let wanted = all.iter().filter(|shared| !live_only || shared.state().is_live());
        let wanted = wanted.map(|shared| shared.subject.id.clone()).chain(unreadable.iter().cloned());
        // Instances that show volumes to callers who did not wait for us.
        wanted.chain(core.volumes.in_use.ids()).collect()
    };
    // The default last: it removes the directories of all unknown sandboxes, and others may still run in theirs.
    for backend in core.backends.all().iter().rev() {
        match backend.sweep(&ids(true), &ids(false)).await {
            Ok(swept) if swept.is_empty() => {}
            Ok(swept) => tracing::info!(n_swept = swept.len(), "swept what earlier sandboxes left"),
            Err(error) => tracing::warn!(%error, "could not sweep what earlier sandboxes left"),
        }
    }
}

async fn take_up(core: &Arc<Core>, recorded: RecordedSandbox) {
    let mut enrolled = match recorded {
        RecordedSandbox::Known(enrolled) => enrolled,
        RecordedSandbox::Leftover(record) => return discard(core, *record).await,
    };
    match enrolled.record().state {
        SandboxState::Stopped | SandboxState::Failed => return rest(core, enrolled).await,
        SandboxState::Creating | SandboxState::Running | SandboxState::Paused | SandboxState::Stopping => {}
    }
    // First: an edge must not pass on what it serves without them.
    secrets::hold_changed(core, enrolled.record()).await;
    match core.backends.adopt(&enrolled.record().plan).await {
        Err(error) if proves_nothing(&error) => ask_again_behind(core, enrolled, error),
        found => found_again(core, enrolled, found).await,
    }
}

/// Whether it may still be alive: a back end that does not answer knows nothing of its sandboxes.
fn proves_nothing(error: &BackendError) -> bool {
    use BackendError as E;
    matches!(error, E::Unavailable { .. } | E::TimedOut { .. } | E::Exhausted { .. })
}

/// Asks until the back end answers, in the background. Until then the sandbox is as recorded, and unreachable.
fn ask_again_behind(core: &Arc<Core>, mut enrolled: Enrolled, error: BackendError) {
    let (task_core, closing) = (Arc::clone(core), core.closing.clone());
    let asking = async move {
        let (mut pause, mut why) = (FIRST_PAUSE, error);
        let found = loop {
            tracing::warn!(sandbox = %enrolled.record().id, error = %why, "its back end does not answer; will ask again");
            enrolled.shared().status.send_modify(|status| status.unreachable = Some(why.to_string()));
            task_core.feed.sandbox(&enrolled.shared().subject.id);
            let shared = Arc::clone(enrolled.shared());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shared.given_up.notified() => {
                    settle(&task_core, enrolled.record(), SandboxState::Stopped, GIVEN_UP).await;
                    return rest(&task_core, enrolled).await;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            match task_core.backends.adopt(&enrolled.record().plan).await {
                Err(error) if proves_nothing(&error) => why = error,
                found => break found,
            }
        };
        enrolled.shared().status.send_modify(|status| status.unreachable = None);
        found_again(&task_core, enrolled, found).await;
    };
    core.drivers.spawn(async move {
        until(&closing, asking).await;
    });
}

async fn found_again(
    core: &Arc<Core>,
    mut enrolled: Enrolled,
    found: Result<Option<Box<dyn Instance>>, BackendError>,
) {
    let record = enrolled.record();
    let gone = match record.state {
        SandboxState::Creating => START_CUT_SHORT,
        SandboxState::Stopping => "",
        _ => ENDED_AWAY,
    };
    match found {
        // The caller was not told that the stop failed, so it continues; nobody was told of the start at all.
        Ok(Some(instance)) if matches!(record.state, SandboxState::Stopping | SandboxState::Creating) => {
            match instance.stop().await {
                Ok(()) => settle(core, record, SandboxState::Stopped, gone).await,
                Err(error) => {
                    let why = format!("it could not be stopped: {error}");
                    settle(core, record, SandboxState::Failed, &why).await;
                }
            }
        }
        Ok(Some(instance)) => return welcome(core, enrolled, instance).await,
        Ok(None) => settle(core, record, SandboxState::Stopped, gone).await,
        Err(error) => {
            // Its leftovers are swept next, so it can be started again from its files.
            let why = format!("it could not be found again: {error}");
            settle(core, record, SandboxState::Stopped, &why).await;
        }
    }
    rest(core, enrolled).await;
}

/// Hands a living sandbox to a driver, and its execs to tasks that follow them.
async fn welcome(core: &Arc<Core>, mut enrolled: Enrolled, instance: Box<dyn Instance>) {
    let record = enrolled.record();
    if record.state == SandboxState::Paused
        && let Err(error) = instance.pause().await
    {
        // The record is written before the freeze, so it may never have been frozen.
        tracing::warn!(sandbox = %record.id, %error, "could not make sure that it is paused");
    }
    if record.state == SandboxState::Running
        && core.backends.has(&record.plan, Capability::Pause)
        && let Err(error) = instance.resume().await
    {
        // The daemon may have died while it held the workload still for a copy.
        tracing::warn!(sandbox = %record.id, %error, "could not make sure that it is not paused");
    }
    // Registered before anyone may ask for them.
    let execs = unfinished(core, enrolled.shared()).await;
    let shared = enrolled.begin(Some(instance));
    let Some(life) = shared.status.borrow().life.clone() else { return };
    let task = resume_execs(Arc::clone(core), Arc::clone(&shared), Arc::clone(&life), execs);
    let closing = core.closing.clone();
    life.pumps.spawn(async move {
        until(&closing, task).await;
    });
    core.emit(&shared.subject, &shared.name(), EventKind::SandboxAdopted, None, "").await;
}

/// A stopped sandbox without an instance: only its execs may need an end.
async fn rest(core: &Arc<Core>, enrolled: Enrolled) {
    let shared = Arc::clone(enrolled.shared());
    for exec in unfinished(core, &shared).await {
        close_by_ledger(core, &shared, &exec).await;
    }
    enrolled.begin(None);
}

/// Removes everything of it.
async fn discard(core: &Arc<Core>, mut record: SandboxRecord) {
    let subject = subject_of(&record);
    let removed = async {
        let label = sandbox::Subject::new(Thing::Sandbox, record.id.as_str());
        core.remove_files(&record.plan, &label, Force::No).await?;
        core.store.remove_sandbox(record.id.clone()).await.map_err(error::from_store)?;
        if was_told(&record) {
            core.emit(&subject, &record.name, EventKind::SandboxRemoved, None, "").await;
        }
        Ok::<_, sandbox::Error>(())
    };
    if let Err(error) = removed.await {
        tracing::warn!(sandbox = %record.id, error = &error as &dyn std::error::Error, "could not remove its remains");
        let why = format!("it was being removed, and that failed: {error}");
        settle(core, &mut record, SandboxState::Failed, &why).await;
        rest(core, Driver::enrol(core, record)).await;
    }
}

async fn settle(core: &Core, record: &mut SandboxRecord, state: SandboxState, reason: &str) {
    secrets::release(core, record);
    record.state = state;
    if !reason.is_empty() {
        record.reason = Some(reason.to_owned());
    }
    record.stopped_at = Some(core.clock.now());
    if record.lifetime.on_expiry == OnExpiry::Stop {
        record.expires_at = None;
    }
    if let Err(error) = core.store.update_sandbox(record.clone()).await {
        tracing::error!(sandbox = %record.id, %error, "could not record a state");
    }
    let kind = match state {
        SandboxState::Failed => EventKind::SandboxFailed,
        _ => EventKind::SandboxStopped,
    };
    core.emit(&subject_of(record), &record.name, kind, None, reason).await;
}

fn subject_of(record: &SandboxRecord) -> Subject {
    Subject { id: record.id.clone(), namespace: record.namespace.clone() }
}

/// Execs without an end in the store. They count as live from here on.
async fn unfinished(core: &Core, shared: &Shared) -> Vec<Arc<LiveExec>> {
    let records = match core.store.unfinished_execs(shared.subject.id.clone()).await {
        Ok(records) => records,
        Err(error) => {
            tracing::error!(sandbox = %shared.subject.id, %error, "the records of its execs cannot be read");
            return Vec::new();
        }
    };
    records.into_iter().filter_map(|record| open_exec(shared, record)).collect()
}

fn open_exec(shared: &Shared, record: ExecRecord) -> Option<Arc<LiveExec>> {
    let exec = Arc::new(LiveExec::new(record));
    let open = || shared.ledger().and_then(|ledger| ledger.writer(&exec.id).map_err(error::from_ledger));
    let opened = may_block(open);
    match opened {
        Ok(writer) => exec.open(writer),
        Err(error) => {
            tracing::error!(exec = %exec.id, error = &error as &dyn std::error::Error, "no ledger for an exec");
            return None;
        }
    }
    shared.execs.insert(Arc::clone(&exec));
    Some(exec)
}

/// Asks the guest for its execs, and follows each from where the ledger ends.
async fn resume_execs(core: Arc<Core>, shared: Arc<Shared>, life: Arc<Life>, execs: Vec<Arc<LiveExec>>) {
    // A guest that does not answer counts as one that knows nothing: its execs are lost.
    let known = ask_for_execs(&core, &life).await.unwrap_or_default();
    let mut done_but_open: Vec<_> = known.keys().cloned().collect();
    for exec in execs {
        done_but_open.retain(|id| id != exec.id.as_str());
        let task = ExecTask::new(&core, &shared, &life, &exec);
        match known.get(exec.id.as_str()) {
            Some(summary) => {
                if summary.status != ExecStatus::Running {
                    take_end_from_ledger(&core, &shared, &exec).await;
                }
                life.pumps.spawn(task.run_again());
            }
            None => {
                take_end_from_ledger(&core, &shared, &exec).await;
                life.pumps.spawn(task.run_lost());
            }
        }
    }
    for id in done_but_open {
        reopen(&core, &shared, &life, &id).await;
    }
    shared.is_settled.send_replace(true);
}

/// An exec with a known end whose output is still held open by a process inside.
async fn reopen(core: &Arc<Core>, shared: &Arc<Shared>, life: &Arc<Life>, id: &str) {
    let Ok(id) = id.parse() else { return };
    match core.store.exec(id).await {
        Ok(Some(record)) if record.sandbox == shared.subject.id && shared.execs.get(&record.id).is_none() => {
            if let Some(exec) = open_exec(shared, record) {
                life.pumps.spawn(ExecTask::new(core, shared, life, &exec).run_again());
            }
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the record of an exec cannot be read"),
    }
}

async fn ask_for_execs(core: &Core, life: &Life) -> Option<HashMap<String, ExecSummary>> {
    let mut pause = Duration::from_millis(10);
    for _ in 0..MAX_ASKS {
        match life.client.call(&Request::ExecList).await {
            Ok(Response::Execs { execs }) => {
                return Some(execs.into_iter().map(|summary| (summary.id.clone(), summary)).collect());
            }
            Ok(_) => tracing::warn!(sandbox = %life.client.label(), "the guest does not report its execs"),
            Err(error) => {
                tracing::warn!(sandbox = %life.client.label(), %error, "the guest does not report its execs");
            }
        }
        tokio::select! {
            () = life.over.cancelled() => return None,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(core.config.deadlines.retry),
        }
    }
    None
}

/// The daemon died after the end was in the ledger and before it was in the store.
async fn take_end_from_ledger(core: &Core, shared: &Shared, exec: &LiveExec) {
    let entry = may_block(|| shared.ledger().and_then(|ledger| last_end(&ledger, exec)));
    let (entry, at_ms) = match entry {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => {
            return tracing::warn!(exec = %exec.id, error = &error as &dyn std::error::Error, "the ledger cannot be read");
        }
    };
    let record = exec.change(|record| {
        record.state = ExecState::Done;
        record.outcome = Some(entry.outcome);
        record.ended_at = jiff::Timestamp::from_millisecond(at_ms).ok();
        record.last_entry = Some(exec.last_number());
        record.n_lost = exec.n_lost();
    });
    if let Err(error) = core.store.update_exec(record).await {
        tracing::warn!(exec = %exec.id, %error, "could not record how an exec ended");
    }
}

fn last_end(ledger: &Ledger, exec: &LiveExec) -> Result<Option<(ExitEntry, i64)>> {
    let mut reader = ledger.reader(&exec.id, 1).map_err(error::from_ledger)?;
    let mut end = None;
    loop {
        match reader.next() {
            Ok(Some(item)) => {
                let Entry { at_ms, body: EntryBody::Exited(exit), .. } = item.into() else { continue };
                let unreadable = || {
                    let message = format!("cannot read the end of exec {}", exec.id);
                    sandbox::Error::new(ErrorKind::Internal, message)
                };
                end = Some((exit.ok_or_else(unreadable)?, at_ms));
            }
            Ok(None) => return Ok(end),
            // Reported once for each damaged part; the rest can be read.
            Err(store::LedgerError::Damaged { .. }) => {}
            Err(error) => return Err(error::from_ledger(error)),
        }
    }
}

/// Ends an exec of a sandbox that has no instance any more.
async fn close_by_ledger(core: &Arc<Core>, shared: &Arc<Shared>, exec: &Arc<LiveExec>) {
    take_end_from_ledger(core, shared, exec).await;
    let mut clerk = Clerk::new(core, shared, exec, &CancellationToken::new());
    clerk.lose(KillReason::SandboxLost).await;
}
