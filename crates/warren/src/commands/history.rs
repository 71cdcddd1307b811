//! `warren history`

use std::process::ExitCode;

use frontends::rest::v1;
use serde::Serialize;

use super::Context;
use crate::{error::CommandResult, output};

/// Longest command that is shown of a step, unless all of it is asked for.
const MAX_SHOWN_CHARS: usize = 60;

/// Show the steps that made an image, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren history alpine
  warren history --no-trunc team/app:1.2")]
pub(crate) struct Args {
    /// Show commands in full
    #[arg(long)]
    no_trunc: bool,
    /// Name or digest
    image: String,
}

#[derive(Serialize)]
struct Listed {
    history: Vec<v1::ImageStep>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let detail = context.client().await?.image(&args.image).await?;
    if context.json {
        output::json(&Listed { history: detail.history })?;
        return Ok(ExitCode::SUCCESS);
    }
    let layers: Vec<_> = detail.layers.iter().map(|layer| layer.disk_bytes).collect();
    let rows = newest_first(&detail.history, &layers).into_iter();
    let rows = rows.map(|(step, bytes)| row(step, bytes, args.no_trunc));
    output::table(["CREATED", "CREATED BY", "SIZE", "COMMENT"], rows)?;
    Ok(ExitCode::SUCCESS)
}

/// The steps with the sizes of their layers. Each step that changed files made one layer, in order; where steps are
/// missing, it is the oldest ones, of a base that was made without a history.
fn newest_first<'a>(steps: &'a [v1::ImageStep], layers: &[u64]) -> Vec<(&'a v1::ImageStep, u64)> {
    let mut layers = layers.iter().rev();
    let mut size = |step: &v1::ImageStep| if step.empty { 0 } else { layers.next().copied().unwrap_or(0) };
    steps.iter().rev().map(|step| (step, size(step))).collect()
}

fn row(step: &v1::ImageStep, bytes: u64, is_whole: bool) -> [String; 4] {
    let by = step.created_by.as_deref().unwrap_or_default();
    let by = by.split_whitespace().collect::<Vec<_>>().join(" ");
    let by = match by.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) if !is_whole => format!("{}…", &by[..end]),
        _ => by,
    };
    let created = step.created.as_deref().and_then(|text| text.parse().ok());
    [
        created.map_or_else(|| "-".to_owned(), output::ago),
        by,
        output::bytes(bytes),
        step.comment.clone().unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_belong_to_the_newest_steps() {
        let step = |by: &str, empty| v1::ImageStep {
            created: None,
            created_by: Some(by.to_owned()),
            comment: None,
            empty,
        };
        let steps = [step("COPY", false), step("ENV", true), step("RUN", false)];
        // The base has a layer, and no history.
        let sizes: Vec<_> = newest_first(&steps, &[1000, 20, 3]).iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(sizes, [3, 0, 20]);
    }
}
