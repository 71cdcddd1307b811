//! `warren image rm`, `warren image prune`

use std::process::ExitCode;

use frontends::rest::v1;

use crate::{
    commands::{Context, sure::is_sure, targets::Failures},
    error::CommandResult,
    output,
};

/// Remove names of images; an image is deleted with its last name
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren image rm alpine
  warren image rm -f sha256:0123456789ab")]
pub(crate) struct RmArgs {
    /// Remove it even if it is in use; it is deleted when nothing uses it any more
    #[arg(long, short)]
    force: bool,
    /// Names or digests
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

/// Remove every image that no sandbox or snapshot uses
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren image prune
  warren image prune --force --json")]
pub(super) struct PruneArgs {
    /// Do not ask for confirmation
    #[arg(long, short)]
    force: bool,
}

pub(crate) async fn remove(context: &Context, args: &RmArgs) -> CommandResult {
    let client = context.client().await?;
    let mut all = v1::ImagesFreed { references: Vec::new(), images: Vec::new(), layers: 0, bytes: 0 };
    let mut failures = Failures::default();
    for image in &args.images {
        let Some(freed) = failures.note(client.remove_image(image, args.force).await, context.json) else {
            continue;
        };
        if !context.json {
            tell(&freed)?;
        }
        all.references.extend(freed.references);
        all.images.extend(freed.images);
        all.layers += freed.layers;
        all.bytes += freed.bytes;
    }
    if context.json {
        output::json(&all)?;
    }
    failures.end()
}

pub(super) async fn prune(context: &Context, args: &PruneArgs) -> CommandResult {
    if !args.force && !is_sure("Remove every image that no sandbox or snapshot uses?")? {
        return Ok(ExitCode::SUCCESS);
    }
    let freed = context.client().await?.prune_images().await?;
    if context.json {
        output::json(&freed)?;
        return Ok(ExitCode::SUCCESS);
    }
    tell(&freed)?;
    output::note(&format!("freed {}", output::bytes(freed.bytes)));
    Ok(ExitCode::SUCCESS)
}

fn tell(freed: &v1::ImagesFreed) -> CommandResult<()> {
    for reference in &freed.references {
        output::line(&format!("untagged {reference}"))?;
    }
    for image in &freed.images {
        output::line(&format!("removed {image}"))?;
    }
    Ok(())
}
