//! The resource usage of a sandbox, once and as a stream.

use std::time::Duration;

use axum::{Json, body::Body, response::Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::follow;
use crate::{
    dialects::opensandbox::{
        ask::Ask,
        metrics::{MEASURED_OVER, Reading, measure},
    },
    http::ApiResult,
};

/// The time between two readings on a stream.
const WATCHED_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn metrics(ask: Ask) -> ApiResult<Json<Value>> {
    Ok(Json(shape(&measure(ask.awake().await?, MEASURED_OVER).await?)))
}

/// A reading every second, as long as the client listens and the sandbox runs.
pub(super) async fn watch(ask: Ask) -> ApiResult<Response> {
    let first = measure(ask.awake().await?, MEASURED_OVER).await?;
    let more = stream::unfold(ask, |ask| async {
        let reading = measure(ask.sandbox(), WATCHED_EVERY).await.ok()?;
        Some((reading, ask))
    });
    let frames = stream::iter([first])
        .chain(more)
        .map(|reading| Ok::<_, sandbox::Error>(Bytes::from(format!("{}\n\n", shape(&reading)))));
    Ok(follow::answer(Body::from_stream(frames)))
}

/// 0 where the host cannot tell: clients count with numbers.
fn shape(reading: &Reading) -> Value {
    json!({
        "cpu_count": reading.cpu_count,
        "cpu_used_pct": reading.cpu_percent.unwrap_or(0.0),
        "mem_total_mib": reading.memory_total_mib,
        "mem_used_mib": reading.memory_used_mib.unwrap_or(0.0),
        "timestamp": reading.at_ms,
    })
}
