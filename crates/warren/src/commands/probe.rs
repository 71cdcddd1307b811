//! `warren probe`, which `warren doctor --attack` runs inside a sandbox.

use std::process::ExitCode;

use sandbox::Error;

use crate::{error::CommandResult, output};

/// Try one thing that a hostile program would, and print the result
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    name: String,
    #[arg(allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Not asynchronous: some probes fork, which needs a process with one thread.
pub(crate) fn run(args: &Args) -> CommandResult {
    let Some(report) = attack::run(&args.name, &args.arguments) else {
        return Err(Error::invalid(format!("there is no probe called {:?}", args.name)).into());
    };
    output::json_line(&report)?;
    Ok(ExitCode::SUCCESS)
}
