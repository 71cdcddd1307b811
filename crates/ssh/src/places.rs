//! Places that callers share: a number in all, and a smaller one for each caller.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One caller cannot shut out the others: it gets `each` places, of which there are more in all.
#[derive(Debug)]
pub(crate) struct Places<C> {
    all: Arc<Semaphore>,
    each: usize,
    by_caller: Mutex<HashMap<C, usize>>,
}

/// Free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place<C: Clone + Eq + Hash> {
    places: Arc<Places<C>>,
    caller: C,
    _one_of_all: OwnedSemaphorePermit,
}

impl<C: Clone + Eq + Hash> Places<C> {
    pub(crate) fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { all: Arc::new(Semaphore::new(all)), each, by_caller: Mutex::default() })
    }

    /// `None` if all places are taken, or all that this caller may have.
    pub(crate) fn take(self: &Arc<Self>, caller: C) -> Option<Place<C>> {
        let one_of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let mut by_caller = self.lock();
        let count = by_caller.get(&caller).copied().unwrap_or_default();
        if count >= self.each {
            return None;
        }
        by_caller.insert(caller.clone(), count + 1);
        drop(by_caller);
        Some(Place { places: Arc::clone(self), caller, _one_of_all: one_of_all })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<C, usize>> {
        // Every change in there is one insert or remove; a panic elsewhere leaves it consistent.
        self.by_caller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Clone + Eq + Hash> Drop for Place<C> {
    fn drop(&mut self) {
        let mut by_caller = self.places.lock();
        if let Some(count) = by_caller.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                by_caller.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_cannot_shut_out_the_others() {
        let places = Places::new(5, 3);
        let flood: Vec<_> = (0..5).filter_map(|_| places.take("ana")).collect();
        assert_eq!(flood.len(), 3);
        let others: Vec<_> = (0..5).filter_map(|_| places.take("bo")).collect();
        assert_eq!(others.len(), 2, "there are no more in all");
        drop(flood);
        assert!(places.take("ana").is_some());
        drop(others);
        assert!(places.lock().is_empty(), "nothing is kept of callers who are gone");
    }
}
