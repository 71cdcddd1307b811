//! Jobs in progress: who may see them, who waits for which, and whose turn it is.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sandbox::{Error, Limit, PackageJobId, PackageManager, RequestId, Result, SandboxId};
use store::PackageJobRecord;
use tokio::sync::watch;

use crate::request_hash;

/// Jobs of one sandbox that run or wait for their turn.
const MAX_OPEN_JOBS: usize = 16;

type Turn = Arc<tokio::sync::Mutex<()>>;

/// Every job that this daemon has started or resumed and that has not ended.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    open: Mutex<HashMap<PackageJobId, Arc<LiveJob>>>,
    turns: Mutex<HashMap<(SandboxId, PackageManager), Turn>>,
}

#[derive(Debug)]
pub(crate) struct LiveJob {
    /// Only the job's own task sends.
    pub(super) record: watch::Sender<PackageJobRecord>,
    /// Where the install runs, as its caller said it.
    cwd: Option<String>,
}

impl LiveJob {
    pub(super) fn new(record: PackageJobRecord, cwd: Option<String>) -> Arc<Self> {
        Arc::new(Self { record: watch::Sender::new(record), cwd })
    }

    pub(super) fn now(&self) -> PackageJobRecord {
        self.record.borrow().clone()
    }
}

impl Jobs {
    /// Registers a new job, unless one in progress does the same: then that one is returned.
    pub(super) fn admit(&self, job: &Arc<LiveJob>) -> Result<Option<Arc<LiveJob>>> {
        let new = job.now();
        let mut open = self.open();
        let of_sandbox = || open.values().filter(|other| other.record.borrow().sandbox == new.sandbox);
        let is_same = |other: &&Arc<LiveJob>| {
            let is_same_place = other.cwd == job.cwd;
            let other = other.record.borrow();
            let is_asked_again = new.request_id.is_some() && other.request_id == new.request_id;
            // A caller who named a request wants to find that job again, not another's.
            let is_joined = new.request_id.is_none()
                && is_same_place
                && (other.manager, &other.packages) == (new.manager, &new.packages);
            is_asked_again || is_joined
        };
        if let Some(same) = of_sandbox().find(is_same) {
            let known = same.now().request_hash;
            request_hash::check(new.request_id.as_ref(), known.as_deref(), new.request_hash.as_deref())?;
            return Ok(Some(Arc::clone(same)));
        }
        if of_sandbox().count() >= MAX_OPEN_JOBS {
            let message = format!("{MAX_OPEN_JOBS} package jobs of this sandbox are still open");
            let most = MAX_OPEN_JOBS as u64;
            return Err(Error::over_limit(Limit::PackageJobs, most, most + 1, message));
        }
        open.insert(new.id, Arc::clone(job));
        Ok(None)
    }

    /// Registers a job of an earlier daemon.
    pub(super) fn insert(&self, job: &Arc<LiveJob>) {
        let id = job.record.borrow().id.clone();
        self.open().insert(id, Arc::clone(job));
    }

    pub(super) fn get(&self, id: &PackageJobId) -> Option<Arc<LiveJob>> {
        self.open().get(id).cloned()
    }

    pub(super) fn requested(&self, sandbox: &SandboxId, request: &RequestId) -> Option<Arc<LiveJob>> {
        let is_it = |job: &&Arc<LiveJob>| {
            let record = job.record.borrow();
            record.sandbox == *sandbox && record.request_id.as_ref() == Some(request)
        };
        self.open().values().find(is_it).cloned()
    }

    pub(super) fn remove(&self, id: &PackageJobId) {
        self.open().remove(id);
    }

    /// One install at a time for each sandbox and manager, in order of arrival.
    pub(super) fn turn(&self, sandbox: &SandboxId, manager: PackageManager) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry((sandbox.clone(), manager)).or_default())
    }

    fn open(&self) -> MutexGuard<'_, HashMap<PackageJobId, Arc<LiveJob>>> {
        // Every change in there is one insert or remove; a panic elsewhere leaves it consistent.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
