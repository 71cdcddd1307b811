//! Measures the resource usage of a sandbox.

use std::time::Duration;

use engine::SandboxView;
use sandbox::Result;
use tokio::time::{Instant, sleep};

use super::handle::{SandboxHandle, now_ms};

/// Between the two readings from which the processors' share is found.
pub(super) const MEASURED_OVER: Duration = Duration::from_millis(50);
const MIB: f64 = 1024.0 * 1024.0;

/// Shares are absent where the host cannot tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) cpu_count: f64,
    /// The share of all processors that the sandbox may use.
    pub(super) cpu_percent: Option<f64>,
    pub(super) memory_total_mib: f64,
    pub(super) memory_used_mib: Option<f64>,
    pub(super) at_ms: i64,
}

impl Reading {
    /// Returns the reading of a sandbox that uses nothing, because nothing runs.
    pub(super) fn idle(view: &SandboxView) -> Self {
        let limits = &view.plan.limits;
        Self {
            cpu_count: limits.cpus.as_f64(),
            cpu_percent: None,
            memory_total_mib: limits.memory.bytes() as f64 / MIB,
            memory_used_mib: None,
            at_ms: now_ms(),
        }
    }
}

pub(super) async fn measure(sandbox: SandboxHandle<'_>, over: Duration) -> Result<Reading> {
    let SandboxHandle { engine, who, which } = sandbox;
    let idle = Reading::idle(&sandbox.view().await?);
    let (began, before) = (Instant::now(), engine.usage(who, which).await?.cpu_micros);
    sleep(over).await;
    let usage = engine.usage(who, which).await?;
    let spent = before.zip(usage.cpu_micros).map(|(before, after)| after.saturating_sub(before));
    Ok(Reading {
        cpu_percent: spent.map(|micros| percent(micros, began.elapsed(), idle.cpu_count)),
        memory_used_mib: usage.memory_bytes.map(|bytes| rounded(bytes as f64 / MIB)),
        at_ms: now_ms(),
        ..idle
    })
}

fn percent(spent_micros: u64, over: Duration, cpus: f64) -> f64 {
    rounded(spent_micros as f64 / (over.as_micros().max(1) as f64 * cpus) * 100.0)
}

fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_what_the_sandbox_may_use() {
        let half = percent(1_000_000, Duration::from_secs(1), 2.0);
        assert!((half - 50.0).abs() < f64::EPSILON, "{half}");
    }
}
