//! Links, as one more way to be let in: one that lasts no longer than the link itself.

use std::sync::Arc;

use axum::http::request::Parts;
use engine::{Engine, LinkLasts, LinkTarget, OpenLink, Principal};
use futures_util::future::{BoxFuture, FutureExt as _, select};
use sandbox::Result;

use super::auth::Authenticate;

/// Ends with a link, and with whatever its holder ends with.
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

/// Whose places the streams by a link take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkPlaces {
    /// Its maker's: whoever may do everything inside is as good as that.
    Maker,
    /// Those for all links, like those of other visitors of a public port.
    AllLinks,
    /// Those for all links, of which a single one gets a part. This names it.
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
