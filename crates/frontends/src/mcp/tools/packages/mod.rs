//! `sandbox_package_install`, `sandbox_package_status`, `sandbox_package_list`: packages by jobs that outlive the call.

#[cfg(test)]
mod tests;

use std::time::Duration;

use engine::{PackageJob, PackagePresence, SandboxRef};
use sandbox::{Error, ErrorKind, InstalledPackage, PackageJobId, PackageManager, PackageSpec, PackageState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use super::lacks;
use crate::mcp::{Answer, Call, Failure, Native, Tool, ToolResult, next_call::written, words::KnownTools};

/// How long a call waits for a job unless it says otherwise, and at most.
// Some clients give up on a call after five seconds.
const DEFAULT_WAIT: Duration = Duration::from_secs(3);
const MAX_WAIT: Duration = Duration::from_secs(300);
/// How often a caller who asked for it hears the last line of the log.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// `waitMs` in the proposed next call for a job.
const WAIT_MS: u64 = 10_000;
/// Jobs that one answer lists.
const MAX_JOBS: usize = 20;
/// Packages that one answer lists.
const MAX_LISTED: usize = 500;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Packages;
        "sandbox_package_install", "Install packages", SETS, install, core:
            "Install packages with pip, npm or apt in a running sandbox. Waits a while, then returns a job id to poll.";
        "sandbox_package_status", "Package status", READS, status, core:
            "Get the status of an install job or a package: installing, installed, failed or not_installed.";
        "sandbox_package_list", "List packages", READS, list:
            "List the packages installed in a sandbox, with their versions.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct InstallArguments {
    /// Sandbox
    name: String,
    /// With versions as the manager writes them, such as requests>=2
    packages: Option<Vec<String>>,
    /// The same for one
    #[schemars(extend("x-full-only" = true))]
    package: Option<String>,
    /// Default pip
    #[schemars(with = "Option<Native<PackageManager>>")]
    manager: Option<PackageManager>,
    /// For pip
    requirements_file: Option<String>,
    /// Of the project, for npm
    cwd: Option<String>,
    /// Wait for the end; default 3000, at most 300000
    wait_ms: Option<u64>,
    #[schemars(extend("x-full-only" = true))]
    #[schemars(range(min = 1))]
    timeout_ms: Option<u64>,
    #[schemars(extend("x-full-only" = true))]
    /// The same again returns the same job
    request_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct StatusArguments {
    /// Sandbox
    name: String,
    /// Without it and package: all jobs
    job_id: Option<String>,
    package: Option<String>,
    /// Default whichever has it
    #[schemars(with = "Option<Native<PackageManager>>")]
    manager: Option<PackageManager>,
    /// Wait for a job; default 3000, at most 300000
    wait_ms: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListArguments {
    /// Sandbox
    name: String,
    /// Default all that are there
    #[schemars(with = "Option<Native<PackageManager>>")]
    manager: Option<PackageManager>,
    /// Part of the names
    filter: Option<String>,
}

/// How a job or a package stands.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PackageResult {
    /// installing, installed, failed or not_installed
    state: String,
    #[schemars(with = "Native<PackageManager>")]
    manager: PackageManager,
    packages: Vec<String>,
    /// Present once they are there.
    #[schemars(with = "Vec<Native<InstalledPackage>>")]
    installed: Vec<InstalledPackage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The last lines of the log of one that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    log: Vec<String>,
    /// sandbox_exec_poll reads the whole log by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    exec_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
}

impl From<PackageJob> for PackageResult {
    fn from(job: PackageJob) -> Self {
        Self {
            state: job.state.to_string(),
            manager: job.manager,
            packages: job.packages,
            installed: job.installed,
            job_id: Some(job.id.to_string()),
            message: job.message,
            log: if job.state == PackageState::Failed { job.log } else { Vec::new() },
            exec_session_id: job.exec.map(|exec| exec.to_string()),
            duration_ms: job.duration_ms,
        }
    }
}

async fn install(call: Call, arguments: InstallArguments) -> ToolResult<PackageResult> {
    let which = call.sandbox(&arguments.name)?;
    let wait = patience(arguments.wait_ms);
    let mut packages = arguments.packages.unwrap_or_default();
    packages.extend(arguments.package);
    let spec = PackageSpec {
        manager: arguments.manager.unwrap_or_default(),
        packages,
        requirements_file: arguments.requirements_file,
        cwd: arguments.cwd,
        timeout: arguments.timeout_ms.map(Duration::from_millis),
        request_id: arguments.request_id.map(|id| id.parse()).transpose().map_err(Error::from)?,
    };
    let job = call.engine().install_packages(&call.who, &which, spec).await.map_err(refused)?;
    let which = SandboxRef::from(&job.sandbox);
    let job = follow(&call, &which, job, wait).await?;
    Ok(answer(&call, &arguments.name, job))
}

/// One job or package, or all jobs of the sandbox.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum StatusAnswer {
    One(PackageResult),
    Jobs {
        /// Newest first.
        jobs: Vec<PackageResult>,
    },
}

