//! Slow work: making an instance, stopping, pausing, resuming, removing. Each begins by recording what is about to
//! happen and ends by recording what did.

use std::{sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use guest_protocol::Request;
use sandbox::{
    Action, BackendError, Error, EventKind, Instance, KillReason, OnExpiry, Result, SandboxPlan,
    SandboxState, Subject,
};
use store::StoreError;
use tokio::{
    sync::watch,
    task::yield_now,
    time::{Instant, timeout},
};
use tracing::{Instrument as _, Span};

use super::{Driver, Reply, capture::Capture, ending, manifest, refuse};
use crate::{
    Force, GivenSecrets,
    client::GuestClient,
    clock,
    config::MAX_STOP_GRACE,
    core::Core,
    create::check_directory,
    error, images,
    live::LiveExec,
    mounts,
    patches::Patches,
    secrets,
    shared::{Gone, Life, Shared},
    snapshots,
};

/// How long a stop waits for the last count of traffic.
const TRAFFIC_WITHIN: Duration = Duration::from_millis(200);

pub(super) struct Work {
    pub(super) kind: WorkKind,
    pub(super) future: BoxFuture<'static, Done>,
}

#[derive(Debug, Clone)]
pub(super) enum WorkKind {
    Making,
    Stopping { then: Then },
    Pausing,
    Resuming,
    Capturing,
    Removing,
}

/// The step after a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Rest,
    Start,
    Remove,
}

/// The files that an instance is made from.
pub(super) enum Files {
    /// A new directory, or why it could not be made; the patches for its files, secrets that no record has, and its
    /// first exec.
    New {
        made: Result<()>,
        patches: Option<Box<Patches>>,
        secrets: Box<GivenSecrets>,
        /// Its ledger is opened meanwhile.
        first: Option<Arc<LiveExec>>,
    },
    /// Files of an earlier run.
    Kept,
}

pub(super) enum Done {
    /// `first`: the sandbox is new, so a failure leaves nothing behind.
    Made {
        first: bool,
        instance: Result<Arc<dyn Instance>>,
    },
    /// Its init program runs, or does not.
    Begun {
        first: bool,
        result: Result<()>,
    },
    Stopped {
        then: Then,
        result: Result<()>,
    },
    Paused(Result<()>),
    Resumed(Result<()>),
    Captured(Box<Capture>),
    /// `not_made`: why it is removed, if it was never complete.
    Removed {
        not_made: Option<Error>,
        result: Result<()>,
    },
}

/// Counts what went over its network since the last sample: nobody can ask after its end.
async fn count_traffic(core: &Core, shared: &Shared, life: &Life) {
    if !life.instance.isolation().has_edge() {
        return;
    }
    if let Ok(Ok(usage)) = timeout(TRAFFIC_WITHIN, life.instance.quick_usage()).await
        && let Some(traffic) = usage.network
    {
        shared.traffic.count(&core.metrics, &traffic);
    }
}

fn deadline_after(grace: Duration) -> Instant {
    Instant::now() + grace.min(MAX_STOP_GRACE)
}

/// What a new instance gets before anything of the workload runs in it.
struct Furniture {
    certificate: Option<String>,
    patches: Option<Box<Patches>>,
    /// The working directory, if it is not one that every sandbox has.
    workdir: Option<String>,
}

impl Furniture {
    fn is_empty(&self) -> bool {
        self.certificate.is_none() && self.patches.is_none() && self.workdir.is_none()
    }
}

/// The working directory of its commands, where it may be missing: the image's, or one that was asked for.
fn uncommon_workdir(core: &Core, plan: &SandboxPlan) -> Option<String> {
    let is_common = plan.cwd == "/" || plan.cwd == core.config.defaults.cwd;
    (!is_common).then(|| plan.cwd.clone())
}

/// Makes the working directory, as container runtimes do.
async fn make_workdir(client: &GuestClient, path: String) {
    let request = Request::Mkdir { path, parents: true, mode: None };
    // Where it cannot be made, a command that starts there says so.
    if let Err(error) = client.call(&request).await {
        tracing::debug!(sandbox = %client.label(), %error, "could not make the working directory");
    }
}

