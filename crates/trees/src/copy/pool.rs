//! Threads that fill large files while the walk goes on. None is started for a tree without any.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{Scope, ScopedJoinHandle},
};

use super::{FileJob, data::Ways};
use crate::{
    attributes::Us,
    error::{Error, Result},
};

/// Most threads: more would wait for the disk, not for processors.
const MAX_THREADS: usize = 4;
/// Files that wait for a thread; each holds two descriptors. The walk itself takes those that do not fit.
const MAX_WAITING: usize = 16;

type Work = (FileJob, String);

pub(super) struct Pool<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    ways: &'env Ways,
    threads: Vec<ScopedJoinHandle<'scope, Result<()>>>,
    queue: Option<SyncSender<Work>>,
}

impl<'scope, 'env> Pool<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>, ways: &'env Ways) -> Self {
        Self { scope, ways, threads: Vec::new(), queue: None }
    }

    pub(super) fn hand(&mut self, job: FileJob, shown: String, buffer: &mut Vec<u8>, us: Us) -> Result<()> {
        let own = match self.queue(us) {
            Some(queue) => match queue.try_send((job, shown)) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(own) | TrySendError::Disconnected(own)) => own,
            },
            None => (job, shown),
        };
        run(own, self.ways, buffer, us)
    }

    /// Waits for work in progress; returns the first failure, if there was one.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.queue = None;
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    }

    /// The queue to the threads, if there is more than one processor to run them.
    fn queue(&mut self, us: Us) -> Option<&SyncSender<Work>> {
        if self.queue.is_none() {
            let beside =
                std::thread::available_parallelism().map_or(0, |count| count.get() - 1).min(MAX_THREADS - 1);
            if beside == 0 {
                return None;
            }
            let (send, receive) = sync_channel(MAX_WAITING);
            let receive = Arc::new(Mutex::new(receive));
            for _thread in 0..beside {
                let (receive, ways) = (Arc::clone(&receive), self.ways);
                self.threads.push(self.scope.spawn(move || work(&receive, ways, us)));
            }
            self.queue = Some(send);
        }
        self.queue.as_ref()
    }
}

/// After a failure the rest is dropped, so that the walk is never kept waiting.
fn work(queue: &Mutex<Receiver<Work>>, ways: &Ways, us: Us) -> Result<()> {
    let mut buffer = Vec::new();
    let mut result = Ok(());
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(next) = next else { return result };
        if result.is_ok() {
            result = run(next, ways, &mut buffer, us);
        }
    }
}

fn run((job, shown): Work, ways: &Ways, buffer: &mut Vec<u8>, us: Us) -> Result<()> {
    job.run(ways, buffer, us).map_err(|(act, errno)| Error::io(act, shown, errno))
}
