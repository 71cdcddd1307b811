//! Authentication: who asks. Front ends find that out; what the asker may do is the engine's business.

use std::{fmt, future::pending, net::SocketAddr};

use axum::http::request::Parts;
use engine::Principal;
use futures_util::future::{BoxFuture, FutureExt};
use sandbox::{Error, ErrorKind, Result};

/// The other end of a connection, as the kernel tells it. Every request carries it as an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Unix { uid: u32, pid: Option<i32> },
    Tcp(SocketAddr),
}

/// A way to find out who asks. Keys on TCP are another implementation; it may have to wait for a look-up.
pub trait Authenticate: fmt::Debug + Send + Sync {
    /// Returns the principal, or an error of kind `Unauthenticated` or `Denied`.
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Principal>>;

    /// Ready when what let this principal in does not hold any more; its open streams end then. Never, where that
    /// cannot be.
    fn ended(&self, _who: &Principal) -> BoxFuture<'static, ()> {
        pending().boxed()
    }
}

/// The Unix socket's way: the user that runs the daemon, and root, are the operator; nobody else gets in.
#[derive(Debug, Clone, Copy)]
pub struct PeerCredentials {
    /// User id of the daemon.
    pub owner: u32,
}

impl PeerCredentials {
    fn decide(self, peer: Option<Peer>) -> Result<Principal> {
        match peer {
            Some(Peer::Unix { uid, .. }) if uid == self.owner || uid == 0 => {
                Ok(Principal::operator(format!("uid {uid}")))
            }
            Some(Peer::Unix { uid, .. }) => {
                let message = format!("user id {uid} may not use the daemon of user id {}", self.owner);
                Err(Error::new(ErrorKind::Denied, message)
                    .with_hint("Start a daemon of your own: unset WARREN_RUN and WARREN_HOME and try again."))
            }
            Some(Peer::Tcp(_)) | None => {
                Err(Error::new(ErrorKind::Unauthenticated, "the peer of this connection is unknown"))
            }
        }
    }
}

impl Authenticate for PeerCredentials {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Principal>> {
        let decided = self.decide(request.extensions.get::<Peer>().copied());
        async move { decided }.boxed()
    }
}

/// Everybody gets in: for trying things out on one's own machine.
#[derive(Debug, Clone, Copy)]
pub struct DevAuth(());

impl DevAuth {
    /// For a listener on `address`, which nobody but this machine may reach.
    pub fn for_address(address: SocketAddr) -> Result<Self> {
        if address.ip().to_canonical().is_loopback() {
            return Ok(Self(()));
        }
        let message =
            format!("--dev lets in everyone who can reach {address}, which is not only this machine");
        Err(Error::new(ErrorKind::Denied, message)
            .with_hint("Listen on 127.0.0.1, or omit --dev and create a key with `warren key create`."))
    }
}

impl Authenticate for DevAuth {
    fn authenticate<'a>(&'a self, _: &'a Parts) -> BoxFuture<'a, Result<Principal>> {
        async { Ok(Principal::developer("dev")) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_and_root_get_in_and_nobody_else() {
        let auth = PeerCredentials { owner: 1000 };
        let ask = |uid| auth.decide(Some(Peer::Unix { uid, pid: None })).map_err(|error| error.kind());
        assert!(ask(1000).is_ok() && ask(0).is_ok());
        assert_eq!(ask(1001), Err(ErrorKind::Denied));
        assert_eq!(auth.decide(None).map_err(|error| error.kind()), Err(ErrorKind::Unauthenticated));
    }

    #[test]
    fn everybody_is_the_operator_on_this_machine_only() {
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(DevAuth::for_address(address.parse().unwrap()).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "192.168.0.1:1", "[fe80::1]:1"] {
            let refused = DevAuth::for_address(address.parse().unwrap()).unwrap_err();
            assert!(
                refused.to_string().contains(address) && crate::http::error::hint(&refused).is_some(),
                "{refused}"
            );
        }
    }
}
