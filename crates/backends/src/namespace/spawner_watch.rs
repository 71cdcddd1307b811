//! Noticing that the spawner has died: without it nothing can be made, removed or measured.

use std::io;

use jail::SpawnerHandle;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::{sync::watch, task::AbortHandle};

use super::watched;

/// Ends with the back end, which lets go of its spawner in good order.
#[derive(Debug)]
pub(crate) struct SpawnerWatch {
    pid: i32,
    has_ended: watch::Receiver<bool>,
    task: AbortHandle,
}

impl SpawnerWatch {
    /// Must be called in a Tokio runtime.
    pub(crate) fn start(spawner: &SpawnerHandle) -> io::Result<Self> {
        let pid = spawner.pid();
        let number = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let handle = watched::readable(pidfd_open(number, PidfdFlags::NONBLOCK)?)?;
        let (tell, has_ended) = watch::channel(false);
        let task = tokio::spawn(async move {
            if handle.readable().await.is_ok() {
                tracing::error!(
                    pid,
                    "the spawner has ended; sandboxes live on, but the daemon must be started again"
                );
                tell.send_replace(true);
            }
            // Nobody is told that it ended because this task did.
            std::future::pending::<()>().await;
        });
        Ok(Self { pid, has_ended, task: task.abort_handle() })
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.has_ended.borrow()
    }

    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut has_ended = self.has_ended.clone();
        async move {
            if has_ended.wait_for(|ended| *ended).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// What every later request is told.
    pub(crate) fn epitaph(&self) -> String {
        format!(
            "the spawner (process {}) has ended; sandboxes live on: stop the daemon and start it again",
            self.pid
        )
    }
}

impl Drop for SpawnerWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
