//! Writes files from tasks, without a slow disk blocking everyone else.
//!
//! A write to the page cache takes microseconds, until something dirties pages faster than the disk takes them; then
//! the kernel makes every writer wait, for tens of milliseconds at a time. The daemon has few threads for its tasks: a
//! few waiting writers would stop it. So small writes are done at once, for as long as that is fast; for the others the
//! thread's other tasks move to another thread first.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use sandbox::Result;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
    task::block_in_place,
};

use crate::error;

/// Up to this size a write is done at once; handing over the thread would cost more.
const SMALL_BYTES: usize = 16 * 1024;
/// A slower write than this has met a slow disk…
const SLOW: Duration = Duration::from_millis(2);
/// …and for this long after it nothing is written at once.
const SLOW_FOR: Duration = Duration::from_secs(1);
/// Writers that may wait for the disk at the same time, each with a thread of its own; others wait for their turn.
const MAX_BLOCKED_WRITERS: usize = 8;

/// Removes the daemon's own files in `directory`, if the back end has not done so.
pub(crate) async fn remove_directory(directory: &Path) -> Result<()> {
    match tokio::fs::remove_dir_all(directory).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error::from_io("remove", directory, error))
        }
        _ => Ok(()),
    }
}

#[derive(Debug)]
pub(crate) struct Disk {
    opened_at: Instant,
    /// Milliseconds after `opened_at`.
    slow_until: AtomicU64,
    turns: Semaphore,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let turns = Semaphore::new(MAX_BLOCKED_WRITERS);
        Self { opened_at: Instant::now(), slow_until: AtomicU64::new(0), turns }
    }

    /// Runs file operations that write about `n_bytes`. A caller that stops waiting stops before or after them, never
    /// within.
    pub(crate) async fn write<T>(&self, n_bytes: usize, work: impl FnOnce() -> T) -> T {
        if n_bytes <= SMALL_BYTES && !self.is_slow() {
            return self.timed(work);
        }
        // An error would mean that the semaphore was closed, which nobody does.
        let _turn = self.turns.acquire().await;
        may_block(|| self.timed(work))
    }

    fn is_slow(&self) -> bool {
        self.slow_until.load(Ordering::Relaxed) > millis(self.opened_at.elapsed())
    }

    fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = work();
        if begin.elapsed() > SLOW {
            self.slow_until.store(millis(self.opened_at.elapsed() + SLOW_FOR), Ordering::Relaxed);
        }
        result
    }
}

/// Runs blocking work. With several threads, another one takes over this one's tasks.
pub(crate) fn may_block<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(work),
        _ => work(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    /// All other tasks of the only thread continue while a writer waits for the disk.
    async fn check_writer_stops_nobody(disk: &'static Disk, n_bytes: usize) {
        let (thaw, frozen) = mpsc::channel::<()>();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let writer = tokio::spawn(async move {
            disk.write(n_bytes, move || {
                begun.send(()).unwrap();
                frozen.recv().unwrap();
            })
            .await;
        });
        begins.await.unwrap();
        // Runs on the runtime's only worker, which the writer does not hold any more.
        tokio::spawn(async {}).await.unwrap();
        thaw.send(()).unwrap();
        writer.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_large_write_that_is_throttled_stops_nobody() {
        let disk: &Disk = Box::leak(Box::new(Disk::new()));
        // Spawned, since this test's own future is not on the worker.
        tokio::spawn(check_writer_stops_nobody(disk, 1 << 20)).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn once_the_disk_is_slow_small_writes_stop_nobody_either() {
        let disk: &Disk = Box::leak(Box::new(Disk::new()));
        // The sleep simulates the slow disk.
        disk.write(1, || thread::sleep(2 * SLOW)).await;
        assert!(disk.is_slow());
        tokio::spawn(check_writer_stops_nobody(disk, 1)).await.unwrap();
    }

    #[tokio::test]
    async fn one_thread_does_it_itself() {
        let disk = Disk::new();
        assert_eq!(disk.write(1 << 20, || 7).await, 7);
    }
}
