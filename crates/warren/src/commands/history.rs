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
    // Each step that changed files made one layer, in order.
    let mut layers = detail.layers.iter();
    let mut rows: Vec<_> = detail
        .history
        .iter()
        .map(|step| {
            let bytes = if step.empty { 0 } else { layers.next().map_or(0, |layer| layer.disk_bytes) };
            row(step, bytes, args.no_trunc)
        })
        .collect();
    rows.reverse();
    output::table(["CREATED", "CREATED BY", "SIZE", "COMMENT"], rows)?;
    Ok(ExitCode::SUCCESS)
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