/// Furnishes a new instance, or removes it again. Nobody knows it yet.
async fn furnished(
    core: &Core,
    instance: Arc<dyn Instance>,
    furniture: Furniture,
    label: Subject,
) -> Result<Arc<dyn Instance>> {
    if furniture.is_empty() {
        return Ok(instance);
    }
    let Furniture { certificate, patches, workdir } = furniture;
    let client = GuestClient::new(Arc::clone(&instance), core.config.deadlines, label);
    let furnish = async {
        if let Some(path) = workdir {
            make_workdir(&client, path).await;
        }
        if let Some(certificate) = certificate {
            secrets::trust(core, &client, &certificate).await?;
        }
        match patches {
            Some(patches) => patches.apply(core, &client).await,
            None => Ok(()),
        }
    };
    let Err(error) = furnish.await else { return Ok(instance) };
    Err(taken_back(&instance, client.label(), error).await)
}

async fn make_instance(core: &Core, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError> {
    core.backends.of(plan)?.create(plan).await
}

/// Stops an instance that nobody knows yet, and returns the reason.
async fn taken_back(instance: &Arc<dyn Instance>, label: &Subject, why: sandbox::Error) -> sandbox::Error {
    if let Err(error) = instance.stop().await {
        tracing::warn!(sandbox = %label, %error, "could not stop an abandoned instance");
    }
    why
}

impl Driver {
    pub(super) fn begin(&mut self, kind: WorkKind, future: impl Future<Output = Done> + Send + 'static) {
        self.work = Some(Work { kind, future: future.boxed() });
        self.publish();
    }

    pub(super) async fn finish(&mut self, done: Done) {
        match done {
            Done::Made { first, instance: Ok(instance) } => self.made(first, instance).await,
            Done::Begun { result: Ok(()), .. } => self.runs().await,
            Done::Begun { first, result: Err(error) } => self.not_begun(first, &error).await,
            Done::Made { first: true, instance: Err(error) } => {
                self.begin_removing(Some(error.clone()), Force::No);
            }
            Done::Made { first: false, instance: Err(error) } => self.not_started(&error).await,
            Done::Stopped { then, result } => self.stopped(then, result).await,
            Done::Paused(result) => self.paused(result).await,
            Done::Resumed(result) => self.resumed(result).await,
            Done::Captured(capture) => self.captured(*capture).await,
            Done::Removed { not_made, result } => self.removed(not_made, result).await,
        }
    }

    // ── making ──────────────────────────────────────────────────────────────────────────────────────────────────

    pub(super) async fn start(&mut self, reply: Reply<()>) {
        let before = self.record.clone();
        self.record.state = SandboxState::Creating;
        if let Err(error) = self.save().await {
            self.record = before;
            return refuse(reply, error);
        }
        self.waiting.push(reply);
        self.begin_making(Files::Kept, Span::none());
    }

    /// `outer`: the span of the request that it is for.
    pub(super) fn begin_making(&mut self, files: Files, outer: Span) {
        let first = matches!(files, Files::New { .. });
        let shared = Arc::clone(&self.shared);
        let (core, record, label) =
            (Arc::clone(&self.core), Arc::new(self.record.clone()), self.shared.label());
        let directory = core.config.sandbox_directory(&record.id);
        let span = tracing::info_span!(target: "trace", parent: &outer, "make");
        drop(outer);
        let making = async move {
            let made = async {
                let (patches, given, exec) = match files {
                    Files::New { made, patches, secrets, first } => {
                        made?;
                        (patches, Some(*secrets), first)
                    }
                    Files::Kept => {
                        check_directory(&directory, &label)?;
                        (None, None, None)
                    }
                };
                let certificate = secrets::prepare(&core, &record, given, &label).await?;
                let plan = mounts::resolve(&core, &record).await?;
                let described = async {
                    match first {
                        true => manifest::write_first(Arc::clone(&record), directory, shared, exec).await,
                        false => Ok(()),
                    }
                };
                let making = core.making.read().await;
                let backend = plan.backend.as_str();
                let span = tracing::info_span!(target: "trace", "make instance", sandbox.backend = backend);
                let instance = make_instance(&core, &plan).instrument(span);
                let (instance, described) = tokio::join!(instance, described);
                drop(making);
                let instance: Arc<dyn Instance> =
                    Arc::from(instance.map_err(|error| error::from_backend(error, &label))?);
                if let Err(error) = described {
                    return Err(taken_back(&instance, &label, error).await);
                }
                let workdir = uncommon_workdir(&core, &plan);
                furnished(&core, instance, Furniture { certificate, patches, workdir }, label).await
            };
            let instance = made.await;
            if instance.is_err() {
                secrets::release(&core, &record);
            }
            Done::Made { first, instance }
        };
        self.begin(WorkKind::Making, making.instrument(span));
    }

    /// The instance exists. Its init program is started before anyone is told.
    async fn made(&mut self, first: bool, instance: Arc<dyn Instance>) {
        self.record.isolation = Some(instance.isolation().clone());
        self.life = Some(self.new_life(instance));
        match self.record.plan.init.clone() {
            Some(init) => self.begin_init(first, &init),
            None => self.runs().await,
        }
    }

    async fn runs(&mut self) {
        // It is in the record, which the next daemon clears away as long as it does not say that the sandbox runs.
        let told = self.begin_first();
        if told.is_some() {
            // Its request goes out before this thread writes the record.
            yield_now().await;
        }
        let now = self.core.clock.now();
        let is_new = self.record.started_at.is_none();
        self.record.state = SandboxState::Running;
        self.record.reason = None;
        self.record.started_at = Some(now);
        self.record.stopped_at = None;
        self.record.last_active_at = now;
        self.record.expires_at = self.record.lifetime.ttl.map(|ttl| clock::later(now, ttl));
        self.shared.activity.touch(now);
        if let Err(error) = self.save().await {
            // Nobody was told that it runs, and no record would say so: take it back.
            let refusal = error.clone();
            let then = if is_new { Then::Remove } else { Then::Rest };
            self.reply_to_all(&Err(refusal));
            return self.begin_stopping(Some(Duration::ZERO), then, Some(error.to_string())).await;
        }
        self.publish();
        self.reply_to_all(&Ok(()));
        if is_new {
            self.core.counters.count_create();
            self.tell(EventKind::SandboxCreated, "").await;
        }
        self.tell(EventKind::SandboxStarted, "").await;
        if let Some(told) = told {
            told.send(()).unwrap_or(());
        }
    }

    pub(super) async fn not_started(&mut self, error: &sandbox::Error) {
        self.record.state = SandboxState::Stopped;
        self.record.reason = Some(format!("it could not be started: {error}"));
        self.save_if_possible().await;
        self.publish();
        self.reply_to_all(&Err(error.clone()));
        self.tell_reason(EventKind::SandboxStopped).await;
    }

    // ── stopping ────────────────────────────────────────────────────────────────────────────────────────────────

    pub(super) async fn stop(&mut self, grace: Option<Duration>, then: Then, reply: Reply<()>) {
        if self.record.state == SandboxState::Stopped {
            reply.send(Ok(())).unwrap_or(());
            return;
        }
        if let Err(error) = self.allow(Action::Stop) {
            return refuse(reply, error);
        }
        self.waiting.push(reply);
        self.begin_stopping(grace, then, None).await;
    }

    /// Asks the guest to end everything, and uses force when the grace is over.
    pub(super) async fn begin_stopping(
        &mut self,
        grace: Option<Duration>,
        then: Then,
        reason: Option<String>,
    ) {
        let grace = grace.unwrap_or(self.core.config.stop_grace);
        self.begin_ending(Some(grace), KillReason::SandboxStopped, then, reason).await;
    }

    /// The instance ended by itself: only the cleanup is left.
    pub(super) async fn instance_ended(&mut self) {
        let reason = "it exited by itself".to_owned();
        self.begin_ending(None, KillReason::SandboxLost, Then::Rest, Some(reason)).await;
    }

    async fn begin_ending(
        &mut self,
        grace: Option<Duration>,
        why: KillReason,
        then: Then,
        reason: Option<String>,
    ) {
        let was_paused = self.record.state == SandboxState::Paused;
        self.record.state = SandboxState::Stopping;
        self.record.reason = reason;
        self.idle_probe = None;
        self.save_if_possible().await;
        let (life, deadlines, label) = (self.life.clone(), self.core.config.deadlines, self.shared.label());
        let (core, shared) = (Arc::clone(&self.core), Arc::clone(&self.shared));
        self.stop_by = grace.map(|grace| watch::Sender::new(deadline_after(grace)));
        let stop_by = self.stop_by.as_ref().map(watch::Sender::subscribe);
        self.begin(WorkKind::Stopping { then }, async move {
            let result = match life {
                Some(life) => {
                    count_traffic(&core, &shared, &life).await;
                    ending::end(&life, stop_by, why, was_paused, deadlines).await
                }
                None => Ok(()),
            };
            Done::Stopped { then, result: result.map_err(|error| error::from_backend(error, &label)) }
        });
    }

    /// Moves the use of force nearer, if a stop in progress would wait longer than this.
    pub(super) fn hurry(&self, grace: Option<Duration>) {
        let Some(stop_by) = &self.stop_by else { return };
        let sooner = deadline_after(grace.unwrap_or(self.core.config.stop_grace));
        stop_by.send_if_modified(|by| {
            let is_sooner = sooner < *by;
            *by = sooner.min(*by);
            is_sooner
        });
    }

    async fn stopped(&mut self, then: Then, result: Result<()>) {
        self.stop_by = None;
        self.record.stopped_at = Some(self.core.clock.now());
        self.record.last_active_at = self.shared.activity.last_at();
        self.join_drain();
        if let Err(error) = result {
            // The instance may still exist, so its handle is kept for the removal.
            self.record.state = SandboxState::Failed;
            self.record.reason = Some(format!("it could not be stopped: {error}"));
            self.save_if_possible().await;
            self.publish();
            self.reply_to_all(&Err(error.clone()));
            return self.tell_reason(EventKind::SandboxFailed).await;
        }
        self.life = None;
        secrets::release(&self.core, &self.record);
        self.record.state = SandboxState::Stopped;
        if self.record.lifetime.on_expiry == OnExpiry::Stop {
            self.record.expires_at = None;
        }
        if then == Then::Start {
            self.record.state = SandboxState::Creating;
        }
        self.save_if_possible().await;
        self.publish();
        self.tell_reason(EventKind::SandboxStopped).await;
        match then {
            Then::Rest => self.reply_to_all(&Ok(())),
            Then::Start => self.begin_making(Files::Kept, Span::none()),
            Then::Remove => self.begin_removing(None, Force::No),
        }
    }

    // ── pausing ─────────────────────────────────────────────────────────────────────────────────────────────────

    pub(super) async fn pause(&mut self, reply: Reply<()>) {
        let Some(life) = self.life.clone() else {
            return refuse(reply, error::wrong_state(&self.shared.label(), self.record.state, Action::Pause));
        };
        if let Err(error) = self.allow(Action::Pause) {
            return refuse(reply, error);
        }
        // Recorded first: a frozen sandbox must be known as paused, or nobody would ever resume it.
        self.record.state = SandboxState::Paused;
        if let Err(error) = self.save().await {
            self.record.state = SandboxState::Running;
            return refuse(reply, error);
        }
        self.waiting.push(reply);
        let (label, shared) = (self.shared.label(), Arc::clone(&self.shared));
        let patience = self.core.config.deadlines.last_words;
        self.begin(WorkKind::Pausing, async move {
            // A command frozen before it runs would keep its caller waiting. None is accepted meanwhile; one that takes
            // longer than this is frozen as it is, and followed until it reports how it went.
            let starting = shared.execs.starting();
            let begun = join_all(starting.iter().map(|exec| exec.started()));
            if timeout(patience, begun).await.is_err() {
                tracing::warn!(sandbox = %label, "paused although a command is still starting");
            }
            Done::Paused(life.instance.pause().await.map_err(|error| error::from_backend(error, &label)))
        });
    }

    async fn paused(&mut self, result: Result<()>) {
        match result {
            Ok(()) => {
                self.publish();
                self.reply_to_all(&Ok(()));
                self.tell(EventKind::SandboxPaused, "").await;
            }
            Err(error) => {
                self.record.state = SandboxState::Running;
                self.save_if_possible().await;
                self.publish();
                self.reply_to_all(&Err(error.clone()));
            }
        }
    }

    pub(super) fn resume(&mut self, reply: Reply<()>) {
        let Some(life) = self.life.clone() else {
            return refuse(
                reply,
                error::wrong_state(&self.shared.label(), self.record.state, Action::Resume),
            );
        };
        if let Err(error) = self.allow(Action::Resume) {
            return refuse(reply, error);
        }
        self.waiting.push(reply);
        let label = self.shared.label();
        self.begin(WorkKind::Resuming, async move {
            Done::Resumed(life.instance.resume().await.map_err(|error| error::from_backend(error, &label)))
        });
    }

    async fn resumed(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.publish();
            return self.reply_to_all(&Err(error.clone()));
        }
        let now = self.core.clock.now();
        self.shared.activity.touch(now);
        self.record.state = SandboxState::Running;
        self.record.last_active_at = now;
        self.save_if_possible().await;
        self.publish();
        self.reply_to_all(&Ok(()));
        self.tell(EventKind::SandboxResumed, "").await;
    }

    // ── removing ────────────────────────────────────────────────────────────────────────────────────────────────

    pub(super) async fn remove(&mut self, force: Force, reply: Reply<()>) {
        match self.allow(Action::Remove) {
            Ok(()) => {
                self.waiting.push(reply);
                self.begin_removing(None, force);
            }
            Err(_) if force == Force::Yes && self.allow(Action::Stop).is_ok() => {
                self.waiting.push(reply);
                self.begin_stopping(None, Then::Remove, None).await;
            }
            Err(error) => refuse(reply, error),
        }
    }

    /// Files first, then the record: if the daemon dies in between, the rest is still visible and can be removed again.
    pub(super) fn begin_removing(&mut self, not_made: Option<Error>, force: Force) {
        self.drop_first();
        let (core, shared) = (Arc::clone(&self.core), Arc::clone(&self.shared));
        let (life, plan) = (self.life.clone(), self.record.plan.clone());
        let record = self.record.clone();
        self.begin(WorkKind::Removing, async move {
            let (id, label) = (shared.subject.id.clone(), shared.label());
            let removed = async {
                if let Some(life) = life {
                    life.instance.stop().await.map_err(|error| error::from_backend(error, &label))?;
                }
                secrets::release(&core, &record);
                core.remove_files(&plan, &label, force).await?;
                match core.store.remove_sandbox(id).await {
                    Ok(()) | Err(StoreError::Missing { .. }) => Ok(()),
                    Err(error) => Err(error::from_store(error)),
                }
            };
            Done::Removed { not_made, result: removed.await }
        });
    }

    async fn removed(&mut self, not_made: Option<Error>, result: Result<()>) {
        match (not_made, result) {
            (None, Ok(())) => {
                self.core.forget(&self.shared);
                snapshots::user_gone(&self.core, &self.record.plan);
                images::user_gone(&self.core, &self.shared);
                self.vanish(Gone::Removed);
                self.reply_to_all(&Ok(()));
                self.tell(EventKind::SandboxRemoved, "").await;
            }
            (Some(refusal), Ok(())) => {
                self.core.forget(&self.shared);
                snapshots::user_gone(&self.core, &self.record.plan);
                images::user_gone(&self.core, &self.shared);
                self.vanish(Gone::NotMade(refusal.clone()));
                self.reply_to_all(&Err(refusal));
            }
            (not_made, Err(error)) => {
                // It stays visible until someone can remove it.
                self.record.state = SandboxState::Failed;
                self.record.reason = Some(format!("it could not be removed: {error}"));
                self.save_if_possible().await;
                self.publish();
                self.reply_to_all(&Err(not_made.unwrap_or_else(|| error.clone())));
                self.tell_reason(EventKind::SandboxFailed).await;
            }
        }
    }

    async fn tell_reason(&mut self, kind: EventKind) {
        let reason = self.record.reason.clone().unwrap_or_default();
        self.tell(kind, reason).await;
    }

    pub(super) async fn tell(&mut self, kind: EventKind, detail: impl Into<String>) {
        self.core.emit(&self.shared.subject, &self.shared.name(), kind, None, detail).await;
    }
}
