//! `warren volume`

mod files;
mod manage;

use clap::Subcommand;

use super::Context;
use crate::error::CommandResult;

/// Manage volumes: named storage that outlives sandboxes
#[derive(Debug, clap::Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:
  warren volume create data --quota 1g
  warren run -v data:/data python3 -c 'open(\"/data/x\", \"w\").write(\"kept\")'
  warren volume cat data:/x
  warren volume rm data"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Create(manage::CreateArgs),
    #[command(alias = "list")]
    Ls(manage::LsArgs),
    Inspect(manage::InspectArgs),
    #[command(alias = "remove")]
    Rm(manage::RmArgs),
    Prune(manage::PruneArgs),
    Files(files::FilesArgs),
    Cat(files::CatArgs),
    Cp(files::CpArgs),
    Unlink(files::UnlinkArgs),
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    match args.verb {
        Verb::Create(args) => manage::create(context, args).await,
        Verb::Ls(args) => manage::list(context, &args).await,
        Verb::Inspect(args) => manage::inspect(context, &args).await,
        Verb::Rm(args) => manage::remove(context, &args).await,
        Verb::Prune(args) => manage::prune(context, &args).await,
        Verb::Files(args) => files::list(context, &args).await,
        Verb::Cat(args) => files::cat(context, &args).await,
        Verb::Cp(args) => files::copy(context, &args).await,
        Verb::Unlink(args) => files::unlink(context, &args).await,
    }
}
