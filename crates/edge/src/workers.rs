//! The threads that carry traffic. Each has a runtime of its own, and a sandbox stays on one of them: its tasks wake
//! each other without waking another thread, which is most of what a short connection would wait for.

use std::{convert::Infallible, io, sync::Arc, thread, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

const WORKERS: usize = 2;
const STACK_BYTES: usize = 512 * 1024;
/// Shorter than any patience with a connection.
const BEAT: Duration = Duration::from_secs(4);

/// The threads that carry traffic. They end when this is dropped, with everything that runs on them.
#[derive(Debug)]
pub(crate) struct Workers(Vec<Worker>);

#[derive(Debug)]
struct Worker {
    handle: Handle,
    /// Every sandbox on it has a clone.
    load: Arc<()>,
    _stop: oneshot::Sender<Infallible>,
}

/// Where a sandbox is served.
#[derive(Debug)]
pub(crate) struct WorkerSlot {
    pub(crate) handle: Handle,
    _load: Arc<()>,
}

impl Workers {
    pub(crate) fn start() -> io::Result<Self> {
        (0..WORKERS).map(|_number| Worker::start()).collect::<io::Result<_>>().map(Self)
    }

    /// On the thread with the fewest sandboxes.
    pub(crate) fn place(&self) -> io::Result<WorkerSlot> {
        let worker = self.0.iter().min_by_key(|worker| Arc::strong_count(&worker.load));
        let worker = worker.ok_or(io::ErrorKind::NotFound)?;
        Ok(WorkerSlot { handle: worker.handle.clone(), _load: Arc::clone(&worker.load) })
    }
}

/// Always has a timer that ends sooner than those of connections: a timer that is the next of its thread wakes it.
async fn beat() {
    let mut beat = tokio::time::interval(BEAT);
    loop {
        beat.tick().await;
    }
}

impl Worker {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("edge-worker".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _dropped = stopped => {}
                    () = beat() => {}
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, load: Arc::default(), _stop: stop })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_are_spread_over_the_threads() {
        let workers = Workers::start().unwrap();
        let mut places: Vec<_> = (0..6).map(|_number| workers.place().unwrap()).collect();
        let counts =
            || workers.0.iter().map(|worker| Arc::strong_count(&worker.load) - 1).collect::<Vec<_>>();
        assert_eq!(counts(), [3, 3]);
        places.clear();
        assert_eq!(counts(), [0, 0]);
    }
}
