//! `warren snapshot`

mod archive;
mod look;
mod take;

use clap::Subcommand;

use super::Context;
use crate::error::CommandResult;

/// Manage snapshots: save a sandbox's files, and create sandboxes from them
///
/// A snapshot holds files and the settings to run them, but no memory and no processes. A running sandbox is paused
/// only during the copy.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:
  warren snapshot create dev --name ready
  warren snapshot ls
  warren snapshot restore ready --name again
  warren snapshot save ready -o ready.tar.zst
  warren snapshot load -i ready.tar.zst"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Create(take::CreateArgs),
    #[command(alias = "list")]
    Ls(look::LsArgs),
    Inspect(look::InspectArgs),
    Verify(look::VerifyArgs),
    #[command(alias = "remove")]
    Rm(take::RmArgs),
    #[command(alias = "export")]
    Save(archive::SaveArgs),
    #[command(alias = "import")]
    Load(archive::LoadArgs),
    Restore(take::RestoreArgs),
    Reindex(look::ReindexArgs),
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    match args.verb {
        Verb::Create(args) => take::create(context, args).await,
        Verb::Ls(args) => look::list(context, &args).await,
        Verb::Inspect(args) => look::inspect(context, &args).await,
        Verb::Verify(args) => look::verify(context, &args).await,
        Verb::Rm(args) => take::remove(context, &args).await,
        Verb::Save(args) => archive::save(context, args).await,
        Verb::Load(args) => archive::load(context, args).await,
        Verb::Restore(args) => take::restore(context, args).await,
        Verb::Reindex(_) => look::reindex(context).await,
    }
}
