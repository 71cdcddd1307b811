//! `warren image ls`, `warren image inspect`

use std::process::ExitCode;

use frontends::rest::v1;
use serde::Serialize;

use crate::{
    commands::{Context, targets},
    error::CommandResult,
    output,
    pulls::short,
};

/// List images and their sizes on disk
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren image ls
  warren image ls --json")]
pub(crate) struct LsArgs {
    /// Print only digests
    #[arg(long, short)]
    quiet: bool,
    /// Accepted and without effect, as all images are listed
    #[arg(long, short, hide = true)]
    all: bool,
    /// Only images of this name, with any tag or with this one [default: all]
    #[arg(value_name = "IMAGE")]
    image: Option<String>,
}

/// Whether an image has this name, as people write it, with or without its tag.
fn is_called(image: &v1::Image, name: &str) -> bool {
    let wanted = familiar(name);
    image
        .references
        .iter()
        .map(|reference| familiar(reference))
        .any(|own| own == wanted || own.strip_prefix(wanted).is_some_and(|rest| rest.starts_with([':', '@'])))
}

/// Show all details of images
///
/// Prints JSON: an object for one image, an array for several.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren image inspect alpine")]
pub(super) struct InspectArgs {
    /// Names or digests
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

#[derive(Serialize)]
struct Listed {
    images: Vec<v1::Image>,
    usage: v1::ImagesUsage,
}

pub(crate) async fn list(context: &Context, args: &LsArgs) -> CommandResult {
    let client = context.client().await?;
    let mut images = client.images().await?;
    if let Some(name) = &args.image {
        images.retain(|image| is_called(image, name));
    }
    if args.quiet {
        for image in &images {
            output::line(&image.digest)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if context.json {
        output::json(&Listed { images, usage: client.images_usage().await? })?;
        return Ok(ExitCode::SUCCESS);
    }
    let heading = ["IMAGE", "DIGEST", "PLATFORM", "LAYERS", "SIZE", "ADDED", "USED", "USERS"];
    output::table(heading, images.iter().flat_map(rows))?;
    Ok(ExitCode::SUCCESS)
}

/// One row for each of its names.
fn rows(image: &v1::Image) -> Vec<[String; 8]> {
    let row = |name: &str| {
        [
            name.to_owned(),
            short(&image.digest),
            format!("{}/{}", image.os, image.architecture),
            image.layer_count.to_string(),
            output::bytes(image.size_bytes),
            output::ago(image.added_at),
            output::ago(image.last_used_at),
            image.used_by.len().to_string(),
        ]
    };
    if image.references.is_empty() {
        return vec![row("-")];
    }
    image.references.iter().map(|reference| row(familiar(reference))).collect()
}

/// The short form that people write.
pub(crate) fn familiar(reference: &str) -> &str {
    let short = reference.strip_prefix("docker.io/").unwrap_or(reference);
    if short.len() == reference.len() { reference } else { short.strip_prefix("library/").unwrap_or(short) }
}

pub(super) async fn inspect(context: &Context, args: &InspectArgs) -> CommandResult {
    let client = &context.client().await?;
    targets::inspect(&args.images, |image| client.image(image)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_people_write_them() {
        assert_eq!(familiar("docker.io/library/alpine:latest"), "alpine:latest");
        assert_eq!(familiar("docker.io/team/app:1"), "team/app:1");
        assert_eq!(familiar("ghcr.io/library/app:1"), "ghcr.io/library/app:1");
    }
}
