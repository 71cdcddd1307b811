//! `sandbox_get_metrics`: what a sandbox uses right now.

use std::time::Duration;

use sandbox::SandboxState;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use super::{sandboxes::Inside, target::Target, words};
use crate::mcp::{Answer, Call, Nullable, ToolResult};

/// Between the two readings from which the processor's share is found. Theirs take a second.
const MEASURED_OVER: Duration = Duration::from_millis(50);
const MIB: f64 = 1024.0 * 1024.0;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Metrics {
    cpu_count: f64,
    /// Of cpu_count
    cpu_used_percentage: Nullable<f64>,
    memory_total_in_mib: f64,
    memory_used_in_mib: Nullable<f64>,
    /// Milliseconds since 1970
    timestamp: i64,
}

pub(super) async fn get(call: Call, arguments: Inside) -> ToolResult<Metrics> {
    let target = Target::find(&call, &arguments.sandbox_id).await?;
    let limits = &target.view.plan.limits;
    let cpu_count = limits.cpus.as_f64();
    let is_alive = matches!(target.view.state, SandboxState::Running | SandboxState::Paused);
    let (percent, used) = match is_alive {
        true => measure(&call, &target, cpu_count).await.map_err(words::failure)?,
        false => (None, None),
    };
    Ok(Answer::new(Metrics {
        cpu_count,
        cpu_used_percentage: Nullable(percent),
        memory_total_in_mib: limits.memory.bytes() as f64 / MIB,
        memory_used_in_mib: Nullable(used.map(|bytes| rounded(bytes as f64 / MIB))),
        timestamp: jiff::Timestamp::now().as_millisecond(),
    }))
}

/// The processor's share in percent, and the bytes of memory.
async fn measure(
    call: &Call,
    target: &Target,
    cpu_count: f64,
) -> sandbox::Result<(Option<f64>, Option<u64>)> {
    let began = Instant::now();
    let before = call.engine().usage(&call.who, &target.which).await?.cpu_micros;
    tokio::time::sleep(MEASURED_OVER).await;
    let usage = call.engine().usage(&call.who, &target.which).await?;
    let had = began.elapsed().as_micros().max(1) as f64 * cpu_count.max(f64::MIN_POSITIVE);
    let share = |(before, after): (u64, u64)| rounded(after.saturating_sub(before) as f64 / had * 100.0);
    Ok((before.zip(usage.cpu_micros).map(share), usage.memory_bytes))
}

fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
