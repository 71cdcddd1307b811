//! The task of one job, from its turn to its end: record, listen, install, look.

use std::{convert::Infallible, sync::Arc, time::Duration};

use sandbox::{
    Action, Error, ErrorKind, ExecId, ExecOutcome, InstalledPackage, KillReason, Next, NotStarted, Package,
    PackageManager, PackageState, RequestId, Result, SandboxId, Subject,
};
use store::{ExecRecord, PackageJobRecord, StoreError};
use tokio::sync::OwnedMutexGuard;
use tracing::Span;

use super::{
    PackageGateway,
    jobs::LiveJob,
    log, look,
    recipe::{self, Asked},
    serve,
};
use crate::{
    Principal, SandboxRef,
    client::GuestListener,
    core::{Core, until},
    disk::may_block,
    driver::Command,
    error,
    lifecycle::ask,
    shared::{Life, Shared},
};

/// Before the path of a requirements file, where packages are listed. No package begins like this.
pub(super) const FROM_FILE: &str = "-r ";
const CUT_SHORT: &str = "the daemon stopped before the installation started";

/// The inputs of a new job besides its record.
pub(super) struct Order {
    pub(super) who: Principal,
    pub(super) gateway: Arc<dyn PackageGateway>,
    /// From the sandbox's own working directory.
    pub(super) cwd: Option<String>,
    pub(super) timeout: Option<Duration>,
}

/// Runs a job that was just recorded.
pub(super) fn begin(core: &Arc<Core>, job: Arc<LiveJob>, order: Order) {
    let task = Task { core: Arc::clone(core), job };
    let closing = core.closing.clone();
    core.drivers.spawn(async move { until(&closing, task.run(order)).await });
}

/// Resumes jobs that an earlier daemon left unfinished. They are registered at once; their state is determined in the
/// background.
pub(crate) async fn take_up(core: &Arc<Core>) {
    let unfinished = match core.store.unfinished_package_jobs().await {
        Ok(unfinished) => unfinished,
        Err(error) => return tracing::error!(%error, "package jobs of an earlier daemon cannot be read"),
    };
    for record in unfinished {
        // Taken here, before anyone else can: the install of an earlier daemon may still run.
        let turn = core.jobs.turn(&record.sandbox, record.manager).try_lock_owned().ok();
        let job = LiveJob::new(record, None);
        core.jobs.insert(&job);
        let task = Task { core: Arc::clone(core), job };
        let closing = core.closing.clone();
        core.drivers.spawn(async move { until(&closing, task.go_on(turn)).await });
    }
}

struct Task {
    core: Arc<Core>,
    job: Arc<LiveJob>,
}

impl Task {
    async fn run(self, order: Order) {
        let ended = self.install(&order).await;
        self.end(ended).await;
    }

    async fn go_on(self, turn: Option<OwnedMutexGuard<()>>) {
        let ended = self.install_goes_on().await;
        self.end(ended).await;
        drop(turn);
    }

    async fn install(&self, order: &Order) -> Result<(Arc<Shared>, ExecRecord)> {
        let PackageJobRecord { sandbox, manager, .. } = self.job.now();
        let turn = self.core.jobs.turn(&sandbox, manager);
        let _turn = match Arc::clone(&turn).try_lock_owned() {
            Ok(turn) => turn,
            Err(_taken) => {
                self.note(|job| {
                    job.message = Some(format!("waiting for another installation with {manager}"));
                });
                turn.lock_owned().await
            }
        };
        // The caller may have lost its key, and the sandbox may have stopped, while we waited.
        let shared = self.core.find_to_change(&order.who, &SandboxRef::from(&sandbox)).await?;
        let (life, _guard) = shared.enter(Action::Exec, &self.core.clock)?;
        let started_at = Some(self.core.clock.now());
        self.note(|job| (job.message, job.started_at) = (None, started_at));
        may_block(|| order.gateway.open())?;
        let listener = serve::listen(&life, manager).await;
        let listener = listener.map_err(|error| error::from_guest(error, &shared.label()))?;
        let plan = shared.status.borrow().record.plan.clone();
        let packages = self.job.now().packages;
        let asked = Asked {
            manager,
            packages: &packages,
            cwd: beneath(&plan.cwd, order.cwd.as_deref()),
            timeout: order.timeout,
            request_id: self.exec_request()?,
        };
        let spec = recipe::exec(&life, &plan, &*order.gateway, &asked, listener.port).await?;
        let port = listener.port;
        // Before the effect: it tells the next daemon which port the programs inside will use.
        self.save(|job| job.port = Some(port)).await?;
        let (spec, asked_by) = (Box::new(spec), order.who.name.clone());
        let installed = async {
            let span = Span::current();
            // Its request id is our own, and its port differs each time.
            let request_hash = None;
            let asked = ask(&shared, |reply| Command::Exec { spec, asked_by, request_hash, span, reply });
            let record = asked.await?;
            self.save(|job| job.exec = Some(record.id.clone())).await.ok();
            self.exec_done(&shared, record).await
        };
        let gateway = Arc::clone(&order.gateway);
        let done =
            served(&life, gateway, (manager, &shared.subject.id), port, Some(listener), installed).await?;
        Ok((Arc::clone(&shared), done))
    }

