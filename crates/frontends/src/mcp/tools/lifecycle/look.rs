//! `sandbox_list`, `sandbox_status`, `sandbox_inspect`.

use std::collections::BTreeMap;

use engine::SandboxView;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::redact;
use crate::mcp::{
    Answer, Call, ToolResult, Truncated,
    next_call::written,
    tools::{
        fitting::fit,
        network,
        select::{Row, Selector, Status},
    },
};

/// Most sandboxes in one answer.
const MAX_LISTED: u32 = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListArguments {
    #[serde(flatten)]
    selector: Selector,
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
    /// The last name seen.
    cursor: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StatusArguments {
    #[serde(flatten)]
    selector: Selector,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct InspectArguments {
    name: String,
}

/// A sandbox in a list; its name stands in the row.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    id: String,
    status: Status,
    image: String,
    labels: BTreeMap<String, String>,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    running_execs: usize,
    /// Why it stopped or crashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Summary {
    fn of(view: SandboxView) -> Self {
        Self {
            status: Status::of(&view),
            image: view.plan.image.to_string(),
            created_at: view.created_at.to_string(),
            updated_at: updated_at(&view).to_string(),
            expires_at: view.expires_at.map(|at| at.to_string()),
            running_execs: view.n_running_execs,
            id: view.id.to_string(),
            labels: view.spec.labels,
            reason: view.reason,
        }
    }
}

/// When it last went from one state to another, as far as that is kept.
fn updated_at(view: &SandboxView) -> Timestamp {
    [view.started_at, view.stopped_at].into_iter().flatten().fold(view.created_at, Timestamp::max)
}

pub(super) async fn list(call: Call, arguments: ListArguments) -> ToolResult<Vec<Row<Summary>>> {
    let mut targets = arguments.selector.resolve_or(&call, None).await?;
    let limit = arguments.limit.unwrap_or(MAX_LISTED);
    let next = targets.page(arguments.cursor.as_deref(), limit as usize);
    let mut answer = targets.each(&call, |_, view| async { Ok(Summary::of(view)) }).await?;
    if arguments.limit.is_none() {
        answer = fitted(&call, answer);
    }
    let next = next.filter(|_| answer.truncated.is_empty());
    Ok(answer.warn_all(next.map(|name| format!("More follow: {}", next_page(&name)))))
}

pub(super) async fn status(call: Call, arguments: StatusArguments) -> ToolResult<Vec<Row<Summary>>> {
    let default = if arguments.selector.has_names() { Status::All } else { Status::Running };
    let targets = arguments.selector.resolve_or(&call, Some(default)).await?;
    let answer = targets.each(&call, |_, view| async { Ok(Summary::of(view)) }).await?;
    Ok(fitted(&call, answer))
}

/// The rows that fit an answer, with the call for the others.
fn fitted(call: &Call, mut answer: Answer<Vec<Row<Summary>>>) -> Answer<Vec<Row<Summary>>> {
    let n_all = answer.data.len();
    let cut = fit("data", &mut answer.data, call.max_bytes(None));
    let cut = cut.zip(answer.data.last()).map(|(cut, last)| {
        let n_listed = answer.data.len();
        let hint = format!("{n_listed} of {n_all} sandboxes are shown: {}", next_page(&last.name));
        Truncated { hint: Some(hint), ..cut }
    });
    answer.truncate(cut)
}

fn next_page(after: &str) -> String {
    let next = written("sandbox_list", &json!({ "cursor": after }));
    format!("call {next} for the next ones (with the same labels and status), or give labels or a status.")
}

/// One sandbox in full.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Detail {
    name: String,
    id: String,
    namespace: String,
    status: Status,
    state: String,
    backend: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// In the words of sandbox_create.
    config: Map<String, Value>,
    /// The walls it got, and how each limit is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    isolation: Option<Map<String, Value>>,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_since: Option<String>,
    running_execs: usize,
    draining: bool,
}

pub(super) async fn inspect(call: Call, arguments: InspectArguments) -> ToolResult<Detail> {
    let which = call.sandbox(&arguments.name)?;
    let view = call.engine().sandbox(&call.who, &which).await?;
    let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let detail = Detail {
        name: view.name.to_string(),
        id: view.id.to_string(),
        namespace: view.namespace.to_string(),
        status: Status::of(&view),
        state: view.state.to_string(),
        backend: view.plan.backend.as_str(),
        config: config(&view),
        isolation: view.isolation.as_ref().map(|isolation| object(json!(isolation))),
        created_at: view.created_at.to_string(),
        updated_at: updated_at(&view).to_string(),
        started_at: text(view.started_at),
        stopped_at: text(view.stopped_at),
        expires_at: text(view.expires_at),
        idle_since: text(view.idle_since),
        running_execs: view.n_running_execs,
        draining: view.draining,
        reason: view.reason,
    };
    Ok(Answer::new(detail).warn_all(view.warnings))
}

/// Returns the settings that a sandbox was made with, decided and redacted.
fn config(view: &SandboxView) -> Map<String, Value> {
    let (plan, limits) = (&view.plan, &view.plan.limits);
    let mib = |size: sandbox::ByteSize| size.bytes() / (1024 * 1024);
    object(json!({
        "image": plan.image,
        "hostname": plan.hostname,
        "requestId": view.spec.request_id,
        "mounts": view.spec.mounts,
        "resources": {
            "cpus": limits.cpus,
            "memoryMib": mib(limits.memory),
            "swapMib": mib(limits.swap),
            "diskMib": mib(limits.disk),
            "tmpMib": mib(limits.tmp),
            "shmMib": mib(limits.shm),
            "pids": limits.pids,
            "openFiles": limits.open_files,
        },
        "process": {
            "workdir": plan.cwd,
            "user": plan.user,
            "env": redact::env(&plan.env),
            "labels": view.spec.labels,
            "shell": plan.shell,
            "entrypoint": plan.config.entrypoint,
            "cmd": plan.config.cmd,
            "rlimits": plan.rlimits,
            "init": plan.init.as_ref().map(|init| json!({
                "path": init.path, "args": init.args, "env": redact::env(&init.env),
            })),
        },
        "lifecycle": {
            "maxDurationSecs": view.lifetime.ttl.map(|span| span.as_secs_f64()),
            "idleTimeoutSecs": view.lifetime.idle.map(|span| span.as_secs_f64()),
            "onExpiry": view.lifetime.on_expiry,
        },
        "network": {
            "preset": plan.network.own.preset.as_str(),
            "rules": network::rules(&view.spec.network),
        },
    }))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
