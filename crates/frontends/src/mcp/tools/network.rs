//! `sandbox_network` and `sandbox_network_log`: what a sandbox reaches, changed while it runs, and what it reached.

use engine::{NetworkChange, NetworkPatch};
use sandbox::{NetworkEventKind, NetworkRequest, NetworkRequestState, NetworkSpec, Preset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::network_request;
use crate::mcp::{Answer, Call, Native, Tool, ToolResult, next_call::written};

/// Entries of the log in one answer.
const DEFAULT_LISTED: usize = 20;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Network;
        "sandbox_network", "Network of a sandbox", SETS, network:
            "Show what a sandbox reaches on the network, or change it at once.";
        "sandbox_network_log", "Network log of a sandbox", READS, log:
            "List which traffic of a sandbox was allowed and denied, and why.";
        "sandbox_network_request", "Ask for network", ADDS, network_request::request:
            "Ask a person to let a sandbox reach a host for a time, or see their answer.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    name: String,
    /// Reached without a rule
    #[schemars(with = "Option<Native<Preset>>")]
    preset: Option<Preset>,
    /// Such as api.example.org, *.example.org:443, 10.2.0.0/16:5432, host:3000
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
    /// Rules to remove, as they are listed
    #[serde(default)]
    remove: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NetworkPolicy {
    name: String,
    preset: &'static str,
    /// In this order; the first that matches decides
    rules: Vec<String>,
    /// The operator's ceilings
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ceilings: Vec<String>,
    /// Granted beside the policy, for a time
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    grants: Vec<Grant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Grant {
    request: String,
    rules: Vec<String>,
    until: String,
}

async fn network(call: Call, arguments: Arguments) -> ToolResult<NetworkPolicy> {
    let Arguments { name, preset, allow, deny, remove } = arguments;
    let which = call.sandbox(&name)?;
    let patch = NetworkPatch { preset, allow, deny, remove, ..NetworkPatch::default() };
    let view = match patch == NetworkPatch::default() {
        true => call.engine().network(&call.who, &which).await?,
        false => {
            let changed = call.engine().change_network(&call.who, &which, NetworkChange::Patch(patch)).await;
            changed.map_err(|error| network_request::refused(&call, &name, error))?
        }
    };
    let pending = view.is_pending.then(|| {
        let name = json!({ "name": name });
        let (stop, start) = (written("sandbox_stop", &name), written("sandbox_start", &name));
        format!("This applies after the next start of the sandbox: call {stop}, then {start}.")
    });
    let policy = view.policy;
    Ok(Answer::new(NetworkPolicy {
        name,
        preset: policy.preset.unwrap_or_default().as_str(),
        rules: rules(&policy),
        ceilings: view.ceilings,
        grants: view.requests.into_iter().filter_map(grant).collect(),
        held_by: view.held_by,
    })
    .warn_all(pending))
}

/// The rules of a policy in the order in which they are looked at.
pub(super) fn rules(policy: &NetworkSpec) -> Vec<String> {
    let denied = policy.deny.iter().map(|rule| format!("deny {rule}"));
    let ordered = policy.rules.iter().map(|rule| format!("{} {}", rule.action, rule.target));
    let allowed = policy.allow.iter().map(|rule| format!("allow {rule}"));
    denied.chain(ordered).chain(allowed).collect()
}

fn grant(request: NetworkRequest) -> Option<Grant> {
    let until = request.until.filter(|_| request.state == NetworkRequestState::Granted)?.to_string();
    Some(Grant { request: request.id.to_string(), rules: request.rules, until })
}

#[derive(Debug, Deserialize, JsonSchema)]
struct LogArguments {
    name: String,
    /// First entry; the last ones when absent
    from: Option<u64>,
    /// Default 20
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Log {
    entries: Vec<LogEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LogEntry {
    number: u64,
    at: String,
    verdict: &'static str,
    /// Name or address, port and protocol
    target: String,
    why: String,
    count: u32,
}

async fn log(call: Call, arguments: LogArguments) -> ToolResult<Log> {
    let which = call.sandbox(&arguments.name)?;
    let limit = arguments.limit.map_or(DEFAULT_LISTED, |limit| limit as usize);
    let found = call.engine().network_log(&call.who, &which, arguments.from, limit).await?;
    let entries = found.into_iter().map(|entry| {
        let event = entry.event;
        let host = match (event.name, event.address) {
            (Some(name), _) => name.to_string(),
            (None, Some(address)) => address.to_string(),
            (None, None) => String::new(),
        };
        LogEntry {
            number: entry.number,
            at: entry.at.to_string(),
            verdict: match event.kind {
                NetworkEventKind::Allowed => "allowed",
                NetworkEventKind::Denied => "denied",
                NetworkEventKind::Failed => "failed",
            },
            target: format!("{host} {}/{}", event.port, event.protocol),
            why: event.rule,
            count: event.count,
        }
    });
    Ok(Answer::new(Log { entries: entries.collect() }))
}
