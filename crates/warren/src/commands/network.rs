//! `warren network`

use std::process::ExitCode;

use engine::{NetworkLogEntry, NetworkPatch, NetworkView};
use sandbox::{NetworkEventKind, Preset};

use super::Context;
use crate::{error::CommandResult, output};

/// Most entries of the log that are printed.
const MAX_LISTED: u32 = 1000;

/// What a sandbox reaches on the network
///
/// Without options, prints its policy. A change takes effect at once: open connections that are no longer allowed end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren network dev
  warren network dev --allow api.github.com --allow '*.pypi.org:443'
  warren network dev --preset none
  warren network dev --remove api.github.com
  warren network dev --log")]
pub(crate) struct Args {
    /// Name or id
    sandbox: String,
    /// What it reaches without a rule: none, packages, public, public+private or all
    #[arg(long, visible_alias = "network", value_name = "PRESET")]
    preset: Option<Preset>,
    /// Allow traffic: a name, *.wildcard, address or range, each with :PORT if wanted; host:3000 is this machine
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// Deny traffic, whatever is allowed
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// Remove a rule, as it is printed
    #[arg(long, value_name = "RULE")]
    remove: Vec<String>,
    /// Print what was allowed and denied lately
    #[arg(long, conflicts_with_all = ["preset", "allow", "deny", "remove"])]
    log: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    let Args { sandbox, preset, allow, deny, remove, log } = args;
    if log {
        let found = client.network_log(&sandbox, MAX_LISTED).await?;
        if context.json {
            output::json(&found)?;
        } else {
            output::table(
                ["TIME", "VERDICT", "NAME", "ADDRESS", "PORT", "COUNT", "WHY"],
                found.entries.iter().map(row),
            )?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let patch = NetworkPatch { preset, allow, deny, remove, ..NetworkPatch::default() };
    let view = match patch == NetworkPatch::default() {
        true => client.network(&sandbox).await?,
        false => client.patch_network(&sandbox, &patch).await?,
    };
    if context.json {
        output::json(&view)?;
    } else {
        show(&view)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(view: &NetworkView) -> CommandResult<()> {
    let policy = &view.policy;
    output::line(&format!("preset: {}", policy.preset.unwrap_or_default()))?;
    let rules = policy.rules.iter().map(|rule| (rule.action.to_string(), &rule.target));
    let denied = policy.deny.iter().map(|rule| ("deny".to_owned(), rule));
    let allowed = policy.allow.iter().map(|rule| ("allow".to_owned(), rule));
    for (action, rule) in denied.chain(rules).chain(allowed) {
        output::line(&format!("{action} {rule}"))?;
    }
    for ceiling in &view.ceilings {
        output::line(&format!("at most: {ceiling}"))?;
    }
    if view.is_pending {
        output::warn("this holds once the sandbox starts again: warren restart");
    }
    if let Some(held_by) = &view.held_by {
        output::line(&format!("held by: {held_by}"))?;
    }
    Ok(())
}

fn row(entry: &NetworkLogEntry) -> [String; 7] {
    let event = &entry.event;
    let verdict = match event.kind {
        NetworkEventKind::Allowed => "allowed",
        NetworkEventKind::Denied => "denied",
        NetworkEventKind::Failed => "failed",
    };
    [
        format!("{:.3}", entry.at),
        verdict.to_owned(),
        event.name.as_ref().map(ToString::to_string).unwrap_or_default(),
        event.address.map(|address| address.to_string()).unwrap_or_default(),
        format!("{}/{}", event.port, event.protocol),
        event.count.to_string(),
        event.rule.clone(),
    ]
}
