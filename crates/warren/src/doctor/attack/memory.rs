//! Memory: asks for more of every kind than the sandbox may have. Some limit must stop it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use sandbox::Enforcement;
use serde_json::json;

use super::{
    Seen,
    inside::{argv, report_of},
    stage::{MEMORY_LIMIT, Stage},
};
use crate::{error::CommandResult, output};

/// How much is requested of each kind.
const ASKED: u64 = 50_000_000;
/// How far a kind may exceed the limit, because limits are set in coarse steps.
const SLACK: u64 = 8 << 20;

pub(super) async fn kind(stage: &Stage, kind: &'static str) -> CommandResult<Seen> {
    // Named memory of an earlier kind stays until the sandbox ends.
    stage.operator.act_with_grace(&stage.small, "restart", Some(Duration::ZERO)).await?;
    let take = |bytes: u64| argv("memory", &[kind.to_owned(), bytes.to_string()]);
    let nothing = stage.exec(&stage.small, take(0)).await?;
    if report_of(&nothing).is_none() {
        return Ok(Seen::untried("the limit is too low to run the probe at all"));
    }
    let ran = stage.exec(&stage.small, take(ASKED)).await?;
    let limit = output::bytes(MEMORY_LIMIT);
    let Some(report) = report_of(&ran) else {
        let outcome = ran.exec.outcome.map(|outcome| outcome.to_string()).unwrap_or_default();
        return Ok(Seen::contained(format!("stopped under a limit of {limit}: {outcome}")));
    };
    if let Some(why) = report.skipped {
        return Ok(Seen::untried(why));
    }
    let taken = report.facts.get("taken").and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX);
    Ok(judge(stage, taken))
}

fn judge(stage: &Stage, taken: u64) -> Seen {
    let (limit, told) = (output::bytes(MEMORY_LIMIT), output::bytes(taken));
    if taken <= MEMORY_LIMIT + SLACK {
        return Seen::contained(format!("stopped at {told} under a limit of {limit}"));
    }
    let text = format!("took {told} under a limit of {limit}");
    match stage.memory_is_held_by() {
        Some(Enforcement::CgroupV1 | Enforcement::CgroupV2) => Seen::open(text),
        _ => Seen::weak(format!("{text}: no memory cgroup here")),
    }
}

/// The same through the file API: memory that the daemon writes into the sandbox counts for the sandbox.
pub(super) async fn through_api(stage: &Stage, directory: &'static str) -> CommandResult<Seen> {
    let limits = json!({ "memory": MEMORY_LIMIT, "swap": 0, "tmp": 4 * ASKED, "shm": 4 * ASKED });
    let Ok(sandbox) = stage.create(json!({ "limits": limits })).await else {
        return Ok(Seen::contained("a /tmp larger than the memory limit is refused"));
    };
    let piece = Bytes::from(vec![1; 1_000_000]);
    let pieces = stream::iter((0..ASKED / 1_000_000).map(move |_| Ok(piece.clone())));
    let path = format!("{directory}/attack-api");
    let written = stage.operator.write_file(sandbox.id.as_str(), &path, None, pieces).await;
    let seen = match written {
        Ok(taken) => judge(stage, taken),
        Err(error) => Seen::contained(format!("refused: {}", super::words(&error))),
    };
    stage.remove(sandbox.id.as_str()).await;
    Ok(seen)
}
