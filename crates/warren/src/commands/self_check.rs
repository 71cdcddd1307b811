//! `warren self-check`

use std::env;

use super::{
    Context,
    doctor::{DaemonProgram, Diagnosis, check_daemon},
};
use crate::{
    cli::VERSION,
    doctor::{self, Check},
    error::CommandResult,
};

/// Check that this program works with what is installed, after an install or an upgrade
///
/// Reads the records that an older version left, asks the running daemon for its version, and creates, uses and removes
/// a sandbox with a separate daemon of this version. The exit code is 1 if something does not work, and 3 if everything
/// does but the running daemon is of another version or commit. `warren doctor` says more about this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(context: &Context, _: Args) -> CommandResult {
    let (daemon, running) = check_daemon(context).await;
    let checks = vec![
        program(),
        doctor::check_records(&context.directories.home),
        daemon,
        doctor::try_sandbox(&context.directories).await.0,
    ];
    let diagnosis = Diagnosis::of(checks);
    match running {
        DaemonProgram::Same => diagnosis.report(context),
        DaemonProgram::Other => diagnosis.report_old_daemon(context),
    }
}

/// Reports which program this is: an older one may come first in the PATH.
fn program() -> Check {
    let path = env::current_exe().map_or_else(|error| error.to_string(), |path| path.display().to_string());
    Check::works("program", format!("warren {VERSION}, {path}"))
}
