//! Subscriptions of clients with sessions: each is a task that ends with the session.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_util::{StreamExt, stream::BoxStream};
use rmcp::{
    ErrorData, Peer, RoleServer,
    model::{ErrorCode, ResourceUpdatedNotificationParam},
};
use tokio_util::task::AbortOnDropHandle;

/// Resources that one client may follow.
pub(super) const MAX_SUBSCRIPTIONS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    tasks: Mutex<HashMap<String, AbortOnDropHandle<()>>>,
}

impl Subscriptions {
    fn tasks(&self) -> MutexGuard<'_, HashMap<String, AbortOnDropHandle<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the client whenever the resource changed. A second subscription to the same takes the first one's place.
    pub(super) fn add(
        &self,
        uri: String,
        mut changes: BoxStream<'static, ()>,
        peer: Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut tasks = self.tasks();
        tasks.retain(|_, task| !task.is_finished());
        if tasks.len() >= MAX_SUBSCRIPTIONS && !tasks.contains_key(&uri) {
            let message =
                format!("{MAX_SUBSCRIPTIONS} subscriptions are the limit; unsubscribe from one first");
            return Err(ErrorData::new(ErrorCode::INVALID_REQUEST, message, None));
        }
        let told = uri.clone();
        let task = tokio::spawn(async move {
            while changes.next().await.is_some() {
                let note = ResourceUpdatedNotificationParam::new(told.clone());
                if peer.notify_resource_updated(note).await.is_err() {
                    return;
                }
            }
        });
        tasks.insert(uri, AbortOnDropHandle::new(task));
        Ok(())
    }

    pub(super) fn remove(&self, uri: &str) {
        self.tasks().remove(uri);
    }
}