    /// The same for an exec that an earlier daemon may have started.
    async fn install_goes_on(&self) -> Result<(Arc<Shared>, ExecRecord)> {
        let PackageJobRecord { sandbox, manager, exec, port, .. } = self.job.now();
        let lost = || Error::new(ErrorKind::Unavailable, CUT_SHORT);
        let shared = self.core.reserved(&sandbox).ok_or_else(lost)?;
        self.adopted(&shared).await;
        let exec = match exec {
            Some(exec) => exec,
            None => {
                let found = self.core.store.exec_requested(sandbox.clone(), self.exec_request()?).await;
                found.map_err(error::from_store)?.ok_or_else(lost)?.id
            }
        };
        self.save(|job| job.exec = Some(exec.clone())).await.ok();
        let life = shared.status.borrow().life.clone();
        let gateway =
            self.core.config.packages.clone().filter(|gateway| may_block(|| gateway.open()).is_ok());
        let done = self.found_done(&shared, &exec);
        let done = match (life, gateway, port) {
            (Some(life), Some(gateway), Some(port)) => {
                served(&life, gateway, (manager, &sandbox), port, None, done).await?
            }
            _ => done.await?,
        };
        Ok((shared, done))
    }

    async fn adopted(&self, shared: &Shared) {
        // `shared` holds the sender, so this cannot fail.
        drop(shared.status.subscribe().wait_for(|status| !status.adopting).await);
    }

    /// Waits for the end of an exec of an earlier daemon.
    async fn found_done(&self, shared: &Shared, exec: &ExecId) -> Result<ExecRecord> {
        drop(shared.is_settled.subscribe().wait_for(|settled| *settled).await);
        if let Some(live) = shared.execs.get(exec) {
            return live.done().await;
        }
        let record = self.core.store.exec(exec.clone()).await.map_err(error::from_store)?;
        record.ok_or_else(|| error::no_such_exec(exec, &shared.label()))
    }

    async fn exec_done(&self, shared: &Shared, record: ExecRecord) -> Result<ExecRecord> {
        match shared.execs.get(&record.id) {
            Some(live) => live.done().await,
            None if record.outcome.is_some() => Ok(record),
            None => self.found_done(shared, &record.id).await,
        }
    }

    fn exec_request(&self) -> Result<RequestId> {
        Ok(self.job.now().id.as_str().parse()?)
    }

    async fn end(&self, ended: Result<(Arc<Shared>, ExecRecord)>) {
        let (state, message, installed) = match ended {
            Ok((shared, record)) => self.conclude(&shared, &record).await,
            Err(error) => {
                let message = match error.next() {
                    Some(Next::Advice(advice)) => format!("{error}. {advice}"),
                    _ => error.to_string(),
                };
                (PackageState::Failed, Some(message), Vec::new())
            }
        };
        let now = self.core.clock.now();
        let ended = PackageJobRecord { state, message, installed, ended_at: Some(now), ..self.job.now() };
        match self.core.store.update_package_job(ended.clone()).await {
            Ok(()) | Err(StoreError::Missing { .. } | StoreError::Closed) => {}
            // The next daemon determines it again.
            Err(error) => tracing::error!(job = %ended.id, %error, "could not record how a job ended"),
        }
        let id = ended.id.clone();
        self.job.record.send_replace(ended);
        self.core.jobs.remove(&id);
    }

