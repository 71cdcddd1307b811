//! `warren image import`

use std::{path::PathBuf, process::ExitCode};

use crate::{
    commands::{Context, load},
    copy::Progress,
    error::CommandResult,
    output,
};

/// Create an image from a tar of a root file system
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren image import rootfs.tar.gz team/rootfs:1
  tar c -C rootfs . | warren image import - team/rootfs:1
  warren image import root.tar app --config '{\"cmd\": [\"/bin/app\"], \"env\": [\"LANG=C\"]}'")]
pub(super) struct Args {
    /// Tar archive, compressed or not, or `-` for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the image
    #[arg(value_name = "NAME")]
    name: String,
    /// Image configuration as JSON: env, entrypoint, cmd, workingDir, user, labels, exposedPorts, stopSignal
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    /// Platform of the image [default: this machine's]
    #[arg(long)]
    platform: Option<String>,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

pub(super) async fn run(context: &Context, args: Args) -> CommandResult {
    let progress = Progress::new(!args.quiet && !context.json);
    let instead = format!(
        "Pipe it in as a tar: tar c -C {} . | warren image import - {}",
        args.file.display(),
        args.name
    );
    let tar = load::open(Some(&args.file), &progress, &instead).await?;
    let client = context.client().await?;
    let (platform, config) = (args.platform.as_deref(), args.config.as_deref());
    let image = client.import_image(&args.name, platform, config, tar).await?;
    progress.finish();
    if context.json {
        output::json(&image)?;
        return Ok(ExitCode::SUCCESS);
    }
    for warning in image.layers.iter().flat_map(|layer| &layer.warnings) {
        output::warn(&output::printable(warning));
    }
    output::line(&image.image.digest)?;
    Ok(ExitCode::SUCCESS)
}
