//! `warren package`

use std::{process::ExitCode, time::Duration};

use clap::Subcommand;
use engine::Entry;
use frontends::rest::v1;
use sandbox::{PackageManager, PackageState, RequestId};

use super::Context;
use crate::{
    arguments,
    client::{Client, EntryStream},
    error::CommandResult,
    output,
};

/// How long one request for the state of a job waits before it is repeated.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Install and list packages in a sandbox
///
/// The sandbox needs no network: the daemon fetches packages from the indexes in its configuration, or else this
/// machine's.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:
  warren package install dev numpy 'requests>=2'
  warren package install dev --manager apt jq
  warren package status dev numpy
  warren package ls dev --manager npm"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Install(InstallArgs),
    Status(StatusArgs),
    #[command(alias = "list")]
    Ls(LsArgs),
}

/// Install packages and show the package manager's output
///
/// The exit code is 1 if the installation failed. Ctrl-C leaves it running.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren package install dev numpy pandas==2.2.0
  warren package install dev -m npm left-pad @types/node@20
  warren package install dev -m apt -d jq")]
struct InstallArgs {
    /// Package manager: pip, npm or apt
    #[arg(long, short = 'm', default_value = "pip")]
    manager: PackageManager,
    /// Start the installation, print the job id and return at once
    #[arg(long, short = 'd')]
    detach: bool,
    /// Stop the installation after this long [default: 30m]
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    timeout: Option<Duration>,
    /// Idempotency key: the same id returns the first job again
    #[arg(long, value_name = "ID", visible_alias = "requestId")]
    request_id: Option<RequestId>,
    /// Requirements file in the sandbox, for pip
    #[arg(long, short = 'r', value_name = "PATH")]
    requirements: Option<String>,
    /// Directory in the sandbox to install from; npm installs for the project there [default: its working directory]
    #[arg(long, value_name = "PATH")]
    cwd: Option<String>,
    /// Name or id
    sandbox: String,
    /// Package names, with versions in the package manager's own syntax
    #[arg(required_unless_present_any = ["requirements", "cwd"], value_name = "PACKAGE")]
    packages: Vec<String>,
}

/// Show the status of a job or a package; without either, list the jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren package status dev
  warren package status dev numpy
  warren package status dev pkg-0123456789abc")]
struct StatusArgs {
    /// Package manager: pip, npm or apt [default: any that has the package]
    #[arg(long, short = 'm')]
    manager: Option<PackageManager>,
    /// Name or id
    sandbox: String,
    /// Package name or job id
    #[arg(value_name = "PACKAGE|JOB")]
    what: Option<String>,
}

/// List installed packages
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren package ls dev
  warren package ls dev --manager apt --json")]
struct LsArgs {
    /// Only packages of this package manager: pip, npm or apt
    #[arg(long, short = 'm')]
    manager: Option<PackageManager>,
    /// Name or id
    sandbox: String,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    match args.verb {
        Verb::Install(args) => install(context, args).await,
        Verb::Status(args) => status(context, &args).await,
        Verb::Ls(args) => list(context, &args).await,
    }
}

async fn install(context: &Context, args: InstallArgs) -> CommandResult {
    let client = context.client().await?;
    let request = v1::PackageRequest {
        manager: Some(args.manager),
        packages: args.packages,
        requirements_file: args.requirements,
        cwd: args.cwd,
        timeout_ms: args.timeout.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        request_id: args.request_id,
    };
    let mut job = client.install_packages(&args.sandbox, &request).await?;
    if !args.detach {
        job = follow(&client, job, context.json).await?;
    }
    if context.json {
        output::json(&job)?;
    } else if args.detach {
        output::line(job.id.as_str())?;
    } else {
        conclude(&job)?;
    }
    Ok(if job.state == PackageState::Failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Follows a job to its end and prints its output, unless JSON was asked for.
async fn follow(client: &Client, mut job: v1::PackageJob, quiet: bool) -> CommandResult<v1::PackageJob> {
    let sandbox = job.sandbox.to_string();
    let mut is_shown = quiet;
    while job.state == PackageState::Installing {
        if let Some(exec) = job.exec.as_ref().filter(|_| !is_shown) {
            is_shown = true;
            print(EntryStream::new(client, &job.sandbox, exec, 1, true)).await?;
        }
        // Short until there is something to show: the installation starts in a moment.
        let patience = if is_shown { LOOK_EVERY } else { LOOK_EVERY / 10 };
        job = client.wait_package_job(&sandbox, job.id.as_str(), patience).await?;
    }
    if let Some(exec) = job.exec.as_ref().filter(|_| !is_shown) {
        print(EntryStream::new(client, &job.sandbox, exec, 1, true)).await?;
    }
    Ok(job)
}

/// To stderr: stdout is for the result.
async fn print(mut entries: EntryStream) -> CommandResult<()> {
    use std::io::Write as _;
    loop {
        let batch = entries.next_batch().await?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut out = std::io::stderr().lock();
        for (_, bytes) in batch.iter().filter_map(Entry::output) {
            out.write_all(bytes)?;
        }
    }
}

fn conclude(job: &v1::PackageJob) -> CommandResult<()> {
    for package in &job.installed {
        output::line(&format!(
            "{} {}",
            output::printable(&package.name),
            output::printable(&package.version)
        ))?;
    }
    if job.state == PackageState::Failed {
        // What was printed ends with the reason; the message repeats it.
        let message = job.message.as_deref().unwrap_or_default();
        let is_told = job.log.iter().any(|line| !line.trim().is_empty() && message.contains(line.trim()));
        let message = if is_told || message.is_empty() { "the installation failed" } else { message };
        output::error(&output::printable(message));
    }
    Ok(())
}

async fn status(context: &Context, args: &StatusArgs) -> CommandResult {
    let client = context.client().await?;
    let Some(what) = &args.what else { return jobs(context, &client, &args.sandbox).await };
    if what.starts_with(sandbox::PackageJobId::PREFIX) {
        let job = client.package_job(&args.sandbox, what).await?;
        if context.json {
            output::json(&job)?;
        } else {
            output::line(&summary(&job))?;
            for line in &job.log {
                output::line(&format!("  {}", output::printable(line)))?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let found = client.packages(&args.sandbox, args.manager, Some(what)).await?.status;
    if context.json {
        output::json(&found)?;
    } else if let Some(found) = found {
        let version = found.version.map(|version| format!(" {version}")).unwrap_or_default();
        output::line(&output::printable(&format!("{}{version} {}", found.name, found.state.as_str())))?;
        if let Some(job) = &found.job {
            output::line(&summary(job))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn jobs(context: &Context, client: &Client, sandbox: &str) -> CommandResult {
    let jobs = client.package_jobs(sandbox).await?;
    if context.json {
        output::json(&v1::PackageJobList { jobs })?;
    } else {
        for job in &jobs {
            output::line(&summary(job))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(job: &v1::PackageJob) -> String {
    let message = job.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    let (id, state, manager) = (&job.id, job.state, job.manager);
    output::printable(&format!("{id} {state} {manager} {}{message}", job.packages.join(" ")))
}

async fn list(context: &Context, args: &LsArgs) -> CommandResult {
    let client = context.client().await?;
    let found = client.packages(&args.sandbox, args.manager, None).await?;
    if context.json {
        output::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = found.managers.iter().flat_map(|listing| {
        let row = |package: &v1::Package| {
            [listing.manager.to_string(), package.name.clone(), package.version.clone()]
        };
        listing.packages.iter().map(row)
    });
    output::table(["MANAGER", "NAME", "VERSION"], rows)?;
    Ok(ExitCode::SUCCESS)
}
