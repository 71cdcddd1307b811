//! One at a time for each request: who sends the same one twice at once must not have its files written twice.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use sandbox::{Namespace, RequestId};
use tokio::sync::OwnedMutexGuard;

type Turn = tokio::sync::Mutex<()>;
type Key = (Namespace, RequestId);

/// Requests that are being worked on; the others are swept out as new ones come.
static TURNS: LazyLock<Mutex<HashMap<Key, Weak<Turn>>>> = LazyLock::new(Mutex::default);

/// Waits until nobody else works on the same request. It is the caller's until dropped.
pub(super) async fn take(namespace: &Namespace, request: &RequestId) -> OwnedMutexGuard<()> {
    let turn = {
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        let key = (namespace.clone(), request.clone());
        let known = turns.get(&key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let turn = Arc::new(Turn::default());
            turns.insert(key, Arc::downgrade(&turn));
            turn
        })
    };
    turn.lock_owned().await
}