async fn status(call: Call, arguments: StatusArguments) -> ToolResult<StatusAnswer> {
    let which = call.sandbox(&arguments.name)?;
    let one = match (&arguments.job_id, &arguments.package) {
        (Some(id), _) => status_of_job(&call, &which, &arguments, id).await?,
        (None, Some(package)) => status_of_package(&call, &which, &arguments, package).await?,
        (None, None) => return status_of_jobs(&call, &which, &arguments).await,
    };
    Ok(one.map(StatusAnswer::One))
}

async fn status_of_jobs(
    call: &Call,
    which: &SandboxRef,
    arguments: &StatusArguments,
) -> ToolResult<StatusAnswer> {
    let mut jobs = call.engine().package_jobs(&call.who, which).await.map_err(refused)?;
    jobs.retain(|job| arguments.manager.is_none_or(|manager| job.manager == manager));
    let jobs: Vec<_> = jobs.into_iter().rev().take(MAX_JOBS).map(PackageResult::from).collect();
    let list = written("sandbox_package_list", &json!({ "name": arguments.name }));
    let way = KnownTools::of(call, &call.surface).way_to("sandbox_package_list");
    let way = way.map_or(String::new(), |way| format!(" {way}"));
    let none = jobs
        .is_empty()
        .then(|| format!("No package was installed by a job. Call {list} for what is there.{way}"));
    Ok(Answer::new(StatusAnswer::Jobs { jobs }).warn_all(none))
}

async fn status_of_job(
    call: &Call,
    which: &SandboxRef,
    arguments: &StatusArguments,
    id: &str,
) -> ToolResult<PackageResult> {
    let name = &arguments.name;
    let id: PackageJobId = id.parse().map_err(|_malformed| {
        let shown: String = id.chars().take(64).collect();
        let list = written("sandbox_package_status", &json!({ "name": name }));
        Failure::from(Error::not_found(format!("no package job {shown:?}")))
            .with_hint(format!("Call {list} to see the jobs of the sandbox."))
    })?;
    let job = call.engine().package_job(&call.who, which, &id).await.map_err(refused)?;
    Ok(answer(call, name, follow(call, which, job, patience(arguments.wait_ms)).await?))
}

async fn status_of_package(
    call: &Call,
    which: &SandboxRef,
    arguments: &StatusArguments,
    package: &str,
) -> ToolResult<PackageResult> {
    let (engine, who, name, manager) = (call.engine(), &call.who, &arguments.name, arguments.manager);
    let mut found = engine.package_status(who, which, manager, package).await.map_err(refused)?;
    if let (PackagePresence::Installing, Some(job)) = (found.state, found.job.clone()) {
        let job = follow(call, which, job, patience(arguments.wait_ms)).await?;
        if job.state == PackageState::Installing {
            return Ok(answer(call, name, job));
        }
        found = engine.package_status(who, which, manager, package).await.map_err(refused)?;
    }
    let state = found.state.as_str().to_owned();
    if let Some(job) = found.job {
        let answer = answer(call, name, job);
        return Ok(Answer { data: PackageResult { state, ..answer.data }, ..answer });
    }
    let installed = found.version.map(|version| InstalledPackage { name: found.name.clone(), version });
    let is_there = installed.is_some();
    let result = Answer::new(PackageResult {
        state,
        manager: found.manager,
        packages: vec![found.name],
        installed: installed.into_iter().collect(),
        job_id: None,
        message: None,
        log: Vec::new(),
        exec_session_id: None,
        duration_ms: None,
    });
    let asked = json!({ "name": name, "manager": result.data.manager, "packages": result.data.packages });
    let hint = format!("Call {} to install it.", written("sandbox_package_install", &asked));
    Ok(if is_there { result } else { result.warn(hint) })
}

