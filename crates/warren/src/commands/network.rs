//! `warren network`

use std::{process::ExitCode, time::Duration};

use engine::{NetworkLogEntry, NetworkPatch, NetworkRequestView, NetworkView};
use frontends::rest::v1;
use sandbox::{
    ByteSize, ErrorKind, HostTraffic, NetworkEventKind, NetworkHosts, NetworkRequest, NetworkRequestState,
    Preset,
};

use super::Context;
use crate::{arguments, client::Client, error::CommandResult, other_words, output};

/// Most entries of the log that are printed.
const MAX_LISTED: u32 = 1000;
const NEEDS_START: &str = "this holds once the sandbox starts again: warren restart";

/// What a sandbox reaches on the network
///
/// Without options, prints its policy. A change takes effect at once: open connections that are no longer allowed end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren network dev
  warren network dev --allow api.github.com --allow '*.pypi.org:443'
  warren network dev --preset none
  warren network dev --remove api.github.com
  warren network dev --log
  warren network dev --hosts
  warren network --pending
  warren network dev --grant ask-0123456789abc --for 1h
  warren network dev --refuse ask-0123456789abc --reason 'use the mirror'")]
pub(crate) struct Args {
    /// Name or id
    #[arg(required_unless_present = "pending")]
    sandbox: Option<String>,
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
    /// Print how much went to which host
    #[arg(long, conflicts_with_all = ["preset", "allow", "deny", "remove", "log"])]
    hosts: bool,
    /// List what agents ask for, of all sandboxes
    #[arg(long, conflicts_with_all = ["sandbox", "preset", "allow", "deny", "remove", "log", "hosts", "grant", "refuse"])]
    pending: bool,
    /// Grant a request, for as long as it asks for, or else an hour
    #[arg(long, value_name = "ID", conflicts_with_all = ["preset", "allow", "deny", "remove", "log", "hosts", "refuse"])]
    grant: Option<String>,
    /// How long the grant holds
    #[arg(long = "for", value_name = "SPAN", value_parser = arguments::duration, requires = "grant")]
    time: Option<Duration>,
    /// Refuse a request, or take a grant back
    #[arg(long, value_name = "ID", conflicts_with_all = ["preset", "allow", "deny", "remove", "log", "hosts"])]
    refuse: Option<String>,
    /// Why it is refused, for whoever asked
    #[arg(long, value_name = "TEXT", requires = "refuse")]
    reason: Option<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    let Args { sandbox, preset, allow, deny, remove, log, hosts, pending: _, grant, time, refuse, reason } =
        args;
    let Some(sandbox) = sandbox else { return list_pending(context, &client).await };
    if log {
        return show_log(context, &client, &sandbox).await;
    }
    if hosts {
        return show_hosts(context, &client, &sandbox).await;
    }
    if let Some(id) = grant {
        let for_seconds = time.map(|time| time.as_secs());
        let body = v1::NetworkGrantRequest { for_seconds };
        show_request(context, &client.grant_network_request(&sandbox, &id, &body).await?)?;
        if client.network(&sandbox).await?.is_pending {
            output::warn(NEEDS_START);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(id) = refuse {
        let body = v1::NetworkRefusal { reason };
        show_request(context, &client.refuse_network_request(&sandbox, &id, &body).await?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let patch = NetworkPatch { preset, allow, deny, remove, ..NetworkPatch::default() };
    let asked = match patch == NetworkPatch::default() {
        true => client.network(&sandbox).await,
        false => client.patch_network(&sandbox, &patch).await,
    };
    let is_verb = other_words::NETWORK_VERBS.contains(&sandbox.as_str());
    let view = asked.map_err(|error| match error.kind() {
        Some(ErrorKind::NotFound) if is_verb => {
            error.map(|error| error.with_hint(format!("Here {}.", other_words::NO_NETWORKS)))
        }
        _ => error,
    })?;
    if context.json {
        output::json(&view)?;
    } else {
        show(&view)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_log(context: &Context, client: &Client, sandbox: &str) -> CommandResult {
    let found = client.network_log(sandbox, MAX_LISTED).await?;
    if context.json {
        output::json(&found)?;
    } else {
        output::table(
            ["TIME", "VERDICT", "NAME", "ADDRESS", "PORT", "COUNT", "WHY"],
            found.entries.iter().map(row),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_hosts(context: &Context, client: &Client, sandbox: &str) -> CommandResult {
    let NetworkHosts { mut hosts, others } = client.network_hosts(sandbox).await?;
    if context.json {
        output::json(&NetworkHosts { hosts, others })?;
        return Ok(ExitCode::SUCCESS);
    }
    if others != HostTraffic::default() {
        hosts.push(HostTraffic { host: "(others)".to_owned(), ..others });
    }
    let rows = hosts.iter().map(|host| {
        [
            host.host.clone(),
            host.connections.to_string(),
            host.denied.to_string(),
            ByteSize(host.sent_bytes).to_string(),
            ByteSize(host.received_bytes).to_string(),
        ]
    });
    output::table(["HOST", "CONNECTIONS", "DENIED", "SENT", "RECEIVED"], rows)?;
    Ok(ExitCode::SUCCESS)
}

async fn list_pending(context: &Context, client: &Client) -> CommandResult {
    let found = client.pending_network_requests().await?;
    if context.json {
        output::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = found.requests.iter().map(|view| {
        let request = &view.request;
        let time = request.for_seconds.map(|seconds| format!("{seconds}s")).unwrap_or_default();
        [
            request.id.to_string(),
            view.name.to_string(),
            view.namespace.to_string(),
            format!("{:.0}", request.asked_at),
            request.asked_by.clone(),
            request.rules.join(", "),
            time,
            request.reason.clone(),
        ]
    });
    output::table(["ID", "SANDBOX", "NAMESPACE", "ASKED", "BY", "RULES", "FOR", "REASON"], rows)?;
    Ok(ExitCode::SUCCESS)
}

fn show_request(context: &Context, view: &NetworkRequestView) -> CommandResult<()> {
    if context.json { output::json(view) } else { output::line(&in_words(&view.request)) }
}

/// One line: `granted until 2026-01-01T00:10:00Z: api.example.org (ask-…)`.
fn in_words(request: &NetworkRequest) -> String {
    let until = match (request.state, request.until) {
        (NetworkRequestState::Granted, Some(until)) => format!(" until {until:.0}"),
        _ => String::new(),
    };
    format!("{}{until}: {} ({})", request.state.as_str(), request.rules.join(", "), request.id)
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
    let is_open = |request: &&NetworkRequest| {
        matches!(request.state, NetworkRequestState::Pending | NetworkRequestState::Granted)
    };
    for request in view.requests.iter().filter(is_open) {
        output::line(&in_words(request))?;
    }
    if view.is_pending {
        output::warn(NEEDS_START);
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
