//! `warren audit`

use std::process::ExitCode;

use sandbox::Call;

use super::Context;
use crate::{error::CommandResult, output};

/// Show who called what, when, and the outcome
///
/// The audit records every MCP tool call, every REST request that changes something, and every refused request. Shows
/// the latest entries unless --since-number is given. With --json, prints one JSON object per line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren audit
  warren audit --who ci --limit 20
  warren audit --since-number 1 --limit 10000 --json")]
pub(crate) struct Args {
    /// Start with this entry
    #[arg(long, value_name = "N", visible_alias = "from")]
    since_number: Option<u64>,
    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = crate::arguments::number::<u32>)]
    limit: u32,
    /// Only calls by this caller: its name as shown in the table, or the label or id of its key
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    let calls = client.calls(args.since_number, Some(args.limit), args.who.as_deref()).await?.calls;
    if let Some(who) = args.who.as_deref().filter(|_| calls.is_empty()) {
        output::warn(&format!(
            "the audit has no calls by {who:?}; `warren key list` shows the labels and ids of keys"
        ));
    }
    if context.json {
        for call in &calls {
            output::json_line(call)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let heading = ["NUMBER", "AT", "WHO", "BY", "ACTION", "SANDBOX", "OUTCOME", "MS"];
    output::table(heading, calls.iter().map(row))?;
    Ok(ExitCode::SUCCESS)
}

fn row(call: &Call) -> [String; 8] {
    [
        call.number.to_string(),
        format!("{:.3}", call.at),
        call.who.clone().unwrap_or_else(|| "unknown".to_owned()),
        call.frontend.to_string(),
        call.action.clone(),
        call.sandbox.clone().unwrap_or_else(|| "-".to_owned()),
        call.error.clone().unwrap_or_else(|| "ok".to_owned()),
        call.duration_ms.to_string(),
    ]
}
