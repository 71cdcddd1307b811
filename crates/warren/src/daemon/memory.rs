//! Returns memory to the kernel after the daemon was busy.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

/// Rare enough to cost nothing, often enough to return memory soon after a burst.
const PAUSE: Duration = Duration::from_secs(10);
/// A daemon that used less of a processor during a pause was idle.
const IDLE: Duration = Duration::from_millis(10);

/// Periodically returns freed memory to the kernel, until `stop`. Once the daemon is idle, so are the pages of its
/// program that were mapped for its start, or for work that is over.
pub(super) async fn give_back(stop: CancellationToken) {
    let mut used_before = used();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => jail::release_free_memory(),
        }
        let used = used();
        let is_idle = used.saturating_sub(used_before) < IDLE;
        used_before = used;
        if is_idle {
            // In a thread of its own: it takes a millisecond.
            drop(tokio::task::spawn_blocking(jail::let_go_of_program).await);
        }
    }
}

/// The processor time of the whole daemon so far.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
