//! Leases on content that somebody in this process is working with right now, and which therefore stays, recorded or
//! not.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::digest::Digest;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Thing {
    Blob(Digest),
    Layer(Digest),
    Image(Digest),
}

#[derive(Debug, Default)]
pub(crate) struct Leases {
    counts: Mutex<HashMap<Thing, usize>>,
}

impl Leases {
    fn counts(&self) -> MutexGuard<'_, HashMap<Thing, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn holds(&self, thing: &Thing) -> bool {
        self.counts().contains_key(thing)
    }
}

/// Holds on to things until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    leases: std::sync::Arc<Leases>,
    things: Vec<Thing>,
}

impl Lease {
    pub(crate) fn new(leases: &std::sync::Arc<Leases>, things: Vec<Thing>) -> Self {
        let mut counts = leases.counts();
        for thing in &things {
            *counts.entry(thing.clone()).or_default() += 1;
        }
        drop(counts);
        Self { leases: std::sync::Arc::clone(leases), things }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut counts = self.leases.counts();
        for thing in &self.things {
            if let Some(count) = counts.get_mut(thing) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(thing);
                }
            }
        }
    }
}
