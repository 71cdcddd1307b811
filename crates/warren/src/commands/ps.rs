//! `warren ps`

use std::process::ExitCode;

use frontends::rest::v1;
use sandbox::SandboxState;
use serde::Serialize;

use super::Context;
use crate::{error::CommandResult, output};

/// List sandboxes
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren ps -a
  warren ps --filter label=team=red --filter state=paused")]
pub(crate) struct Args {
    /// Include stopped and failed sandboxes
    #[arg(long, short)]
    all: bool,
    /// Print only ids
    #[arg(long, short)]
    quiet: bool,
    /// Show only this many, the newest
    #[arg(long, short = 'n', value_name = "N", value_parser = crate::arguments::number::<usize>)]
    last: Option<usize>,
    /// Show only the newest, running or not
    #[arg(long, short = 'l', conflicts_with = "last")]
    latest: bool,
    /// Accepted and without effect, as ids are never cut
    #[arg(long, hide = true)]
    no_trunc: bool,
    /// Filter: state=… (or status=…), label=KEY=VALUE or name=PART; may be repeated
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = filter)]
    filter: Vec<(String, String)>,
}

fn filter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        // Docker's words.
        Some(("status", "exited")) => Ok(("state".to_owned(), SandboxState::Stopped.to_string())),
        Some(("status", value)) => Ok(("state".to_owned(), value.to_owned())),
        Some((key @ ("state" | "label" | "name"), value)) => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write state=…, label=KEY=VALUE or name=PART".to_owned()),
    }
}

#[derive(Serialize)]
struct Listed {
    sandboxes: Vec<v1::Sandbox>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let mut filters = args.filter.clone();
    // As in Docker, the newest are of all states.
    let n_newest = if args.latest { Some(1) } else { args.last };
    if !args.all && n_newest.is_none() && !filters.iter().any(|(key, _)| key == "state") {
        let live = SandboxState::ALL.into_iter().filter(|state| state.is_live());
        filters.extend(live.map(|state| ("state".to_owned(), state.to_string())));
    }
    let mut sandboxes = context.client().await?.list(&filters).await?;
    if let Some(n) = n_newest {
        sandboxes.drain(..sandboxes.len().saturating_sub(n));
    }
    if context.json {
        output::json(&Listed { sandboxes })?;
    } else if args.quiet {
        for sandbox in &sandboxes {
            output::line(sandbox.id.as_str())?;
        }
    } else {
        let heading = ["NAME", "ID", "STATE", "BACKEND", "IMAGE", "EXECS", "CREATED", "EXPIRES"];
        output::table_that_fits(heading, sandboxes.iter().map(row), &["BACKEND", "EXECS"])?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(sandbox: &v1::Sandbox) -> [String; 8] {
    [
        sandbox.name.to_string(),
        sandbox.id.to_string(),
        if sandbox.unreachable { "unreachable".to_owned() } else { sandbox.state.to_string() },
        sandbox.backend.to_string(),
        sandbox.image.to_string(),
        sandbox.running_execs.to_string(),
        output::ago(sandbox.created_at),
        sandbox.expires_at.filter(|_| sandbox.state.is_live()).map_or_else(|| "-".to_owned(), output::until),
    ]
}
