//! Packages: an exec inside installs them; its manager talks to a port of the sandbox's own loopback. The guest listens
//! there and hands each client to us, and a gateway answers it. The sandbox itself reaches no network.
//!
//! A job is recorded before it begins; its output is the ledger of its exec; if the daemon ends meanwhile, the next one
//! listens on the same port again and waits for the same exec.

mod errand;
mod gateway;
mod jobs;
mod log;
mod look;
mod recipe;
mod run;
mod serve;
mod standing;
mod within;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use jiff::Timestamp;
use sandbox::{
    Action, Error, ErrorKind, ExecId, InstalledPackage, Next, Package, PackageJobId, PackageManager,
    PackageSpec, PackageState, RequestId, Result, SandboxId, Setting, Thing,
};
use serde::{Deserialize, Serialize};
use store::PackageJobRecord;

pub use self::{
    gateway::{GatewayStats, PackageGateway},
    standing::PORT as PACKAGES_PORT,
};
pub(crate) use self::{
    jobs::Jobs,
    run::take_up,
    standing::{Standing, names_a_manager, offer},
    within::Indexes,
};
use self::{jobs::LiveJob, run::Order};
use crate::{
    Engine, Principal, SandboxRef, error,
    lifecycle::with_timeout,
    names,
    request_hash::{self, request_hash},
    shared::{Life, Shared},
};

/// A job that installs packages, as it stands now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageJob {
    pub id: PackageJobId,
    pub sandbox: SandboxId,
    pub manager: PackageManager,
    /// As passed to the manager.
    pub packages: Vec<String>,
    pub state: PackageState,
    /// Why it failed or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The installed packages with their versions; known once the job is done.
    pub installed: Vec<InstalledPackage>,
    /// The install itself; its log is this exec's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecId>,
    /// The last lines of the log; empty in lists.
    pub log: Vec<String>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

/// Whether a package is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PackagePresence {
    Installing,
    Installed,
    Failed,
    NotInstalled,
}

impl PackagePresence {
    /// The name that all front ends use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Installing => "installing",
            Self::Installed => "installed",
            Self::Failed => "failed",
            Self::NotInstalled => "not_installed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageStatus {
    pub name: String,
    pub manager: PackageManager,
    pub state: PackagePresence,
    /// Found by looking inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The newest job for it, while it runs or when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<PackageJob>,
}

/// The installed packages of one manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ManagerPackages)]
pub struct PackageListing {
    pub manager: PackageManager,
    /// By name.
    pub packages: Vec<InstalledPackage>,
    /// The manager did not answer in time, so what it has is not known: ask for it alone, or look
    /// at what runs in the sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
}

