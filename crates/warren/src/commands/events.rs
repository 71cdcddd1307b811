//! `warren events`

use std::process::ExitCode;

use futures_util::TryStreamExt as _;
use sandbox::{Error, ErrorKind, Event};

use super::Context;
use crate::{client, error::CommandResult, output};

/// Show events of sandboxes
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren events -f
  warren events --json --from 100")]
pub(crate) struct Args {
    /// Keep printing new events
    #[arg(long, short)]
    follow: bool,
    /// Start with this event [default: the first, or the next one with --follow]
    #[arg(long, value_name = "N")]
    from: Option<u64>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let response = context.client().await?.events(args.from, args.follow).await?;
    let mut lines = client::text_lines(response);
    while let Some(line) = lines.try_next().await? {
        if context.json {
            output::line(&line)?;
            continue;
        }
        let event: Event = serde_json::from_str(&line).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("the daemon ended the stream: {line}")).with_source(error)
        })?;
        output::line(&describe(&event))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(event: &Event) -> String {
    let kind = serde_json::to_value(event.kind).ok();
    let kind = kind.as_ref().and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let name = event.name.as_ref().map(ToString::to_string);
    let id = event.sandbox.as_ref().map(ToString::to_string);
    let subject = name.or(id).unwrap_or_default();
    let exec = event.exec.as_ref().map(|exec| format!(" {exec}")).unwrap_or_default();
    let text = format!("{:>6}  {:.3}  {kind:<18} {subject}{exec} {}", event.number, event.at, event.detail);
    output::printable(text.trim_end())
}
