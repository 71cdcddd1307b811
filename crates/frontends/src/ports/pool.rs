//! Connections to servers inside that wait for the next request of the same caller.
//!
//! A connection is never shared between callers: it ends with the key or the link that opened it. It is kept for a
//! moment only, because as long as it is open its sandbox does not count as idle.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Body;
use engine::Principal;
use hyper::client::conn::http1::SendRequest;
use sandbox::SandboxId;

use crate::http::StreamLease;

/// How long a connection waits for the next request.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Connections that wait at the same time, all together.
const MAX_KEPT: usize = 256;

/// The owner and the target of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Route {
    caller: String,
    sandbox: SandboxId,
    port: u16,
}

impl Route {
    pub(super) fn new(who: &Principal, lease: Option<&StreamLease>, sandbox: SandboxId, port: u16) -> Self {
        let caller = lease.map_or_else(|| who.name.clone(), StreamLease::caller);
        Self { caller, sandbox, port }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Pool(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    by_route: HashMap<Route, Vec<(u64, SendRequest<Body>)>>,
    n_kept: usize,
    next_number: u64,
}

impl Pool {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that can take a request now.
    pub(super) fn take(&self, route: &Route) -> Option<SendRequest<Body>> {
        let mut kept = self.kept();
        while let Some((_, sender)) = kept.pop(route) {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    /// Keeps a connection once its answer was read, if the server leaves it open.
    pub(super) fn keep_when_free(&self, route: Route, mut sender: SendRequest<Body>) {
        let pool = self.clone();
        tokio::spawn(async move {
            if sender.ready().await.is_err() {
                return;
            }
            let Some(number) = pool.kept().push(&route, sender) else { return };
            tokio::time::sleep(KEPT_FOR).await;
            pool.kept().remove(&route, number);
        });
    }
}

impl Kept {
    fn push(&mut self, route: &Route, sender: SendRequest<Body>) -> Option<u64> {
        if self.n_kept >= MAX_KEPT {
            return None;
        }
        self.n_kept += 1;
        self.next_number += 1;
        self.by_route.entry(route.clone()).or_default().push((self.next_number, sender));
        Some(self.next_number)
    }

    /// The latest first: it has the best chance to be open still.
    fn pop(&mut self, route: &Route) -> Option<(u64, SendRequest<Body>)> {
        let waiting = self.by_route.get_mut(route)?;
        let popped = waiting.pop();
        if waiting.is_empty() {
            self.by_route.remove(route);
        }
        self.n_kept -= usize::from(popped.is_some());
        popped
    }

    /// Does nothing if it was taken meanwhile.
    fn remove(&mut self, route: &Route, number: u64) {
        let Some(waiting) = self.by_route.get_mut(route) else { return };
        let before = waiting.len();
        waiting.retain(|(own, _)| *own != number);
        self.n_kept -= before - waiting.len();
        if waiting.is_empty() {
            self.by_route.remove(route);
        }
    }
}