impl Engine {
    /// Begins to install packages, and returns at once. A request for packages that are being installed, or a repeated
    /// request, returns the first job.
    #[crate::boxed]
    pub async fn install_packages(
        &self,
        who: &Principal,
        which: &SandboxRef,
        spec: PackageSpec,
    ) -> Result<PackageJob> {
        let packages = spec.check().map_err(|invalid| {
            Error::from(invalid).with_hint(
                "Give one name for each package, with or without a version, such as numpy or requests>=2.",
            )
        })?;
        if spec.timeout.is_some_and(|limit| limit.is_zero()) {
            return Err(sandbox::InvalidExec::NoTime.into());
        }
        let shared = self.core().find_to_change(who, which).await?;
        let gateway = self.core().config.packages.clone().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "packages cannot be installed: this daemon does not allow it")
                .with_next(Next::Configure(Setting::Packages))
        })?;
        if !shared.status.borrow().record.plan.network.reaches_packages() {
            let message = format!("{} reaches no package indexes: its network is closed", shared.label());
            return Err(Error::new(ErrorKind::Denied, message)
                .about(Thing::Sandbox, shared.name().as_str())
                .with_hint("Change its network policy to the preset `packages` first."));
        }
        let request_hash = spec.request_id.as_ref().and_then(|_| request_hash(&spec));
        if let Some(request) = &spec.request_id
            && let Some(known) = self.requested_job(&shared, request).await?
        {
            request_hash::check(Some(request), known.request_hash.as_deref(), request_hash.as_deref())?;
            return Ok(view(&shared, known, Log::Shown));
        }
        drop(shared.enter(Action::Exec, &self.core().clock)?);
        let record = PackageJobRecord {
            id: PackageJobId::from_random(names::random_bytes()?),
            sandbox: shared.subject.id.clone(),
            request_id: spec.request_id,
            manager: spec.manager,
            packages: asked_texts(&packages, spec.requirements_file.as_deref()),
            state: PackageState::Installing,
            exec: None,
            port: None,
            message: None,
            installed: Vec::new(),
            created_at: self.core().clock.now(),
            started_at: None,
            ended_at: None,
            request_hash,
        };
        let job = LiveJob::new(record.clone(), spec.cwd.clone());
        if let Some(same) = self.core().jobs.admit(&job)? {
            return Ok(view(&shared, same.now(), Log::Shown));
        }
        if let Err(error) = self.core().store.insert_package_job(record.clone()).await {
            self.core().jobs.remove(&record.id);
            return Err(error::from_store(error));
        }
        let order = Order { who: who.clone(), gateway, cwd: spec.cwd, timeout: spec.timeout };
        run::begin(self.core(), job, order);
        Ok(view(&shared, record, Log::Shown))
    }

    #[crate::boxed]
    pub async fn package_job(
        &self,
        who: &Principal,
        which: &SandboxRef,
        job: &PackageJobId,
    ) -> Result<PackageJob> {
        let shared = self.core().find_to_look(who, which).await?;
        let record = self.job_record(&shared, job).await?;
        Ok(view(&shared, record, Log::Shown))
    }

    /// Oldest first, without their logs.
    #[crate::boxed]
    pub async fn package_jobs(&self, who: &Principal, which: &SandboxRef) -> Result<Vec<PackageJob>> {
        let shared = self.core().find_to_look(who, which).await?;
        let records = self.job_records(&shared).await?;
        Ok(records.into_iter().map(|record| view(&shared, record, Log::Left)).collect())
    }

    /// Returns when the job has ended, or its current state when `time` has passed.
    #[crate::boxed]
    pub async fn wait_package_job(
        &self,
        who: &Principal,
        which: &SandboxRef,
        job: &PackageJobId,
        time: Option<Duration>,
    ) -> Result<PackageJob> {
        let shared = self.core().find_to_look(who, which).await?;
        let is_its = |live: &Arc<LiveJob>| live.record.borrow().sandbox == shared.subject.id;
        let Some(live) = self.core().jobs.get(job).filter(is_its) else {
            let record = self.job_record(&shared, job).await?;
            return Ok(view(&shared, record, Log::Shown));
        };
        let mut progress = live.record.subscribe();
        let closing = self.core().closing.clone();
        let ended = async {
            tokio::select! {
                // `live` holds the sender, so waiting cannot fail.
                _ = progress.wait_for(|record| record.state != PackageState::Installing) => Ok(()),
                () = closing.cancelled() => Err(error::closing()),
            }
        };
        with_timeout(time, ended).await.transpose()?;
        Ok(view(&shared, live.now(), Log::Shown))
    }

    /// Whether a package is installed: by a job in progress, else by looking inside. Without a manager, that of the
    /// newest job for such a package is asked first, then each that the sandbox has.
    #[crate::boxed]
    pub async fn package_status(
        &self,
        who: &Principal,
        which: &SandboxRef,
        manager: Option<PackageManager>,
        name: &str,
    ) -> Result<PackageStatus> {
        let mut candidates = candidates(manager, name)?;
        let shared = self.core().find_to_change(who, which).await?;
        let records = self.job_records(&shared).await?;
        let is_about = |record: &PackageJobRecord| {
            let names = run::asked_names(record);
            candidates.iter().any(|(manager, name)| *manager == record.manager && names.contains(name))
        };
        let newest = records.into_iter().rev().find(is_about);
        if let Some(record) = &newest {
            // A stable sort: the others keep their order.
            candidates.sort_by_key(|(manager, _)| *manager != record.manager);
        }
        if let Some(record) = newest.clone().filter(|record| record.state == PackageState::Installing) {
            return Ok(status(&shared, candidates, PackagePresence::Installing, Some(record)));
        }
        match self.find_installed(&shared, &candidates).await? {
            Some((manager, name, version)) => {
                let state = PackagePresence::Installed;
                Ok(PackageStatus { name, manager, state, version: Some(version), job: None })
            }
            None => {
                let failed = newest.filter(|record| record.state == PackageState::Failed);
                let state = match failed {
                    Some(_) => PackagePresence::Failed,
                    None => PackagePresence::NotInstalled,
                };
                Ok(status(&shared, candidates, state, failed))
            }
        }
    }

    /// The first manager that has the package, with its version. A manager that cannot answer is an error only if none
    /// has the package.
    async fn find_installed(
        &self,
        shared: &Shared,
        candidates: &[(PackageManager, String)],
    ) -> Result<Option<(PackageManager, String, String)>> {
        let (mut missing, mut failed, mut n_looked) = (None, None, 0);
        for (manager, name) in candidates {
            let found = match self.look(shared, *manager).await {
                Ok(found) => found,
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    missing = missing.or(Some(error));
                    continue;
                }
                Err(error) => {
                    failed = failed.or(Some(error));
                    continue;
                }
            };
            n_looked += 1;
            if let Some(found) = found.into_iter().find(|found| run::name_of(*manager, &found.name) == *name)
            {
                return Ok(Some((*manager, name.clone(), found.version)));
            }
        }
        match (failed, missing) {
            (Some(error), _) => Err(error),
            (None, Some(error)) if n_looked == 0 => Err(error),
            (None, _) => Ok(None),
        }
    }

    /// The installed packages, by looking inside: of one manager, or of each that the sandbox has.
    #[crate::boxed]
    pub async fn packages(
        &self,
        who: &Principal,
        which: &SandboxRef,
        manager: Option<PackageManager>,
    ) -> Result<Vec<PackageListing>> {
        // Looking runs programs inside, which read-only callers may not do.
        let shared = self.core().find_to_change(who, which).await?;
        if let Some(manager) = manager {
            let packages = self.look(&shared, manager).await?;
            return Ok(vec![PackageListing { manager, packages, timed_out: false }]);
        }
        let (life, _guard) = shared.enter(Action::Exec, &self.core().clock)?;
        let plan = shared.status.borrow().record.plan.clone();
        // At the same time, so that together they take no longer than the slowest.
        let looks = PackageManager::ALL.map(|manager| look::installed(&life, &plan, manager, &plan.cwd));
        let mut listings = Vec::new();
        for (manager, found) in PackageManager::ALL.into_iter().zip(join_all(looks).await) {
            match found {
                Ok(Some(packages)) => listings.push(PackageListing { manager, packages, timed_out: false }),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    listings.push(PackageListing { manager, packages: Vec::new(), timed_out: true });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(listings)
    }

    async fn look(&self, shared: &Shared, manager: PackageManager) -> Result<Vec<InstalledPackage>> {
        let (life, _guard): (Arc<Life>, _) = shared.enter(Action::Exec, &self.core().clock)?;
        let plan = shared.status.borrow().record.plan.clone();
        look::installed(&life, &plan, manager, &plan.cwd).await?.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("{} has no {manager}", shared.label()))
                .with_hint("Use an image that has it, or another package manager.")
        })
    }

    async fn requested_job(&self, shared: &Shared, request: &RequestId) -> Result<Option<PackageJobRecord>> {
        let sandbox = &shared.subject.id;
        if let Some(live) = self.core().jobs.requested(sandbox, request) {
            return Ok(Some(live.now()));
        }
        let stored = self.core().store.package_job_requested(sandbox.clone(), request.clone()).await;
        stored.map_err(error::from_store)
    }

    async fn job_record(&self, shared: &Shared, job: &PackageJobId) -> Result<PackageJobRecord> {
        let record = match self.core().jobs.get(job) {
            Some(live) => Some(live.now()),
            None => self.core().store.package_job(job.clone()).await.map_err(error::from_store)?,
        };
        record.filter(|record| record.sandbox == shared.subject.id).ok_or_else(|| {
            Error::no_such(Thing::PackageJob, job.to_string())
                .reworded(|words| format!("{words} in {}", shared.label()))
        })
    }

    async fn job_records(&self, shared: &Shared) -> Result<Vec<PackageJobRecord>> {
        let stored = self.core().store.package_jobs(shared.subject.id.clone()).await;
        let stored = stored.map_err(error::from_store)?.into_iter();
        let newest =
            |record: PackageJobRecord| self.core().jobs.get(&record.id).map_or(record, |live| live.now());
        Ok(stored.map(newest).collect())
    }
}

