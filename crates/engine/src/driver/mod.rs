//! One task owns one sandbox, from its record to its removal; only this code changes its state.
//!
//! Requests come in by message. Slow operations (making an instance, stopping it, removing its files) run as `Work`
//! beside the inbox, so that the driver always answers; conversations with the guest run in tasks of their own. A
//! caller who goes away changes nothing: the work is here, not in the request.

mod alarm;
mod capture;
mod changes;
mod command;
mod ending;
mod exec;
mod expiry;
mod init;
mod lifetime;
mod limits;
mod manifest;
mod requests;
mod work;

use std::{collections::VecDeque, sync::Arc};

use futures_util::future::BoxFuture;
use sandbox::{Action, Error, ErrorKind, ExecState, Instance, Next, Result, SandboxState};
use store::{ExecRecord, SandboxRecord, StoreError};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
    time::Instant,
};
use tracing::{Instrument as _, Span};

pub(crate) use self::{
    capture::Captured,
    command::{Command, DrainCaller, Reply},
    requests::RequestStep,
};
use self::{
    command::refuse,
    exec::Asked,
    work::{Files, Then, Work, WorkKind},
};
use crate::{
    FirstExec, Force, Principal,
    client::GuestClient,
    core::{Core, until},
    create::{make_directory, unmake_directory},
    disk::may_block,
    error, network,
    patches::Pending,
    ports::{self, Bound},
    secrets,
    shared::{Gone, Life, Shared, Status},
};

/// Requests queued for one sandbox; further senders wait.
const MAX_QUEUED_COMMANDS: usize = 64;
/// Requests deferred until the current work is done.
const MAX_DEFERRED_COMMANDS: usize = 64;

pub(crate) struct Driver {
    core: Arc<Core>,
    shared: Arc<Shared>,
    record: SandboxRecord,
    life: Option<Arc<Life>>,
    inbox: mpsc::Receiver<Command>,
    work: Option<Work>,
    /// Callers that wait for the current work.
    waiting: Vec<Reply<()>>,
    deferred: VecDeque<Command>,
    /// Callers that wait for the drain; present while it drains.
    draining: Option<Vec<(DrainCaller, Reply<()>)>>,
    /// When the current stop uses force; an impatient caller moves it nearer.
    stop_by: Option<watch::Sender<Instant>>,
    expiry: expiry::Watchman,
    /// Set to when the next grant ends.
    grant_end: alarm::Alarm,
    /// Asks the guest for living processes, when the idle limit is near.
    idle_probe: Option<BoxFuture<'static, expiry::Probed>>,
    manifest: manifest::Manifest,
    /// Waits until it can be started.
    first: Option<exec::First>,
    is_over: bool,
}

/// A sandbox in the making.
pub(crate) struct Birth {
    pub(crate) shared: Arc<Shared>,
    /// Sent once its record is stored, or cannot be.
    pub(crate) recorded: oneshot::Receiver<Result<(), StoreError>>,
    /// Sent once it runs, or cannot.
    pub(crate) made: oneshot::Receiver<Result<()>>,
    /// Sent once its first exec runs, or cannot.
    pub(crate) began: Option<oneshot::Receiver<Result<ExecRecord>>>,
}

/// The result of requesting a sandbox.
pub(crate) enum Conceived {
    New(Birth),
    /// The same request has made it, or is making it.
    Known(Arc<Shared>),
}

/// A sandbox of an earlier daemon of which only the record is known.
pub(crate) struct Enrolled(Box<Driver>);

impl Enrolled {
    pub(crate) fn record(&mut self) -> &mut SandboxRecord {
        &mut self.0.record
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Adopts it as its record says, with its instance if that still exists.
    pub(crate) fn begin(self, instance: Option<Box<dyn Instance>>) -> Arc<Shared> {
        let Self(mut driver) = self;
        if let Some(instance) = instance {
            driver.life = Some(driver.new_life(Arc::from(instance)));
        }
        let (shared, core) = (Arc::clone(&driver.shared), Arc::clone(&driver.core));
        // The guest is asked next which execs are open; lookups before that wait.
        shared.is_settled.send_replace(driver.life.is_none());
        driver.publish();
        let closing = core.closing.clone();
        core.drivers.spawn(async move {
            until(&closing, driver.run()).await;
        });
        shared
    }
}

/// The event that woke the driver.
enum Wake {
    Command(Option<Command>),
    Done(work::Done),
    InstanceEnded,
    ExecEnded,
    Clock,
    GrantEnd,
    Probed(expiry::Probed),
}

impl Driver {
    fn new(core: Arc<Core>, record: SandboxRecord) -> Self {
        let (sender, inbox) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let memory = core.claimed_memory(&record.plan);
        let logs = core.config.sandbox_directory(&record.id).join("logs");
        let shared = Arc::new(Shared::new(record.clone(), memory, sender, logs, core.config.ledger));
        Self {
            core,
            shared,
            record,
            life: None,
            inbox,
            work: None,
            waiting: Vec::new(),
            deferred: VecDeque::new(),
            draining: None,
            stop_by: None,
            expiry: expiry::Watchman::new(),
            grant_end: alarm::Alarm::default(),
            idle_probe: None,
            manifest: manifest::Manifest::Due,
            first: None,
            is_over: false,
        }
    }

