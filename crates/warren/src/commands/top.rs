//! `warren top`

use std::process::ExitCode;

use sandbox::ProcessEntry;

use super::Context;
use crate::{error::CommandResult, output};

/// Show the processes of a sandbox
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or id
    sandbox: String,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let found = context.client().await?.processes(&args.sandbox).await?;
    if context.json {
        output::json(&found)?;
    } else {
        let heading = ["PID", "PARENT", "USER", "STATE", "CPU TIME", "MEMORY", "COMMAND"];
        output::table(heading, found.processes.iter().map(row))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(process: &ProcessEntry) -> [String; 7] {
    [
        process.pid.to_string(),
        process.parent.to_string(),
        process.user.to_string(),
        process.state.to_string(),
        format!("{:.2}s", process.cpu_micros as f64 / 1e6),
        output::bytes(process.memory_bytes),
        process.command.join(" "),
    ]
}
