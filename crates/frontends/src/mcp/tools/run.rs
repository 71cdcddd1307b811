//! `sandbox_run`: a sandbox for one command. The caller is answered when the command ended; the sandbox is removed behind
//! the answer.

use std::time::Duration;

use engine::{Force, SandboxRef};
use sandbox::{Error, ErrorKind, OnExpiry, SandboxSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    create::{self, CreateFields, make},
    exec::{ExecFields, ExecResult, Prepared, Terms, conclude, launch, to_the_end},
};
use crate::mcp::{
    Toolset,
    call::Call,
    envelope::{Answer, ToolResult},
    tool::{Hints, Tool},
};

/// How long a sandbox that should be gone may outlast a daemon that died before it removed it.
const LEFTOVER_LIFETIME: Duration = Duration::from_secs(60);

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_run",
            "Run in new sandbox",
            "Run one shell command in a new sandbox, return its output, and remove the sandbox.",
            Hints::ADDS,
            run,
        )
        .core(),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RunArguments {
    #[serde(flatten)]
    create: CreateFields,
    command: String,
    /// Seconds; 0: none
    #[schemars(range(min = 0))]
    timeout: Option<f64>,
    #[schemars(range(min = 1))]
    timeout_ms: Option<u64>,
    stdin: Option<String>,
    stdin_base64: Option<String>,
    #[schemars(range(min = 1))]
    max_bytes: Option<u64>,
    treat_non_zero_as_error: Option<bool>,
    /// Do not remove the sandbox
    keep: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RunResult {
    name: String,
    #[serde(flatten)]
    result: ExecResult,
}

/// In a task of its own: a caller who goes away leaves no sandbox behind.
async fn run(call: Call, arguments: RunArguments) -> ToolResult<RunResult> {
    let running = tokio::spawn(run_whole(call, arguments));
    running.await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Internal, "running the command ended too early").with_source(error).into())
    })
}

async fn run_whole(call: Call, arguments: RunArguments) -> ToolResult<RunResult> {
    let RunArguments { create, command, keep, .. } = arguments;
    let is_kept = keep.unwrap_or(false);
    let fields = ExecFields {
        command,
        timeout: arguments.timeout,
        timeout_ms: arguments.timeout_ms,
        stdin: arguments.stdin,
        stdin_base64: arguments.stdin_base64,
        max_bytes: arguments.max_bytes,
        treat_non_zero_as_error: arguments.treat_non_zero_as_error,
        // The same request again finds its sandbox, and in it its command.
        request_id: create.request_id.clone(),
        ..ExecFields::default()
    };
    let argv = |script| vec!["sh".to_owned(), "-c".to_owned(), script];
    let mut command = fields.prepare(argv, Some(call.settings.default_timeout()))?;
    command.spec.check().map_err(Error::from)?;
    let mut prepared = create::prepare(&call, create)?;
    if !is_kept {
        limit_life(&mut prepared.spec, command.spec.timeout);
    }
    let warnings = prepared.warnings.clone();
    let view = make(&call, prepared).await?;
    command.sandbox = view.id.to_string();
    let answer = run_in(&call, command, is_kept).await;
    if !is_kept {
        remove_in_background(&call, &SandboxRef::from(&view.id));
    }
    let Answer { data: result, warnings: more, truncated } = answer?;
    let data = RunResult { name: view.name.to_string(), result };
    Ok(Answer::new(data).warn_all(warnings).warn_all(view.warnings).warn_all(more).truncate(truncated))
}

/// Whatever happens to us, the sandbox goes: soon after its command's time is up, or once nothing runs in it any more.
fn limit_life(spec: &mut SandboxSpec, limit: Option<Duration>) {
    let lifetime = &mut spec.lifetime;
    let most = limit.map(|limit| limit.saturating_add(LEFTOVER_LIFETIME));
    lifetime.ttl = [lifetime.ttl, most].into_iter().flatten().min();
    lifetime.idle = Some(lifetime.idle.map_or(LEFTOVER_LIFETIME, |idle| idle.min(LEFTOVER_LIFETIME)));
    lifetime.on_expiry = OnExpiry::Remove;
}

async fn run_in(call: &Call, mut command: Prepared, is_kept: bool) -> ToolResult<ExecResult> {
    let launched = launch(call, &command).await?;
    let (max_bytes, limit) = (call.max_bytes(command.max_bytes), command.spec.timeout);
    let followed = to_the_end(call, &launched, command.stdin.take(), max_bytes, limit).await?;
    let fail_as = command.fail_on_non_zero.then_some("command");
    conclude(followed, &Terms { exec: &launched.exec.id, limit, fail_as, is_removed: !is_kept })
}

