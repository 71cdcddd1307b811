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

/// Show what a sandbox changed
///
/// Lines begin with A for added, M for modified and D for removed; m is a change of owner, mode or attributes only.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren diff dev
  warren diff dev --since ready /etc
  warren diff dev --patch > dev.patch
  warren diff dev --json")]
pub(crate) struct Args {
    /// Name or id
    sandbox: String,
    /// Only what is beneath
    path: Option<String>,
    /// Since a snapshot on the same image, its own or another's; since its image when absent
    #[arg(long, value_name = "SNAPSHOT")]
    since: Option<String>,
    /// Changes of text files, as a patch
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
        // Byte by byte: somebody applies it.
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
        output::warn("The patch is longer than this; name a path to see the rest.");
    }
    if diff.patch_left_out > 0 {
        let n = diff.patch_left_out;
        output::warn(&format!(
            "The patch leaves out {n} changed files or links: they are no text, or too long."
        ));
    }
    if diff.changes_cut {
        output::warn(
            "There are more changes, or looking for them took too long; name a path to see the rest.",
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

/// Whatever is in the files: a terminal is told nothing by them.
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
