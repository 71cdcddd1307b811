//! `warren version`

use std::process::ExitCode;

use serde::Serialize;

use super::Context;
use crate::{cli::VERSION, client::StartMode, error::CommandResult, output};

/// Show the version of this program and of the daemon
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

#[derive(Serialize)]
struct Versions {
    client: &'static str,
    /// The version with the commit and its date, if this is a release.
    build: &'static str,
    /// Absent if no daemon runs: this command does not start one.
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<Daemon>,
}

#[derive(Serialize)]
struct Daemon {
    version: String,
    pid: Option<i32>,
}

pub(crate) async fn run(context: &Context, _: Args) -> CommandResult {
    let versions =
        Versions { client: env!("CARGO_PKG_VERSION"), build: VERSION, daemon: daemon(context).await };
    if context.json {
        output::json(&versions)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!("warren {VERSION}"))?;
    match versions.daemon {
        Some(Daemon { version, pid: Some(pid) }) => output::line(&format!("daemon {version} (pid {pid})"))?,
        Some(Daemon { version, pid: None }) => output::line(&format!("daemon {version}"))?,
        None => output::line("daemon not running")?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn daemon(context: &Context) -> Option<Daemon> {
    let client = context.client_that(StartMode::Never).await.ok()?;
    let found = client.version().await.ok()?;
    let version = found.build.unwrap_or(found.version);
    Some(Daemon { version, pid: client.daemon().and_then(|daemon| daemon.pid) })
}