#[derive(Debug, Serialize, JsonSchema)]
struct ListResult {
    managers: Vec<ManagerResult>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ManagerResult {
    #[schemars(with = "Native<PackageManager>")]
    manager: PackageManager,
    /// Number of matches, listed or not.
    total: usize,
    #[schemars(with = "Vec<Native<InstalledPackage>>")]
    packages: Vec<InstalledPackage>,
}

async fn list(call: Call, arguments: ListArguments) -> ToolResult<ListResult> {
    let which = call.sandbox(&arguments.name)?;
    let manager = arguments.manager;
    let listings = call.engine().packages(&call.who, &which, manager).await.map_err(refused)?;
    let filter = arguments.filter.unwrap_or_default().to_lowercase();
    let mut is_cut = false;
    let late = listings.iter().filter(|listing| listing.timed_out).map(|listing| {
        let manager = listing.manager;
        format!("{manager} did not answer in time, so its packages are missing. Call again with manager {manager}.")
    });
    let late: Vec<String> = late.collect();
    let managers = listings.into_iter().map(|listing| {
        let mut found = listing.packages;
        found.retain(|package| package.name.to_lowercase().contains(&filter));
        let total = found.len();
        is_cut |= total > MAX_LISTED;
        found.truncate(MAX_LISTED);
        ManagerResult { manager: listing.manager, total, packages: found }
    });
    let answer = Answer::new(ListResult { managers: managers.collect() }).warn_all(late);
    let warning = format!("Only the first {MAX_LISTED} are listed. Call again with a filter or a manager.");
    Ok(if is_cut { answer.warn(warning) } else { answer })
}

fn patience(millis: Option<u64>) -> Duration {
    millis.map_or(DEFAULT_WAIT, Duration::from_millis).min(MAX_WAIT)
}

/// Stays with a job until it ended or the time is up. The job goes on when the caller goes away.
pub(crate) async fn follow(
    call: &Call,
    which: &SandboxRef,
    mut job: PackageJob,
    wait: Duration,
) -> Result<PackageJob, Failure> {
    let (begun, engine, who) = (Instant::now(), call.engine(), &call.who);
    loop {
        let left = wait.saturating_sub(begun.elapsed());
        if job.state != PackageState::Installing || left.is_zero() {
            return Ok(job);
        }
        let step = if call.progress.is_wanted() { left.min(PROGRESS_EVERY) } else { left };
        job = tokio::select! {
            job = engine.wait_package_job(who, which, &job.id, Some(step)) => job?,
            () = call.cancelled.cancelled() => {
                let message = "the call was cancelled; the installation continues";
                return Err(Failure::new(ErrorKind::Cancelled, message));
            }
        };
        let line = job.log.last().or(job.message.as_ref());
        let line = line.map_or_else(|| format!("{} begins", job.manager), Clone::clone);
        call.progress.tell(begun.elapsed().as_secs_f64(), Some(wait.as_secs_f64()), line).await;
    }
}

/// The job, with a word on what to call next.
fn answer(call: &Call, name: &str, job: PackageJob) -> Answer<PackageResult> {
    let (state, id) = (job.state, job.id.to_string());
    let exec = job.exec.as_ref().map(ToString::to_string);
    let lack = match state {
        PackageState::Failed => lacks::of_install(name, &call.surface, &job.log),
        _ => None,
    };
    let answer = Answer::new(PackageResult::from(job));
    let next = match (state, exec) {
        (PackageState::Installed, _) => return answer,
        (PackageState::Installing, _) => {
            let status =
                written("sandbox_package_status", &json!({ "name": name, "jobId": id, "waitMs": WAIT_MS }));
            format!("Still installing. Call {status}.")
        }
        (PackageState::Failed, Some(exec)) => {
            let poll = written("sandbox_exec_poll", &json!({ "execSessionId": exec, "cursor": 0 }));
            format!("The installation failed. Call {poll} for the whole log.")
        }
        (PackageState::Failed, None) => "It failed before the installation started; see message.".to_owned(),
    };
    answer.warn_all(lack).warn(next)
}

/// Returns the failure for something that cannot be done, with the next call.
fn refused(error: Error) -> Failure {
    Failure::from(error)
        .or_hint(
            ErrorKind::InvalidRequest,
            "Give packages such as [\"numpy\", \"requests>=2\"], a requirementsFile for pip, or the cwd of a project for npm.",
        )
        .or_hint(
            ErrorKind::Unsupported,
            "Call runtime_check; the sandbox or the daemon does not have this package manager.",
        )
}
