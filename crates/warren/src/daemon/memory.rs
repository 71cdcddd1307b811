//! A daemon that was busy once should not stay large.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Seldom enough to cost nothing, often enough that a burst is soon forgotten.
const PAUSE: Duration = Duration::from_secs(10);

/// Gives freed memory back to the kernel now and then, until `stop`.
pub(super) async fn give_back(stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => jail::release_free_memory(),
        }
    }
}