    async fn conclude(
        &self,
        shared: &Shared,
        record: &ExecRecord,
    ) -> (PackageState, Option<String>, Vec<InstalledPackage>) {
        let job = self.job.now();
        let is_success = record.outcome.as_ref().is_some_and(ExecOutcome::is_success);
        if is_success {
            let (found, note) = self.found(shared, &job, record.spec.cwd.as_deref()).await;
            return (PackageState::Installed, note, found);
        }
        let lines = log::last_lines(shared, &record.id);
        let why = why(job.manager, record, log::complaint(&lines), &shared.label());
        (PackageState::Failed, Some(why), Vec::new())
    }

    /// The installed versions of the requested packages.
    async fn found(
        &self,
        shared: &Shared,
        job: &PackageJobRecord,
        cwd: Option<&str>,
    ) -> (Vec<InstalledPackage>, Option<String>) {
        let looked = async {
            let (life, _guard) = shared.enter(Action::Exec, &self.core.clock)?;
            let plan = shared.status.borrow().record.plan.clone();
            let cwd = cwd.unwrap_or(&plan.cwd);
            let mut names = asked_names(job);
            for file in job.packages.iter().filter_map(|text| text.strip_prefix(FROM_FILE)) {
                names.extend(look::named_in(&life, &plan, file, cwd).await?);
            }
            Ok::<_, Error>((look::installed(&life, &plan, job.manager, cwd).await?, names))
        };
        match looked.await {
            Ok((found, names)) => {
                let mut found = found.unwrap_or_default();
                // A project's install names no packages: it is about all of them.
                let is_asked = |found: &InstalledPackage| names.contains(&name_of(job.manager, &found.name));
                found.retain(|found| names.is_empty() || is_asked(found));
                (found, None)
            }
            Err(error) => (Vec::new(), Some(format!("could not read the installed versions: {error}"))),
        }
    }

    /// Changes the visible state of the job.
    fn note(&self, change: impl FnOnce(&mut PackageJobRecord)) {
        self.job.record.send_modify(change);
    }

    /// The same, and stores it.
    async fn save(&self, change: impl FnOnce(&mut PackageJobRecord)) -> Result<()> {
        self.note(change);
        self.core.store.update_package_job(self.job.now()).await.map_err(error::from_store)
    }
}

/// Runs `work` while the index is served inside, for one manager in one sandbox.
async fn served<T>(
    life: &Arc<Life>,
    gateway: Arc<dyn PackageGateway>,
    (manager, sandbox): (PackageManager, &SandboxId),
    port: u16,
    listener: Option<GuestListener>,
    work: impl Future<Output = T>,
) -> T {
    let serving = async {
        serve::serve(Arc::clone(life), gateway, Some(manager), sandbox, port, listener).await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        done = work => done,
        never = serving => match never {},
    }
}

/// Normalized package names, for comparison.
pub(super) fn asked_names(job: &PackageJobRecord) -> Vec<String> {
    job.packages.iter().map(|text| name_of(job.manager, text)).collect()
}

pub(super) fn name_of(manager: PackageManager, text: &str) -> String {
    Package::new(manager, text).map_or_else(|_odd| text.to_owned(), |package| package.name().to_owned())
}

/// A path from a directory; the directory itself if absent.
fn beneath(directory: &str, path: Option<&str>) -> String {
    match path {
        None => directory.to_owned(),
        Some(path) if path.starts_with('/') => path.to_owned(),
        Some(path) => format!("{}/{path}", directory.trim_end_matches('/')),
    }
}

fn why(manager: PackageManager, record: &ExecRecord, complaint: Option<&str>, sandbox: &Subject) -> String {
    let said = complaint.map(|line| format!(": {line}")).unwrap_or_default();
    let program = record.spec.command.first().map_or("", String::as_str);
    match &record.outcome {
        Some(ExecOutcome::Exited { code, .. }) => format!("{manager} exited with code {code}{said}"),
        Some(ExecOutcome::NotStarted { reason: NotStarted::NotFound, .. }) => {
            format!("{sandbox} has no {program}")
        }
        Some(ExecOutcome::Killed { reason: KillReason::TimeLimit }) => {
            let limit = record.spec.timeout.unwrap_or_default();
            format!("{manager} was killed at its time limit of {limit:?}{said}")
        }
        Some(outcome) => format!("{manager} did not finish ({outcome}){said}"),
        None => format!("{manager} did not finish{said}"),
    }
}
