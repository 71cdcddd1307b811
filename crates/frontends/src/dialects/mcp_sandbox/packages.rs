//! `install_package_in_sandbox`, `check_package_installation_status`: jobs of the engine, in their words.

use std::time::Duration;

use engine::{PackageJob, PackagePresence, SandboxRef};
use sandbox::{Package, PackageManager, PackageSpec, PackageState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{sandboxes, words};
use crate::mcp::{Answer, Call, Failure, ToolResult, follow_package_job};

/// How long a call waits for an install, as theirs does: shorter than the patience of their clients.
const WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    sandbox_id: String,
    package_name: String,
}

/// How an install or a package stands.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Status {
    package_name: String,
    /// installing, success, failed or not_found
    status: &'static str,
    message: String,
    complete: bool,
    /// Null while it is not known.
    success: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_seconds: Option<f64>,
    /// The end of the log of an install that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
}

impl Status {
    fn new(package: &str, status: &'static str, message: String) -> Self {
        let is_installing = status == "installing";
        Self {
            package_name: package.to_owned(),
            status,
            message,
            complete: !is_installing,
            success: (!is_installing).then_some(status == "success"),
            version: None,
            start_time: None,
            end_time: None,
            elapsed_seconds: None,
            stderr: None,
        }
    }

    fn of_job(package: &str, job: PackageJob) -> Self {
        let why = job.message.clone();
        let mut status = match job.state {
            PackageState::Installing => Self::new(package, "installing", still_installing(package)),
            PackageState::Installed => {
                Self::new(package, "success", format!("Successfully installed {package}"))
            }
            PackageState::Failed => {
                let why = why.unwrap_or_else(|| "see stderr".to_owned());
                Self::new(package, "failed", format!("Failed to install {package}: {why}"))
            }
        };
        status.version = job.installed.into_iter().next().map(|installed| installed.version);
        status.stderr = (job.state == PackageState::Failed).then(|| job.log.join("\n"));
        let seconds = |at: jiff::Timestamp| at.as_millisecond() as f64 / 1000.0;
        let started = job.started_at.unwrap_or(job.created_at);
        let ended = job.ended_at.unwrap_or_else(jiff::Timestamp::now);
        status.start_time = Some(seconds(started));
        status.end_time = job.ended_at.map(seconds);
        status.elapsed_seconds = Some((seconds(ended) - seconds(started)).max(0.0));
        status
    }
}

fn still_installing(package: &str) -> String {
    format!("{package} is being installed. Call check_package_installation_status to see when it is done.")
}

pub(super) async fn install(call: Call, arguments: Arguments) -> ToolResult<Status> {
    let package = arguments.package_name.clone();
    begin(&call, arguments).await.map_err(|failure| as_status(&package, failure))
}

async fn begin(call: &Call, Arguments { sandbox_id, package_name }: Arguments) -> ToolResult<Status> {
    let which = running(call, &sandbox_id).await?;
    let spec = PackageSpec {
        manager: PackageManager::Pip,
        packages: vec![package_name.clone()],
        ..PackageSpec::default()
    };
    let job = call.engine().install_packages(&call.who, &which, spec).await.map_err(words::failure)?;
    let job = follow_package_job(call, &which, job, WAIT).await?;
    Ok(Answer::new(Status::of_job(&package_name, job)))
}

pub(super) async fn check(call: Call, arguments: Arguments) -> ToolResult<Status> {
    let package = arguments.package_name.clone();
    look(&call, arguments).await.map_err(|failure| as_status(&package, failure))
}

async fn look(call: &Call, Arguments { sandbox_id, package_name }: Arguments) -> ToolResult<Status> {
    let which = running(call, &sandbox_id).await?;
    // `numpy` and `numpy==2` are one package: what counts is what is there.
    let package = Package::new(PackageManager::Pip, &package_name)
        .map_err(|wrong| words::failure(sandbox::Error::from(wrong)))?;
    let (engine, who) = (call.engine(), &call.who);
    let ask = || engine.package_status(who, &which, Some(PackageManager::Pip), package.name());
    let mut found = ask().await.map_err(words::failure)?;
    if let (PackagePresence::Installing, Some(job)) = (found.state, found.job.clone()) {
        let job = follow_package_job(call, &which, job, WAIT).await?;
        if job.state != PackageState::Failed {
            return Ok(Answer::new(Status::of_job(&package_name, job)));
        }
        found = ask().await.map_err(words::failure)?;
    }
    let status = match (found.state, found.job) {
        (PackagePresence::NotInstalled, _) => Status::new(
            &package_name,
            "not_found",
            format!("{package_name} is not installed. Call install_package_in_sandbox to install it."),
        ),
        (_, Some(job)) => Status::of_job(&package_name, job),
        (_, None) => Status::new(&package_name, "success", format!("{package_name} is already installed")),
    };
    Ok(Answer::new(Status { version: found.version.or(status.version.clone()), ..status }))
}

async fn running(call: &Call, sandbox: &str) -> Result<SandboxRef, Failure> {
    let view = sandboxes::find(call, sandbox).await?;
    let which = SandboxRef::from(&view.id);
    call.engine().ensure_running(&call.who, &which).await.map_err(words::failure)?;
    Ok(which)
}

/// A failure has the fields of an answer too: clients of theirs look at `status`.
fn as_status(package: &str, failure: Failure) -> Failure {
    let fields = json!({ "package_name": package, "status": "error", "complete": true, "success": false });
    failure.with_details(fields)
}
