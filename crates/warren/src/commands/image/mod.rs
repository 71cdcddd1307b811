//! `warren image`

mod import;
mod look;
mod remove;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use self::{
    look::{LsArgs, familiar, list},
    remove::{RmArgs, remove},
};
use super::{Context, history, load, pull, push, save};
use crate::{error::CommandResult, output};

/// Manage images
#[derive(Debug, clap::Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:
  warren image ls
  warren image inspect alpine
  warren image tag alpine registry.example/team/base:1
  warren image rm alpine
  tar c -C rootfs . | warren image import - team/rootfs:1"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(alias = "list")]
    Ls(LsArgs),
    Inspect(look::InspectArgs),
    History(history::Args),
    Pull(pull::Args),
    Push(push::Args),
    Load(load::Args),
    Save(save::Args),
    Import(import::Args),
    Tag(TagArgs),
    #[command(alias = "remove")]
    Rm(RmArgs),
    Prune(remove::PruneArgs),
}

/// Add a name to an image, moving it from any other image
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren image tag alpine team/base:1
  warren image tag sha256:0123456789ab team/base:1")]
pub(crate) struct TagArgs {
    /// Name or digest
    image: String,
    /// New name
    name: String,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    match args.verb {
        Verb::Ls(args) => list(context, &args).await,
        Verb::Inspect(args) => look::inspect(context, &args).await,
        Verb::History(args) => history::run(context, args).await,
        Verb::Pull(args) => pull::run(context, args).await,
        Verb::Push(args) => push::run(context, args).await,
        Verb::Load(args) => load::run(context, args).await,
        Verb::Save(args) => save::run(context, args).await,
        Verb::Import(args) => import::run(context, args).await,
        Verb::Tag(args) => tag(context, &args).await,
        Verb::Rm(args) => remove(context, &args).await,
        Verb::Prune(args) => remove::prune(context, &args).await,
    }
}

pub(crate) async fn tag(context: &Context, args: &TagArgs) -> CommandResult {
    let image = context.client().await?.tag_image(&args.image, &args.name).await?;
    if context.json {
        output::json(&image)?;
    } else {
        output::line(&image.image.digest)?;
    }
    Ok(ExitCode::SUCCESS)
}
