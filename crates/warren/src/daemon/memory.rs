//! Returns memory to the kernel after the daemon was busy.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Rare enough to cost nothing, often enough to return memory soon after a burst.
const PAUSE: Duration = Duration::from_secs(10);

/// Periodically returns freed memory to the kernel, until `stop`.
pub(super) async fn give_back(stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => jail::release_free_memory(),
        }
    }
}
