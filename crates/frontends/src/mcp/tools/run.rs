//! `sandbox_run`: a sandbox for one command. The caller is answered when the command ended; the sandbox is removed
//! behind the answer.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use engine::{Ensured, ExecView, FirstExec};
use sandbox::{Error, ErrorKind, OnExpiry, RequestId, SandboxSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    create::{self, CreateFields, make_and_begin, unmake},
    denials,
    exec::{ExecFields, ExecResult, Launched, Prepared, Reader, Terms, conclude, launch, to_the_end},
};
use crate::mcp::{Answer, Call, Tool, ToolResult};

/// How long a sandbox that should be gone may outlast a daemon that died before it removed it.
const LEFTOVER_LIFETIME: Duration = Duration::from_secs(60);

pub(super) fn tools() -> Vec<Tool> {
    tools! { Lifecycle;
        // With lifecycle.replace, a sandbox of the same name is removed.
        "sandbox_run", "Run in new sandbox", DESTROYS_MORE, run, core:
            "Run one shell command in a new sandbox, return its output, and remove the sandbox.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RunArguments {
    #[serde(flatten)]
    create: CreateFields,
    command: String,
    #[schemars(extend("x-full-only" = true))]
    /// Seconds; 0: none
    #[schemars(range(min = 0), extend("x-unlisted" = true))]
    timeout: Option<f64>,
    #[schemars(range(min = 1))]
    timeout_ms: Option<u64>,
    stdin: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    stdin_base64: Option<String>,
    #[schemars(range(min = 1))]
    max_bytes: Option<u64>,
    #[schemars(extend("x-full-only" = true))]
    treat_non_zero_as_error: Option<bool>,
    /// Do not remove the sandbox
    keep: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RunResult {
    name: String,
    /// The sandbox is gone, and its name and execSessionId with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    removed: bool,
    #[serde(flatten)]
    result: ExecResult,
}

/// In a task of its own: a caller who goes away leaves no sandbox behind.
async fn run(call: Call, arguments: RunArguments) -> ToolResult<RunResult> {
    let running = tokio::spawn(run_whole(call, arguments));
    running.await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Internal, "running the command stopped unexpectedly")
            .with_source(error)
            .into())
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
        // Files go with their sandbox.
        track_files: Some(is_kept),
        // The same request again finds its sandbox, and in it its command.
        request_id: create.request_id.clone(),
        ..ExecFields::default()
    };
    let limit = Some(call.settings.default_timeout());
    let mut command = fields.prepare(Vec::new(), &Reader::DefaultShell, limit)?;
    command.spec.check().map_err(Error::from)?;
    let mut prepared = create::prepare(&call, create)?;
    prepared.spec.request_id = prepared.spec.request_id.map(|id| request_of_run(&id)).transpose()?;
    if !is_kept {
        limit_life(&mut prepared.spec, command.spec.timeout);
    }
    let warnings = prepared.warnings.clone();
    let first = FirstExec { spec: command.spec.clone(), in_default_shell: command.takes_default_shell };
    let (Ensured { view, is_new }, begun) = make_and_begin(&call, prepared, first).await?;
    command.sandbox = view.id.to_string();
    let answer = run_in(&call, command, begun, view.name.as_str(), is_kept).await;
    // One that was found is removed by whoever made it, or by its lifetime.
    let removed = is_new && !is_kept;
    if removed {
        let (call, id) = (call.clone(), view.id.clone());
        call.mcp.clone().spawn(async move { unmake(&call, &id).await });
    }
    let Answer { data: result, warnings: more, truncated, .. } = answer?;
    let data = RunResult { name: view.name.to_string(), removed, result };
    Ok(Answer::new(data).warn_all(warnings).warn_all(view.warnings).warn_all(more).truncate(truncated))
}

/// Makes sure that the sandbox goes, whatever happens to us: soon after its command's time is up, or once nothing runs
/// in it any more.
fn limit_life(spec: &mut SandboxSpec, limit: Option<Duration>) {
    let lifetime = &mut spec.lifetime;
    let most = limit.map(|limit| limit.saturating_add(LEFTOVER_LIFETIME));
    lifetime.ttl = [lifetime.ttl, most].into_iter().flatten().min();
    lifetime.idle = Some(lifetime.idle.map_or(LEFTOVER_LIFETIME, |idle| idle.min(LEFTOVER_LIFETIME)));
    lifetime.on_expiry = OnExpiry::Remove;
}

