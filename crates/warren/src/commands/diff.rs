//! `warren diff`

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use frontends::rest::v1;
use sandbox::ChangeKind;

use super::Context;
use crate::{
    error::CommandResult,
    output::{self, Paint},
};

/// Show the files that a sandbox changed
///
/// Lines start with A for added, M for modified, D for deleted, and m if only the owner, mode or attributes changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren diff dev
  warren diff dev --since ready /etc
  warren diff dev --patch > dev.patch
  warren diff dev --json")]
pub(crate) struct Args {
    /// Name or id
    sandbox: String,
    /// Only changes below this path
    path: Option<String>,
    /// Compare with this snapshot of the same image, its own or another sandbox's [default: compare with the image]
    #[arg(long, value_name = "SNAPSHOT")]
    since: Option<String>,
    /// Show changes to text files as a patch
    #[arg(long, short)]
    patch: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    let diff = client.diff(&args.sandbox, args.since.as_deref(), args.path.as_deref(), args.patch).await?;
    if context.json {
        output::json(&diff)?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::for_stdout();
    match &diff.patch {
        Some(patch) if io::stdout().is_terminal() => {
            for line in patch.lines() {
                output::line(&painted(paint, line))?;
            }
        }
        // Unescaped: the patch may be applied.
        Some(patch) => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(patch.as_bytes())?;
            stdout.flush()?;
        }
        None => {
            for change in &diff.changes {
                output::line(&listed(paint, change))?;
            }
        }
    }
    if diff.patch_cut {
        output::warn("The patch is incomplete; give a path to see the rest.");
    }
    if diff.patch_left_out > 0 {
        let n = diff.patch_left_out;
        output::warn(&format!(
            "The patch omits {n} changed files or links that are not text or are too long."
        ));
    }
    if diff.changes_cut {
        output::warn(
            "The list is incomplete: too many changes, or the search took too long. Give a path to see the rest.",
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(paint: Paint, change: &v1::FileChange) -> String {
    let path = output::printable(&change.path);
    match (change.change, change.only_metadata) {
        (ChangeKind::Added, _) => paint.good(&format!("A {path}")),
        (ChangeKind::Removed, _) => paint.bad(&format!("D {path}")),
        (ChangeKind::Modified, true) => format!("m {path}"),
        (ChangeKind::Modified, false) => paint.warn(&format!("M {path}")),
    }
}

/// One line of the patch, with control characters escaped.
fn painted(paint: Paint, line: &str) -> String {
    let shown: String = line.chars().filter(|c| !c.is_control() || *c == '\t').collect();
    match shown.as_bytes().first() {
        _ if shown.starts_with("+++") || shown.starts_with("---") => paint.note(&shown),
        Some(b'+') => paint.good(&shown),
        Some(b'-') => paint.bad(&shown),
        Some(b'@') => paint.note(&shown),
        _ => shown,
    }
}
