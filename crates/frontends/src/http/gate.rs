//! Between a listener and the routes: whether the request may come here at all, who asks, and how much they get.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{
        Method,
        header::{AUTHORIZATION, HOST, PROXY_AUTHORIZATION},
        request::Parts,
    },
    middleware::Next,
    response::Response,
};
use engine::{Engine, LinkRefused, OpenLink, Principal};
use sandbox::ErrorKind;

use super::{
    audit::Asker,
    auth::{Authenticate, Peer},
    error::Refusal,
    hosts::Hosts,
    key_auth::{KEY_HEADER, QueryKey, without_key},
    limits::{Limits, StreamLease, key_ended},
};
use crate::links::{self, BaseUrl};

/// Answered on TCP to those who have no key too: load balancers, and people who look what is there.
const OPEN_PATHS: &[&str] = &["/", "/v1/health", "/api/v1/health"];

/// What stands between one listener and the routes.
#[derive(Debug, Clone)]
pub struct Gate {
    engine: Engine,
    auth: Arc<dyn Authenticate>,
    network: Option<Arc<Network>>,
}

/// What only a listener that strangers can reach needs.
#[derive(Debug)]
struct Network {
    hosts: Hosts,
    limits: Arc<Limits>,
}

impl Gate {
    /// For the Unix socket: whoever gets in owns the daemon, so there is nothing to hold back.
    pub fn unix(engine: Engine, auth: Arc<dyn Authenticate>) -> Self {
        Self { engine, auth, network: None }
    }

    /// For TCP.
    pub fn tcp(engine: Engine, auth: Arc<dyn Authenticate>, hosts: Hosts, limits: Arc<Limits>) -> Self {
        Self { engine, auth, network: Some(Arc::new(Network { hosts, limits })) }
    }

    /// It keeps the audit.
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn hosts(&self) -> Option<&Hosts> {
        self.network.as_ref().map(|network| &network.hosts)
    }

    /// Who asks; nobody only where nobody needs to be.
    async fn who(&self, request: &Parts) -> Result<Option<Principal>, Refusal> {
        let Some(network) = &self.network else { return Ok(Some(self.auth.authenticate(request).await?)) };
        let error = match self.auth.authenticate(request).await {
            // A right key always gets in: others at the same address may have shown wrong ones.
            Ok(who) => return Ok(Some(who)),
            Err(error) => error,
        };
        let is_open = is_open(request);
        // An open route must not become the place to try keys at.
        if error.kind() == ErrorKind::Unauthenticated && (!is_open || shows_key(request)) {
            let peer = request.extensions.get::<Peer>().copied();
            let taken = network.limits.take_failure(peer);
            if !is_open {
                taken?;
            }
        }
        if is_open { Ok(None) } else { Err(error.into()) }
    }
}

impl Gate {
    /// What the request's link opens, if it is one. Its token is the right: no key is asked for.
    fn link(&self, request: &Parts) -> Result<Option<OpenLink>, Refusal> {
        let is_read = matches!(request.method, Method::GET | Method::HEAD);
        let Some(token) = links::token_of(request.uri.path()).filter(|_| is_read) else { return Ok(None) };
        match self.engine.open_link(token) {
            Ok(link) => Ok(Some(link)),
            Err(LinkRefused::Ended(error)) => Err(error.into()),
            Err(LinkRefused::Forged(error)) => {
                if let Some(network) = &self.network {
                    network.limits.take_forged_link(request.extensions.get::<Peer>().copied())?;
                }
                Err(error.into())
            }
        }
    }
}

fn is_open(request: &Parts) -> bool {
    matches!(request.method, Method::GET | Method::HEAD) && OPEN_PATHS.contains(&request.uri.path())
}

fn shows_key(request: &Parts) -> bool {
    let has = |name: &str| request.headers.contains_key(name);
    [AUTHORIZATION.as_str(), PROXY_AUTHORIZATION.as_str(), KEY_HEADER].into_iter().any(has)
        || without_key(&request.uri).is_some()
}

/// The order in which a request is looked at: cheap and harmless first, nothing of it before the answer to who asks.
pub(super) async fn pass(
    State(gate): State<Gate>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    if let Some(hosts) = gate.hosts()
        && let Err(error) = hosts.check(&parts)
    {
        // Anyone can send these, as many as they like: they must not fill the audit.
        if let Some(asker) = parts.extensions.get::<Asker>() {
            asker.ignore();
        }
        tracing::debug!("refused: {error}");
        return Err(error.into());
    }
    let link = gate.link(&parts)?;
    let is_link = link.is_some();
    let who = match link {
        Some(link) => {
            let who = link.who.clone();
            parts.extensions.insert(link);
            Some(who)
        }
        None => gate.who(&parts).await?,
    };
    let Some(who) = who else {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    };
    if let Some(asker) = parts.extensions.get::<Asker>() {
        asker.tell(&who);
    }
    if let Some(uri) = without_key(&parts.uri) {
        parts.extensions.insert(QueryKey::of(&parts.uri));
        parts.uri = uri;
    }
    // Nothing behind this line needs the key, so nothing there can tell it.
    parts.headers.remove(AUTHORIZATION);
    parts.headers.remove(PROXY_AUTHORIZATION);
    parts.headers.remove(KEY_HEADER);
    parts.extensions.insert(who.clone());
    if let Some(base) = gate.hosts().and_then(|hosts| base_of(hosts, &parts)) {
        parts.extensions.insert(base);
    }
    let limits = gate.network.as_ref().map(|network| &network.limits);
    if let Some(limits) = limits {
        limits.take_request(&who)?;
    }
    let streams = limits.map(|limits| Arc::clone(limits.streams()));
    let lease = StreamLease::new(streams, Arc::clone(&gate.auth), who).by_link(is_link);
    lease.check_before(&parts)?;
    parts.extensions.insert(lease.clone());
    let method = parts.method.clone();
    let response = tokio::select! {
        response = next.run(Request::from_parts(parts, body)) => response,
        // What takes long must not outlast the right to ask for it.
        () = lease.ended() => return Err(key_ended().into()),
    };
    lease.count(&method, response)
}

/// Where the asker finds us, for links.
fn base_of(hosts: &Hosts, request: &Parts) -> Option<BaseUrl> {
    // It was looked at and is one of our own.
    let host = request.headers.get(HOST)?.to_str().ok()?;
    Some(BaseUrl::of_host(hosts.is_tls, host))
}
