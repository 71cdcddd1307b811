//! Tasks that somebody waits for.

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// Tasks of one owner. Their futures are boxed: tokio's task is otherwise compiled for each of them, and twice, since
/// it has two schedulers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tasks(TaskTracker);

impl Tasks {
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.spawn(task.boxed())
    }

    /// Says that no more will come, without which [`Self::wait`] does not return.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    /// Returns when all have ended.
    pub(crate) async fn wait(&self) {
        self.0.wait().await;
    }
}
