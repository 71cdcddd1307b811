//! One at a time for each digest.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::digest::Digest;

/// A second caller waits and finds the work done, or resumes it if the first gave up.
#[derive(Debug, Default)]
pub(super) struct KeyedLocks {
    locks: Mutex<HashMap<Digest, Weak<AsyncMutex<()>>>>,
}

impl KeyedLocks {
    fn of(&self, key: &Digest) -> Arc<AsyncMutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(key.clone(), Arc::downgrade(&lock));
        lock
    }

    pub(super) async fn lock(&self, key: &Digest, on_wait: impl FnOnce()) -> OwnedMutexGuard<()> {
        let lock = self.of(key);
        match Arc::clone(&lock).try_lock_owned() {
            Ok(guard) => guard,
            Err(_held) => {
                on_wait();
                lock.lock_owned().await
            }
        }
    }
}
