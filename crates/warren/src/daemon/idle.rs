//! Stops the daemon when no sandbox is alive and no requests come.

use std::time::{Duration, Instant};

use engine::Engine;
use frontends::http::Activity;
use tokio_util::sync::CancellationToken;

/// Longest and shortest pause between two checks.
const MAX_PAUSE: Duration = Duration::from_secs(5);
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// Cancels `stop` once the daemon has idled for `limit` without a break. An open connection counts as activity.
pub(super) async fn stop_when_idle(
    limit: Option<Duration>,
    engine: Engine,
    activity: Activity,
    stop: CancellationToken,
) {
    let Some(limit) = limit else { return };
    let pause = (limit / 8).clamp(MIN_PAUSE, MAX_PAUSE);
    let mut idle_since = Instant::now();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        if activity.n_open() > 0 || !engine.is_idle().await {
            idle_since = Instant::now();
        } else if idle_since.elapsed() >= limit {
            tracing::info!(after = ?limit, "no sandbox is alive and no request came; exiting");
            stop.cancel();
            return;
        }
    }
}
