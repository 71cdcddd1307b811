//! A few threads for blocking work; they end when there is none.
//!
//! Not Tokio's own pool: that one panics when the system refuses a thread, and a workload can cause that.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use guest_protocol::{Failure, FailureKind};
use tokio::sync::oneshot;

use crate::limits::{BLOCKING_KEEP_ALIVE, BLOCKING_STACK_BYTES, MAX_ARCHIVES, MAX_BLOCKING_THREADS};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// At most one entry per connection: each waits for one job.
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// Threads held by archives, or about to be.
    archives: usize,
}

static STATE: Mutex<State> = Mutex::new(State { queue: VecDeque::new(), threads: 0, idle: 0, archives: 0 });
static WORK: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, State> {
    // Nothing panics while holding the lock, and the state would still be consistent.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A job that was handed to a thread. Dropping this does not stop the job.
#[derive(Debug)]
pub(crate) struct Running<T>(oneshot::Receiver<T>);

impl<T> Running<T> {
    /// Waits for the job; fails if the job panicked.
    pub(crate) async fn done(self) -> Result<T, Failure> {
        self.0.await.map_err(|_panicked| Failure::new(FailureKind::Internal, "a file operation broke off"))
    }
}

/// Hands a job to a thread.
pub(crate) fn spawn<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<Running<T>, Failure> {
    hand_over(state(), job)
}

/// Hands a job to a thread that it may hold for as long as a host takes to read or write the other end.
pub(crate) fn spawn_archive<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<Running<T>, Failure> {
    let turn = archive_turn()?;
    hand_over(state(), move || {
        let _turn = turn;
        job()
    })
}

/// Takes one of the archive slots.
pub(crate) fn archive_turn() -> Result<ArchiveTurn, Failure> {
    let mut state = state();
    if state.archives >= MAX_ARCHIVES {
        let message = format!("{MAX_ARCHIVES} archives are being packed or unpacked already");
        return Err(Failure::new(FailureKind::LimitReached, message));
    }
    state.archives += 1;
    Ok(ArchiveTurn)
}

/// The slot of one archive; released when the archive is done, broke off, or never began.
#[derive(Debug)]
pub(crate) struct ArchiveTurn;

impl Drop for ArchiveTurn {
    fn drop(&mut self) {
        state().archives -= 1;
    }
}

fn hand_over<T: Send + 'static>(
    mut state: MutexGuard<'static, State>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<Running<T>, Failure> {
    let (sender, receiver) = oneshot::channel();
    let job: Job = Box::new(move || {
        // If nobody waits any more, the result is dropped with everything it holds.
        sender.send(job()).ok();
    });
    state.queue.push_back(job);
    if state.idle >= state.queue.len() {
        WORK.notify_one();
    } else if state.threads < MAX_BLOCKING_THREADS + state.archives {
        let spawned = thread::Builder::new()
            .name("guest-files".to_owned())
            .stack_size(BLOCKING_STACK_BYTES)
            .spawn(work);
        match spawned {
            Ok(_detached) => state.threads += 1,
            // Another thread will take it.
            Err(_) if state.threads > state.archives => {}
            Err(error) => {
                let unserved = state.queue.pop_back();
                // Dropping the job may lock the state.
                drop(state);
                drop(unserved);
                let message = format!("no thread for a file operation: {error}");
                return Err(Failure::new(FailureKind::LimitReached, message));
            }
        }
    }
    Ok(Running(receiver))
}

fn work() {
    let mut state = state();
    loop {
        if let Some(job) = state.queue.pop_front() {
            drop(state);
            // A panicking job fails alone: its sender is dropped, which its caller notices.
            catch_unwind(AssertUnwindSafe(job)).ok();
            state = self::state();
            continue;
        }
        state.idle += 1;
        let (woken, waited) =
            WORK.wait_timeout(state, BLOCKING_KEEP_ALIVE).unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if waited.timed_out() && state.queue.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}