fn remove_in_background(call: &Call, which: &SandboxRef) {
    let (engine, who, which) = (call.engine().clone(), call.ender(), which.clone());
    call.mcp.spawn(async move {
        match engine.remove_sandbox(&who, &which, Force::Yes).await {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                // Its lifetime ends it.
                tracing::warn!(%which, error = &error as &dyn std::error::Error, "not removed");
            }
            _ => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use engine::SandboxFilter;
    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::mcp::{
        call::Progress,
        testing::{Client, ask},
    };

    async fn n_sandboxes(client: &Client) -> usize {
        client.call.mcp.quiet().await;
        let all = client.call.engine().sandboxes(&client.call.who, &SandboxFilter::default()).await;
        all.unwrap().len()
    }

    #[tokio::test]
    async fn a_command_gets_a_sandbox_of_its_own_which_goes_with_it() {
        let client = Client::new().await;
        let arguments = json!({ "command": "printf run-ok; echo $WHO >&2; exit 4", "env": { "WHO": "me" } });
        let data = client.data("sandbox_run", arguments).await;
        assert_eq!((&data["stdout"], &data["stderr"]), (&json!("run-ok"), &json!("me\n")));
        assert_eq!((&data["exitCode"], &data["success"]), (&json!(4), &json!(false)));
        assert!(!data["name"].as_str().unwrap().is_empty());
        assert_eq!(n_sandboxes(&client).await, 0);
        let data =
            client.data("sandbox_run", json!({ "name": "mine", "command": "cat", "stdin": "in" })).await;
        assert_eq!((&data["name"], &data["stdout"]), (&json!("mine"), &json!("in")));
    }

    #[tokio::test]
    async fn whatever_goes_wrong_nothing_is_left() {
        let client = Client::new().await;
        let data =
            client.data("sandbox_run", json!({ "command": "echo on; sleep 1000", "timeoutMs": 50 })).await;
        assert_eq!((&data["stdout"], &data["timedOut"]), (&json!("on\n"), &json!(true)));
        let failing = json!({ "command": "exit 1", "treatNonZeroAsError": true });
        client.error("sandbox_run", failing, "exec_failed").await;
        client.error("sandbox_run", json!({ "command": "a\0b" }), "invalid_request").await;
        assert_eq!(n_sandboxes(&client).await, 0);
        let envelope = client.ask("sandbox_run", json!({ "command": "seq 1000", "maxBytes": 10 })).await;
        assert!(envelope["truncated"][0]["hint"].as_str().unwrap().contains("keep: true"), "{envelope}");
    }

    #[tokio::test]
    async fn a_cancelled_run_is_killed_and_its_sandbox_removed() {
        let client = Client::new().await;
        let mut call = client.call.clone();
        let token = call.cancelled.clone();
        call.progress = Progress::new(move |_step| {
            token.cancel();
            std::future::ready(()).boxed()
        });
        let envelope = ask(call, "sandbox_run", json!({ "command": "echo here; sleep 1000" })).await;
        assert_eq!(envelope["error"]["code"], "cancelled", "{envelope}");
        assert_eq!(envelope["error"]["details"]["stdout"], "here\n");
        assert_eq!(n_sandboxes(&client).await, 0);
    }

    #[tokio::test]
    async fn a_sandbox_is_kept_on_request_and_otherwise_cannot_outlast_its_purpose() {
        let client = Client::new().await;
        let data =
            client.data("sandbox_run", json!({ "command": "echo kept > /tmp/it", "keep": true })).await;
        assert_eq!(n_sandboxes(&client).await, 1);
        let read = json!({ "name": data["name"], "command": "cat", "args": ["/tmp/it"] });
        assert_eq!(client.data("sandbox_exec", read).await["stdout"], "kept\n");

        let mut spec = SandboxSpec::default();
        limit_life(&mut spec, Some(Duration::from_secs(5)));
        assert_eq!(spec.lifetime.ttl, Some(Duration::from_secs(65)));
        assert_eq!(
            (spec.lifetime.idle, spec.lifetime.on_expiry),
            (Some(LEFTOVER_LIFETIME), OnExpiry::Remove)
        );
        spec.lifetime.ttl = Some(Duration::from_secs(3));
        limit_life(&mut spec, None);
        assert_eq!(spec.lifetime.ttl, Some(Duration::from_secs(3)));
    }
}
