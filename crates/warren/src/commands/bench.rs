//! `warren bench`

use std::process::ExitCode;

use super::Context;
use crate::{
    bench::{self, CodeOptions, McpOptions, Options, Report, StorageOptions},
    error::CommandResult,
    output,
};

/// Measure how fast sandboxes are on this machine, beside its peers
///
/// Uses a daemon and directories of its own. bwrap, runc and docker take part where they are installed. What is compared
/// runs turn by turn, so read the ratios: the first of each group is 1.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
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

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Code: the first result of a new sandbox, warm cells, forks, many cells, beside python3 -c and Jupyter
    Code {
        /// How often each thing is measured
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        runs: u32,
        /// Cells that run in one context, one after another
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        cells: u32,
    },
    /// MCP: from spawn to the first answer, lists, commands, many clients at once
    Mcp {
        /// How often each thing is measured
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        runs: u32,
        /// Clients at the same time
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
        clients: u32,
        /// Calls of all of them together
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        calls: u32,
    },
    /// Storage: images of many layers, unpacking beside tar, pulls beside plain downloads, snapshots, forks
    Storage {
        /// How often each thing is measured
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        runs: u32,
        /// Layers of the image that is compared with one of a single layer
        #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=127))]
        layers: u32,
        /// Forks at once, at the most
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=256))]
        forks: u32,
        /// What a sandbox changed before it is forked, in MiB
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
        changed_mib: u32,
        /// Size of the layer that is unpacked, in MiB
        #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=4096))]
        image_mib: u32,
    },
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let report = match &args.what {
        None => spine(&args).await?,
        Some(What::Code { runs, cells }) => {
            bench::measure_code(&CodeOptions { runs: *runs as usize, cells: *cells as usize }).await?
        }
        Some(What::Mcp { runs, clients, calls }) => {
            let options =
                McpOptions { runs: *runs as usize, clients: *clients as usize, calls: *calls as usize };
            bench::measure_mcp(&options).await?
        }
        Some(What::Storage { runs, layers, forks, changed_mib, image_mib }) => {
            let options = StorageOptions {
                runs: *runs as usize,
                layers: *layers as usize,
                forks: *forks as usize,
                changed_mib: *changed_mib as usize,
                image_mib: *image_mib as usize,
            };
            bench::measure_storage(&options).await?
        }
    };
    if context.json {
        output::json(&report)?;
    } else {
        output::line(&report.as_text())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn spine(args: &Args) -> CommandResult<Report> {
    let options = Options {
        runs: args.runs as usize,
        burst: args.burst as usize,
        crowd: args.alive as usize,
        file_mib: args.file_mib as usize,
    };
    bench::measure(&options).await
}