/// The last words of the install's command line: what a job is known by, too.
fn asked_texts(packages: &[Package], requirements_file: Option<&str>) -> Vec<String> {
    let file = requirements_file.map(|file| format!("{}{file}", run::FROM_FILE));
    packages.iter().map(|package| package.as_str().to_owned()).chain(file).collect()
}

/// Managers that may have a package of this name, each with the name in its own spelling.
fn candidates(manager: Option<PackageManager>, name: &str) -> Result<Vec<(PackageManager, String)>> {
    let invalid =
        |invalid| Error::from(invalid).with_hint("Give the name of one package, without a version.");
    let named = |manager| Package::new(manager, name).map(|package| (manager, package.name().to_owned()));
    if let Some(manager) = manager {
        return Ok(vec![named(manager).map_err(invalid)?]);
    }
    let found: Vec<_> = PackageManager::ALL.into_iter().filter_map(|manager| named(manager).ok()).collect();
    if found.is_empty() {
        // The first manager's reason is enough.
        return Ok(vec![named(PackageManager::default()).map_err(invalid)?]);
    }
    Ok(found)
}

/// The status of a package that was not found, for the first of its managers.
fn status(
    shared: &Shared,
    candidates: Vec<(PackageManager, String)>,
    state: PackagePresence,
    job: Option<PackageJobRecord>,
) -> PackageStatus {
    let (manager, name) = candidates.into_iter().next().unwrap_or_default();
    let job = job.map(|record| view(shared, record, Log::Shown));
    PackageStatus { name, manager, state, version: None, job }
}

/// Whether a view includes the last lines of the log, which must be read for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    Shown,
    Left,
}

fn view(shared: &Shared, record: PackageJobRecord, log: Log) -> PackageJob {
    let log = match &record.exec {
        Some(exec) if log == Log::Shown => log::last_lines(shared, exec),
        _ => Vec::new(),
    };
    let span = |from: Timestamp, to: Timestamp| u64::try_from(to.duration_since(from).as_millis()).ok();
    PackageJob {
        duration_ms: record.started_at.zip(record.ended_at).and_then(|(from, to)| span(from, to)),
        id: record.id,
        sandbox: record.sandbox,
        manager: record.manager,
        packages: record.packages,
        state: record.state,
        message: record.message,
        installed: record.installed,
        exec: record.exec,
        log,
        created_at: record.created_at,
        started_at: record.started_at,
        ended_at: record.ended_at,
        request_id: record.request_id,
    }
}