    /// Makes a new sandbox: its record first, then its instance.
    pub(crate) fn create(
        core: &Arc<Core>,
        who: &Principal,
        record: SandboxRecord,
        pending: Pending,
        bound: Vec<Bound>,
        first: Option<FirstExec>,
    ) -> Result<Conceived> {
        let (recorded, is_recorded) = oneshot::channel();
        let (reply, made) = oneshot::channel();
        let mut driver = Self::new(Arc::clone(core), record);
        let shared = Arc::clone(&driver.shared);
        if let Some(known) = core.reserve(who, Arc::clone(&shared), driver.record.replaces.as_ref())? {
            return Ok(Conceived::Known(known));
        }
        shared.listeners.offer(bound);
        let began = match first.map(|first| driver.promise(first, who)).transpose() {
            Ok(began) => began,
            Err(error) => {
                core.forget(&shared);
                return Err(error);
            }
        };
        let closing = core.closing.clone();
        // The driver lives on; only what it does for this request belongs to the request's trace.
        let outer = Span::current();
        core.drivers.spawn(async move {
            let lived = async {
                let recording = tracing::info_span!(target: "trace", parent: &outer, "record");
                if let Some(files) = driver.write_down(recorded).instrument(recording).await {
                    driver.waiting.push(reply);
                    let (patches, secrets) = (pending.take().map(Box::new), Box::new(pending.secrets));
                    let first = driver.first.as_ref().map(|first| Arc::clone(&first.exec));
                    driver.begin_making(Files::New { made: files, patches, secrets, first }, outer);
                    driver.run().await;
                }
            };
            until(&closing, lived).await;
        });
        Ok(Conceived::New(Birth { shared, recorded: is_recorded, made, began }))
    }

    fn promise(
        &mut self,
        first: FirstExec,
        who: &Principal,
    ) -> Result<oneshot::Receiver<Result<ExecRecord>>> {
        let (reply, began) = oneshot::channel();
        self.expect_first(first, who.name.clone(), reply)?;
        Ok(began)
    }

    /// Registers a sandbox of an earlier daemon as recorded. Requests wait until it is adopted.
    pub(crate) fn enrol(core: &Arc<Core>, mut record: SandboxRecord) -> Enrolled {
        network::drop_ended(&mut record, core.clock.now());
        let driver = Self::new(Arc::clone(core), record);
        driver.shared.status.send_modify(|status| status.adopting = true);
        core.publish(&driver.shared);
        Enrolled(Box::new(driver))
    }

