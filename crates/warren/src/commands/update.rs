//! `warren update`

use frontends::rest::v1::SandboxChange;
use sandbox::{ByteSize, CpuCount, Limits};

use super::{Context, targets};
use crate::{arguments, error::CommandResult, output};

/// Change limits of sandboxes, also while they run
///
/// Limits that are not given stay. A stopped sandbox gets them when it starts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren update --memory 2g --cpus 1.5 dev
  warren update --pids 1024 web worker")]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(["memory", "swap", "cpus", "pids"]))]
pub(crate) struct Args {
    /// Memory limit, such as 512m or 2g
    #[arg(long, short = 'm', value_name = "SIZE", value_parser = arguments::size)]
    memory: Option<ByteSize>,
    /// Swap in addition to memory
    #[arg(long, value_name = "SIZE")]
    swap: Option<ByteSize>,
    /// Number of CPUs; may be a fraction, such as 0.5
    #[arg(long, value_name = "N")]
    cpus: Option<CpuCount>,
    /// Maximum number of processes and threads
    #[arg(long, value_name = "N", alias = "pids-limit", value_parser = arguments::number::<u32>)]
    pids: Option<u32>,
    /// Names or ids
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let Args { memory, swap, cpus, pids, sandboxes } = args;
    let limits = Limits { memory, swap, cpus, pids, ..Limits::default() };
    let change = &SandboxChange { limits: Some(limits.clone()), ..SandboxChange::default() };
    let client = &context.client().await?;
    targets::each(context, &sandboxes, |sandbox| {
        let limits = &limits;
        async move {
            let known = client.inspect(sandbox).await?.warnings;
            let changed = client.change(sandbox, change).await?;
            let news: Vec<_> = changed.warnings.iter().filter(|warning| !known.contains(warning)).collect();
            news.iter().for_each(|warning| output::warn(warning));
            // A limit that was not held before either is no news, and yet an answer to this change.
            if news.is_empty() {
                let held = changed.isolation.as_ref();
                let weaker = held.and_then(|held| engine::not_held_as_asked(held, limits));
                weaker.iter().for_each(|line| output::warn(line));
            }
            Ok(changed)
        }
    })
    .await
}
