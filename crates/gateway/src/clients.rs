//! How much of the gateway one client may take, over all its connections, so that the others get their share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::Semaphore;

/// Downloads and page fetches that one client may have under way. Any more wait behind its own.
const MAX_DOWNLOADS_EACH: usize = 8;
const MAX_FETCHES_EACH: usize = 4;

/// The client of a connection: connections with the same name share what one client may take.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientId(String);

impl ClientId {
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

/// The limits of one client. Whatever the client began holds this, even after the connection is gone.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) downloads: Arc<Semaphore>,
    pub(crate) fetches: Semaphore,
}

/// The clients that have a connection or something under way.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    known: Mutex<HashMap<ClientId, Weak<Client>>>,
}

impl Clients {
    pub(crate) fn enter(&self, id: ClientId) -> Arc<Client> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, client| client.strong_count() > 0);
        if let Some(client) = known.get(&id).and_then(Weak::upgrade) {
            return client;
        }
        let client = Arc::new(Client::new());
        known.insert(id, Arc::downgrade(&client));
        client
    }
}

impl Client {
    pub(crate) fn new() -> Self {
        Self {
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS_EACH)),
            fetches: Semaphore::new(MAX_FETCHES_EACH),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_client_share_its_places_and_others_have_their_own() {
        let clients = Clients::default();
        let first = clients.enter(ClientId::new("a"));
        assert!(Arc::ptr_eq(&first, &clients.enter(ClientId::new("a"))));
        assert!(!Arc::ptr_eq(&first, &clients.enter(ClientId::new("b"))));
        drop(first);
        let again = clients.enter(ClientId::new("a"));
        assert_eq!(again.downloads.available_permits(), MAX_DOWNLOADS_EACH);
        assert_eq!(clients.known.lock().unwrap().len(), 1, "who left is forgotten");
    }
}
