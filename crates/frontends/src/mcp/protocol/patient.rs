//! A connection that ends when what was asked on it is done, not when its client leaves.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Ends only when everything that was asked is answered: a client may well say all it has to say and close its end.
///
/// A client that is gone cancelled nothing. What it asked for is still done; that it is gone is told to `gone`.
pub(super) struct Patient<T> {
    inner: T,
    asked: Arc<Asked>,
    hangup: BoxFuture<'static, ()>,
    gone: CancellationToken,
}

impl<T> Patient<T> {
    /// `hangup` returns when nobody is left to hear the answers. It is asked once nothing more is said.
    pub(super) fn new(inner: T, gone: CancellationToken, hangup: BoxFuture<'static, ()>) -> Self {
        Self { inner, asked: Arc::default(), hangup, gone }
    }
}

#[derive(Debug, Default)]
struct Asked {
    ids: Mutex<HashSet<RequestId>>,
    answered: Notify,
}

impl Asked {
    fn ids(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, id: &RequestId) {
        self.ids().remove(id);
        self.answered.notify_one();
    }

    async fn all_answered(&self) {
        while !self.ids().is_empty() {
            self.answered.notified().await;
        }
    }
}

impl<T: Transport<RoleServer, Error = io::Error>> Transport<RoleServer> for Patient<T> {
    type Error = io::Error;

    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let id = match &item {
            ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ServerJsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let asked = Arc::clone(&self.asked);
        let sent = self.inner.send(item);
        async move {
            let sent = sent.await;
            if let Some(id) = id {
                // Sent or not: what cannot be sent has nobody who would read it.
                asked.settle(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let Some(message) = self.inner.receive().await else {
            if !self.gone.is_cancelled() {
                tokio::select! {
                    () = self.asked.all_answered() => {}
                    () = &mut self.hangup => self.gone.cancel(),
                }
            }
            self.asked.all_answered().await;
            return None;
        };
        match &message {
            ClientJsonRpcMessage::Request(request) => drop(self.asked.ids().insert(request.id.clone())),
            ClientJsonRpcMessage::Notification(notification) => {
                use rmcp::model::ClientNotification::CancelledNotification;
                // A cancelled request is not answered.
                if let CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.asked.settle(id);
                }
            }
            _ => {}
        }
        Some(message)
    }

    async fn close(&mut self) -> io::Result<()> {
        self.inner.close().await
    }
}
