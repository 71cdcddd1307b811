//! What a sandbox uses.

use std::time::Duration;

use axum::{Json, body::Body, extract::State, response::Response};
use bytes::Bytes;
use engine::{Engine, Principal, SandboxRef};
use futures_util::{StreamExt, stream};
use sandbox::Result;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{follow, now_ms};
use crate::{
    dialects::opensandbox::ask::{Ask, Front},
    http::ApiResult,
};

/// Between the two readings from which the processors' share is found.
const MEASURED_OVER: Duration = Duration::from_millis(50);
/// Between two readings on a stream.
const WATCHED_EVERY: Duration = Duration::from_secs(1);
const MIB: f64 = 1024.0 * 1024.0;

pub(super) async fn metrics(State(front): State<Front>, ask: Ask) -> ApiResult<Json<Value>> {
    ask.awake().await?;
    Ok(Json(measure(front.engine(), ask.who(), &ask.which, MEASURED_OVER).await?))
}

/// A reading every second, as long as the client listens and the sandbox runs.
pub(super) async fn watch(State(front): State<Front>, ask: Ask) -> ApiResult<Response> {
    ask.awake().await?;
    let first = measure(front.engine(), ask.who(), &ask.which, MEASURED_OVER).await?;
    let state = (front.engine().clone(), ask.who().clone(), ask.which.clone());
    let more = stream::unfold(state, |(engine, who, which)| async {
        let measured = measure(&engine, &who, &which, WATCHED_EVERY).await.ok()?;
        Some((measured, (engine, who, which)))
    });
    let frames = stream::iter([first]).chain(more).map(|measured| Ok::<_, sandbox::Error>(frame(&measured)));
    Ok(follow::answer(Body::from_stream(frames)))
}

fn frame(measured: &Value) -> Bytes {
    Bytes::from(format!("{measured}\n\n"))
}

async fn measure(engine: &Engine, who: &Principal, which: &SandboxRef, over: Duration) -> Result<Value> {
    let limits = engine.sandbox(who, which).await?.plan.limits;
    let (began, before) = (Instant::now(), engine.usage(who, which).await?.cpu_micros);
    sleep(over).await;
    let usage = engine.usage(who, which).await?;
    let cpus = limits.cpus.as_f64();
    Ok(json!({
        "cpu_count": cpus,
        "cpu_used_pct": share(before, usage.cpu_micros, began.elapsed(), cpus),
        "mem_total_mib": limits.memory.bytes() as f64 / MIB,
        "mem_used_mib": usage.memory_bytes.unwrap_or(0) as f64 / MIB,
        "timestamp": now_ms(),
    }))
}

/// In percent of all processors that the sandbox may use; 0 where the host cannot tell.
fn share(before: Option<u64>, after: Option<u64>, over: Duration, cpus: f64) -> f64 {
    let used = after.zip(before).map_or(0, |(after, before)| after.saturating_sub(before)) as f64;
    let percent = used / (over.as_micros().max(1) as f64 * cpus) * 100.0;
    (percent * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_what_the_sandbox_may_use() {
        let over = Duration::from_secs(1);
        assert!((share(Some(0), Some(1_000_000), over, 2.0) - 50.0).abs() < f64::EPSILON);
        assert!(share(None, Some(1), over, 1.0).abs() < f64::EPSILON);
    }
}
