//! The end of a right that came by a link: with the link, or earlier with the key that made it.

use std::sync::Arc;

use axum::http::request::Parts;
use engine::{Engine, LinkLasts, LinkTarget, OpenLink, Principal};
use futures_util::future::{BoxFuture, FutureExt as _, select};
use sandbox::Result;

use super::auth::Authenticate;

/// Authenticates like `others`, and ends a right when its link ends.
#[derive(Debug)]
pub(super) struct LinkAuth {
    pub(super) engine: Engine,
    pub(super) link: OpenLink,
    pub(super) others: Arc<dyn Authenticate>,
}

impl Authenticate for LinkAuth {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Principal>> {
        self.others.authenticate(request)
    }

    fn ended(&self, who: &Principal) -> BoxFuture<'static, ()> {
        let (engine, link) = (self.engine.clone(), self.link.clone());
        let expired = async move { engine.link_ended(&link).await }.boxed();
        select(expired, self.others.ended(who)).map(drop).boxed()
    }
}

/// The limits that streams by a link count towards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkPlaces {
    /// Those of the key that made it: a link to everything inside is used in place of that key.
    Maker,
    /// The limit for all links of a key, which visitors of a public port share.
    AllLinks,
    /// The limit for all links of a key, and one for this link, which is named here.
    OneLink(String),
}

impl LinkPlaces {
    pub(super) fn of(link: &OpenLink) -> Self {
        match (&link.target, link.lasts) {
            (LinkTarget::Inside, _) => Self::Maker,
            (target, LinkLasts::Until(at)) => Self::OneLink(format!("{} {at} {target:?}", link.sandbox)),
            (_, LinkLasts::WhilePublic | LinkLasts::WithItsKey) => Self::AllLinks,
        }
    }
}