/// `begun`: the command, if it was started with its sandbox.
async fn run_in(
    call: &Call,
    mut command: Prepared,
    begun: Option<ExecView>,
    name: &str,
    is_kept: bool,
) -> ToolResult<ExecResult> {
    let launched = match begun {
        Some(exec) => Launched::with_its_sandbox(exec),
        None => launch(call, &command).await?,
    };
    let (max_bytes, limit) = (call.max_bytes(command.max_bytes), command.spec.timeout);
    let (gathered, end) = to_the_end(call, &launched, command.stdin.take(), max_bytes, limit).await?;
    let fail_as = command.fail_on_non_zero.then_some("command");
    let network = denials::during(call, &launched.exec).await;
    let (exec, is_removed, cwd) = (&launched.exec, !is_kept, command.spec.cwd.as_deref());
    let terms = Terms { call, name, exec, cwd, limit, fail_as, is_removed, program: None, network };
    conclude(gathered, &end, &terms).await
}

/// The id under which a run's sandbox is known: never by accident that of a `sandbox_create`, whose sandbox is to stay.
/// As long for every id, so that none is too long with it.
fn request_of_run(id: &RequestId) -> Result<RequestId, Error> {
    let hash = Sha256::digest(id.as_str().as_bytes());
    Ok(format!("run.{}", BASE64_URL_SAFE_NO_PAD.encode(hash)).parse()?)
}

#[cfg(test)]
mod tests {
    use engine::SandboxFilter;
    use futures_util::FutureExt;
    use sandbox::KeySpec;
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
            client.data("sandbox_run", json!({ "command": "echo on; sleep 1000", "timeoutMs": 2000 })).await;
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
        let (call, _) = client.leaving_at("here");
        let envelope = ask(call, "sandbox_run", json!({ "command": "echo here; sleep 1000" })).await;
        assert_eq!(envelope["error"]["code"], "cancelled", "{envelope}");
        assert_eq!(envelope["error"]["details"]["stdout"], "here\n");
        assert_eq!(n_sandboxes(&client).await, 0);
    }

    #[tokio::test]
    async fn a_run_removes_what_it_made_and_never_what_it_found() {
        let client = Client::new().await;
        let run = async |keep: bool| {
            let arguments = json!({ "requestId": "r-1", "command": "echo ran", "keep": keep });
            let data = client.data("sandbox_run", arguments).await;
            assert_eq!(data["stdout"], "ran\n");
            data["name"].clone()
        };
        // The id of an earlier create is another's.
        client.data("sandbox_create", json!({ "name": "mine", "requestId": "r-1" })).await;
        assert_ne!(run(false).await, "mine");
        assert_eq!(n_sandboxes(&client).await, 1);
        // The sandbox that the same run made before and was to keep is kept.
        let kept = run(true).await;
        assert_eq!(run(false).await, kept);
        assert_eq!(n_sandboxes(&client).await, 2);
        client.data("sandbox_remove", json!({ "name": kept, "force": true, "confirm": true })).await;
        // Someone went out of their way to have theirs found.
        let guessed = request_of_run(&"r-1".parse().unwrap()).unwrap();
        client.data("sandbox_create", json!({ "name": "trap", "requestId": guessed.as_str() })).await;
        let again = json!({ "requestId": "r-1", "command": "echo ran" });
        client.error("sandbox_run", again, "invalid_request").await;
        assert_eq!(n_sandboxes(&client).await, 2);
        // The longest id is not too long.
        let long = json!({ "requestId": "r".repeat(128), "command": "true" });
        client.data("sandbox_run", long).await;
    }

    #[tokio::test]
    async fn a_key_that_ends_while_its_command_runs_leaves_no_sandbox() {
        let client = Client::new().await;
        let (engine, owner) = (client.call.engine().clone(), client.call.who.clone());
        let made = engine.create_key(&owner, KeySpec::default()).await.unwrap();
        let who = engine.authenticate_key(&made.secret).await.unwrap();
        let token = client.call.cancelled.clone();
        let progress = Progress::new(move |_step| {
            let (engine, owner, key) = (engine.clone(), owner.clone(), made.key.id.clone());
            let token = token.clone();
            async move {
                engine.revoke_key(&owner, key.as_str()).await.unwrap();
                token.cancel();
            }
            .boxed()
        });
        let call = Call { who, progress, ..client.call.clone() };
        ask(call, "sandbox_run", json!({ "command": "echo here; sleep 1000" })).await;
        assert!(client.call.engine().authenticate_key(&made.secret).await.is_err());
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
