//! `warren bench`

use std::process::ExitCode;

use super::Context;
use crate::{
    bench::{self, Options},
    error::CommandResult,
    output,
};

/// Measure how fast sandboxes are on this machine, beside its peers
///
/// Uses a daemon and directories of its own. bwrap, runc and docker take part where they are installed. What is compared
/// runs turn by turn, so read the ratios: the first of each group is 1.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each thing is measured
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Sandboxes created at once
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    burst: u32,
    /// Sandboxes alive while creation is measured again
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    alive: u32,
    /// Size of the file that goes in and out, in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=8192))]
    file_mib: u32,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let options = Options {
        runs: args.runs as usize,
        burst: args.burst as usize,
        crowd: args.alive as usize,
        file_mib: args.file_mib as usize,
    };
    let report = bench::measure(&options).await?;
    if context.json {
        output::json(&report)?;
    } else {
        output::line(&report.as_text())?;
    }
    Ok(ExitCode::SUCCESS)
}