    /// Writes the record, and makes the empty directory meanwhile: without a record it is a leftover, removed here or
    /// swept by the next daemon. Returns the result of making the directory, if the record is stored.
    async fn write_down(&mut self, recorded: oneshot::Sender<Result<(), StoreError>>) -> Option<Result<()>> {
        let core = Arc::clone(&self.core);
        let name = (self.record.namespace.clone(), self.record.name.clone());
        let _turn = core.naming.take(name).await;
        // No sweep may run while a directory has no record yet.
        let making = core.making.read().await;
        let directory = core.config.sandbox_directory(&self.record.id);
        let made = directory.clone();
        let files = spawn_blocking(move || make_directory(&made));
        let first = self.first.as_ref().map(|first| first.exec.record());
        let inserted = core.store.insert_sandbox_with(self.record.clone(), first).await;
        let files = files.await.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Internal, "could not create the directory").with_source(error))
        });
        if inserted.is_ok() {
            core.publish(&self.shared);
        } else {
            if files.is_ok() {
                may_block(|| unmake_directory(&directory));
            }
            core.forget(&self.shared);
            // A caller waiting for the same request retries itself.
            self.shared.status.send_modify(|status| status.gone = Some(Gone::Removed));
        }
        drop(making);
        let is_inserted = inserted.is_ok();
        recorded.send(inserted).unwrap_or(());
        is_inserted.then_some(files)
    }

    fn new_life(&self, instance: Arc<dyn Instance>) -> Arc<Life> {
        let client = GuestClient::new(Arc::clone(&instance), self.core.config.deadlines, self.shared.label());
        Arc::new(Life::new(instance, client, self.record.plan.config.stop_signal_number()))
    }

    async fn run(&mut self) {
        while !self.is_over {
            self.keep_manifest();
            match self.wait().await {
                Wake::Command(Some(command)) => self.handle(command).await,
                // The engine holds a sender as long as it knows the sandbox.
                Wake::Command(None) => return,
                Wake::Done(done) => self.finish(done).await,
                Wake::InstanceEnded => self.instance_ended().await,
                Wake::ExecEnded => self.stop_if_drained().await,
                Wake::Clock => self.look_at_the_clock().await,
                Wake::GrantEnd => self.end_grants().await,
                Wake::Probed(probed) => self.probed(probed).await,
            }
            while self.work.is_none() && !self.is_over {
                let Some(command) = self.deferred.pop_front() else { break };
                self.handle(command).await;
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        self.arm_clock();
        let is_free = self.work.is_none();
        // A failed stop keeps the handle for the removal; its end is expected.
        let life = self.life.clone().filter(|_| is_free && self.is_awake());
        let ended = async {
            match life {
                Some(life) => life.instance.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = or_pending(self.work.as_mut().map(|work| &mut work.future)) => {
                self.work = None;
                Wake::Done(done)
            }
            command = self.inbox.recv() => Wake::Command(command),
            () = ended => Wake::InstanceEnded,
            () = self.shared.exec_ended.notified(), if is_free && self.draining.is_some() => Wake::ExecEnded,
            probed = or_pending(self.idle_probe.as_mut()), if is_free => {
                self.idle_probe = None;
                Wake::Probed(probed)
            }
            () = self.expiry.alarm.rings(), if is_free && self.idle_probe.is_none() => Wake::Clock,
            () = self.grant_end.rings(), if is_free => Wake::GrantEnd,
        }
    }

    async fn handle(&mut self, command: Command) {
        if let Some(command) = self.put_aside(command) {
            self.answer(command).await;
        }
    }

    /// Joins or defers a command that cannot be decided during the current work; returns the others.
    fn put_aside(&mut self, command: Command) -> Option<Command> {
        let Some(work) = &self.work else { return Some(command) };
        match &command {
            Command::Stop { grace, .. } | Command::Restart { grace, .. } => self.hurry(*grace),
            Command::Remove { force: Force::Yes, .. } => self.hurry(None),
            _ => {}
        }
        let is_deferred = match (&work.kind, &command) {
            (_, Command::EndDrain { .. }) => false,
            // What is being made may have read them already; all others hold them now.
            (kind, Command::HoldSecrets { .. }) => matches!(kind, WorkKind::Making),
            (WorkKind::Making, Command::ChangeNetwork { .. } | Command::StepRequest { .. }) => true,
            // A renewed sandbox must be alive when the caller is told.
            (WorkKind::Making | WorkKind::Stopping { then: Then::Start }, Command::Renew { .. }) => true,
            // The stop is already in progress: a caller who lost the answer to the same request waits for it again.
            (WorkKind::Stopping { then: Then::Rest }, Command::Stop { .. } | Command::Drain { .. })
            | (WorkKind::Making | WorkKind::Stopping { then: Then::Start }, Command::Start { .. }) => {
                if let Command::Stop { reply, .. } | Command::Drain { reply, .. } | Command::Start { reply } =
                    command
                {
                    self.waiting.push(reply);
                }
                return None;
            }
            (WorkKind::Making | WorkKind::Stopping { .. }, command) => matches!(
                command,
                Command::Stop { .. }
                    | Command::Restart { .. }
                    | Command::Drain { .. }
                    | Command::Close { .. }
                    | Command::Remove { force: Force::Yes, .. }
            ),
            (WorkKind::Pausing | WorkKind::Resuming | WorkKind::Capturing | WorkKind::Removing, _) => true,
        };
        if !is_deferred {
            return Some(command);
        }
        if self.deferred.len() >= MAX_DEFERRED_COMMANDS {
            let message =
                format!("{} requests are already waiting for {}", MAX_DEFERRED_COMMANDS, self.shared.label());
            command.refuse(Error::new(ErrorKind::LimitReached, message).with_next(Next::Retry));
            return None;
        }
        self.deferred.push_back(command);
        None
    }

    async fn answer(&mut self, command: Command) {
        match command {
            Command::Start { reply } => match self.allow(Action::Start) {
                Ok(()) => self.start(reply).await,
                Err(error) => refuse(reply, error),
            },
            Command::Stop { grace, reply } => self.stop(grace, Then::Rest, reply).await,
            Command::Restart { grace, reply } => match self.record.state {
                SandboxState::Stopped => self.start(reply).await,
                _ => self.stop(grace, Then::Start, reply).await,
            },
            Command::Remove { force, reply } => self.remove(force, reply).await,
            Command::Pause { reply } => self.pause(reply).await,
            Command::Resume { reply } => self.resume(reply),
            Command::Drain { caller, reply } => self.drain(caller, reply).await,
            Command::EndDrain { caller } => self.end_drain(caller),
            Command::Renew { lifetime, reply } => {
                reply.send(self.renew(lifetime).await).unwrap_or(());
            }
            Command::Relabel { changes, reply } => {
                reply.send(self.relabel(changes).await).unwrap_or(());
            }
            Command::Exec { spec, asked_by, request_hash, span, reply } => {
                self.exec(*spec, Asked { by: asked_by, request_hash }, span, reply);
            }
            Command::Capture { into, reply } => self.capture(into, reply),
            Command::Rename { name, for_good, reply } => {
                reply.send(self.rename(name, for_good).await).unwrap_or(());
            }
            Command::Expose { exposed, reply } => {
                reply.send(self.change_ports(|ports| ports::set(ports, exposed)).await).unwrap_or(());
            }
            Command::Withdraw { port, reply } => {
                let withdrawn = self.change_ports(|ports| {
                    ports.retain(|exposed| exposed.port != port);
                    Ok(())
                });
                reply.send(withdrawn.await).unwrap_or(());
            }
            Command::ChangeNetwork { change, ceilings, reply } => {
                reply.send(self.change_network(&change, &ceilings).await).unwrap_or(());
            }
            Command::StepRequest { step, reply } => {
                drop(reply.send(self.step_request(*step).await));
            }
            Command::ChangeLimits { limits, who, reply } => {
                reply.send(self.change_limits(&limits, &who).await).unwrap_or(());
            }
            Command::HoldSecrets { reply } => {
                if self.life.is_some() {
                    secrets::hold_changed(&self.core, &self.record).await;
                }
                reply.send(Ok(())).unwrap_or(());
            }
            Command::Close { reply } => self.close(reply).await,
        }
    }

    /// The one check before every change.
    fn allow(&self, action: Action) -> Result<()> {
        if self.record.state.allows(action) {
            return Ok(());
        }
        Err(error::wrong_state(&self.shared.label(), self.record.state, action))
    }

    async fn close(&mut self, reply: Reply<()>) {
        self.record.last_active_at = self.shared.activity.last_at();
        self.save_if_possible().await;
        self.is_over = true;
        reply.send(Ok(())).unwrap_or(());
    }

    /// Without the init program: it ends with the sandbox.
    fn n_running_execs(&self) -> usize {
        self.shared.execs.count(|exec| exec.state != ExecState::Done && !self.is_init(exec))
    }

    /// Writes the record before the change that it must mention.
    async fn save(&mut self) -> Result<()> {
        self.manifest = manifest::Manifest::Due;
        self.core.store.update_sandbox(self.record.clone()).await.map_err(error::from_store)
    }

    /// Writes the record of an irreversible change. If the disk is full, the next daemon finds out by looking.
    async fn save_if_possible(&mut self) {
        if let Err(error) = self.save().await {
            tracing::error!(
                sandbox = %self.record.id, state = %self.record.state,
                error = &error as &dyn std::error::Error, "could not record a state"
            );
        }
    }

    /// Publishes the current state.
    fn publish(&self) {
        self.shared.status.send_replace(Status {
            record: self.record.clone(),
            life: self.life.clone(),
            draining: self.draining.is_some(),
            busy: self.work.is_some(),
            adopting: false,
            unreachable: None,
            gone: None,
        });
        self.shared.listeners.follow(&self.core, &self.shared, &self.record);
        self.core.feed.sandbox(&self.record.id);
    }

    fn vanish(&mut self, gone: Gone) {
        self.is_over = true;
        self.shared.listeners.close();
        self.shared.status.send_modify(|status| {
            status.busy = false;
            status.gone = Some(gone);
        });
    }

    fn reply_to_all(&mut self, result: &Result<()>) {
        for reply in self.waiting.drain(..) {
            reply.send(result.as_ref().copied().map_err(Error::clone)).unwrap_or(());
        }
    }
}

impl Drop for Driver {
    /// Callers that still wait get an error instead of a closed channel.
    fn drop(&mut self) {
        let label = self.shared.label();
        let is_gone = self.shared.status.borrow().gone.is_some();
        let why = || if is_gone { error::no_such_sandbox(&label.name) } else { error::closing() };
        self.inbox.close();
        let late = std::iter::from_fn(|| self.inbox.try_recv().ok()).collect::<Vec<_>>();
        for command in self.deferred.drain(..).chain(late) {
            command.refuse(why());
        }
        self.join_drain();
        for reply in self.waiting.drain(..) {
            refuse(reply, why());
        }
    }
}

async fn or_pending<F: Future + Unpin>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
