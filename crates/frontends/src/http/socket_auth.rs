//! Authentication on the Unix socket.

use axum::http::request::Parts;
use engine::{Engine, Principal};
use futures_util::future::{BoxFuture, FutureExt};
use sandbox::Result;

use super::{
    auth::{Authenticate, PeerCredentials},
    key_auth::{KeyAuth, shows_key},
};

/// The daemon's owner. One who shows a key acts with that key's rights and no more: so a program that passes on what
/// others ask does not lend them its own.
#[derive(Debug, Clone)]
pub struct SocketAuth {
    owner: PeerCredentials,
    keys: KeyAuth,
}

impl SocketAuth {
    pub fn new(owner: PeerCredentials, engine: Engine) -> Self {
        Self { owner, keys: KeyAuth::new(engine) }
    }
}

impl Authenticate for SocketAuth {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Principal>> {
        async move {
            let owner = self.owner.authenticate(request).await?;
            if shows_key(request) { self.keys.authenticate(request).await } else { Ok(owner) }
        }
        .boxed()
    }

    fn ended(&self, who: &Principal) -> BoxFuture<'static, ()> {
        self.keys.ended(who)
    }
}
