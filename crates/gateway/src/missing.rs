//! A short memory of what an index does not have, so that it is not asked again at once.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::error::Refusal;

const MISSING_FOR: Duration = Duration::from_secs(20);
const MAX_MISSING: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Missing {
    refusals: Mutex<HashMap<String, (Instant, Refusal)>>,
}

impl Missing {
    pub(crate) fn insert(&self, key: &str, refusal: &Refusal) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.retain(|_, (since, _)| since.elapsed() < MISSING_FOR);
        if refusals.len() < MAX_MISSING {
            refusals.insert(key.to_owned(), (Instant::now(), refusal.clone()));
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Refusal> {
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, refusal) = refusals.get(key)?;
        (since.elapsed() < MISSING_FOR).then(|| refusal.clone())
    }
}
