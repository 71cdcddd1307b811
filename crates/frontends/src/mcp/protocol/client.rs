//! The client at the other end, and what it chose when it connected.

use std::{fmt, sync::Arc};

use axum::{
    extract::Query,
    http::{HeaderMap, request::Parts},
};
use engine::{Access, Principal, Scope, SessionId as DashboardSession};
use sandbox::{Error, ErrorKind, Namespace, Result};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::{
    links::BaseUrl,
    mcp::{Settings, Toolsets, call::Session},
};

const TOOLSETS_HEADER: &str = "x-warren-toolsets";
const NAMESPACE_HEADER: &str = "x-warren-namespace";

/// A client, for as long as its session lasts; without a session, for one request.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct Client {
    pub(in crate::mcp) who: Principal,
    pub(in crate::mcp) settings: Arc<Settings>,
    pub(in crate::mcp) namespace: Option<Namespace>,
    /// The address at which it reaches us; not for those on stdio.
    pub(in crate::mcp) base: Option<BaseUrl>,
    pub(in crate::mcp) session: Arc<Session>,
    pub(in crate::mcp) way: Way,
    /// The session is over: what it began ends with it.
    pub(in crate::mcp) ended: CancellationToken,
    /// Its connection is lost: nobody reads the answers. What was begun goes on, and is found again by the next client.
    pub(in crate::mcp) gone: CancellationToken,
}

/// How messages travel, as far as answers depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mcp) enum Way {
    /// One connection from the first message to the last.
    Connection,
    /// Requests, which belong together where the protocol's revision has sessions.
    Requests,
    /// Requests whose answers are one message each: nothing can be told on the way.
    SingleAnswers,
}

/// The query of every route of ours; what it does not know it leaves to others.
#[derive(Debug, Default, Deserialize)]
struct Choices {
    toolsets: Option<String>,
    namespace: Option<String>,
}

impl Client {
    /// The client that sent a request, with a session that remembers nothing yet.
    pub(super) fn of(request: &Parts, settings: &Arc<Settings>, way: Way) -> Result<Self> {
        let who = principal(request)?;
        let query = Query::<Choices>::try_from_uri(&request.uri)
            .map_err(|error| Error::invalid(format!("invalid query: {error}")))?
            .0;
        let toolsets = text(&request.headers, TOOLSETS_HEADER)?.or(query.toolsets);
        let settings = match toolsets {
            Some(text) => with_toolsets(settings, text.parse()?),
            None => Arc::clone(settings),
        };
        let namespace = text(&request.headers, NAMESPACE_HEADER)?.or(query.namespace);
        let namespace = namespace.map(|text| text.parse()).transpose()?;
        let session = match way {
            Way::Connection | Way::Requests => Session::kept(),
            Way::SingleAnswers => Session::stateless(),
        };
        let base = request.extensions.get::<BaseUrl>().cloned();
        let (ended, gone) = (CancellationToken::new(), CancellationToken::new());
        Ok(Self { who, settings, namespace, base, session, way, ended, gone })
    }
}

fn with_toolsets(settings: &Arc<Settings>, toolsets: Toolsets) -> Arc<Settings> {
    Arc::new(Settings { toolsets, ..Settings::clone(settings) })
}

/// Returns the asker, as the layers around found out. Whoever only watches along has no tools to call.
pub(super) fn principal(request: &Parts) -> Result<Principal> {
    let who = request.extensions.get::<Principal>().cloned();
    let who = who.ok_or_else(|| Error::new(ErrorKind::Unauthenticated, "the caller is unknown"))?;
    if who.is_watcher() {
        let message = format!("{} may watch in the dashboard, and not use MCP", who.name);
        return Err(Error::new(ErrorKind::Denied, message).with_hint("Use a key of your own."));
    }
    Ok(who)
}

fn text(headers: &HeaderMap, name: &str) -> Result<Option<String>> {
    let value = headers.get(name).map(|value| value.to_str().map(str::to_owned));
    value.transpose().map_err(|_not_text| Error::invalid(format!("the header {name} is not text")))
}

/// The owner of a session: a key, or a user where there is no key. A principal that has the same key and other rights,
/// or came by a session of the dashboard, is another owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    name: String,
    scope: Scope,
    access: Access,
    session: Option<DashboardSession>,
}

impl Owner {
    pub(super) fn of(who: &Principal) -> Self {
        let name = match &who.key {
            Some(key) => format!("key {key}"),
            None => format!("name {}", who.name),
        };
        Self { name, scope: who.scope.clone(), access: who.access, session: who.session }
    }

    /// The account that its sessions count towards: a key's sessions of the dashboard are not one each.
    pub(super) fn account(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use sandbox::{KeyId, ShareId};

    use super::*;

    fn with_key() -> Principal {
        Principal {
            key: Some(KeyId::from_random([1; 8])),
            ..Principal::of_namespace("ana", Namespace::default())
        }
    }

    #[test]
    fn whoever_only_watches_is_no_client() {
        let asked =
            |who: Principal| principal(&Request::builder().extension(who).body(()).unwrap().into_parts().0);
        assert_eq!(asked(with_key()).unwrap(), with_key());
        let watcher = Principal { share: Some(ShareId::from_random([2; 8])), ..with_key() };
        assert_eq!(asked(watcher).unwrap_err().kind(), ErrorKind::Denied);
    }

    #[test]
    fn the_same_key_with_other_rights_is_another_owner() {
        let own = Owner::of(&with_key());
        assert_eq!(Owner::of(&Principal { name: "renamed".to_owned(), ..with_key() }), own);
        for other in [
            Principal { access: Access::ReadOnly, ..with_key() },
            Principal { scope: Scope::All, ..with_key() },
            Principal { key: Some(KeyId::from_random([3; 8])), ..with_key() },
        ] {
            assert_ne!(Owner::of(&other), own, "{other:?}");
        }
    }
}
