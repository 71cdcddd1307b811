//! Between a listener and the routes: whether the request may come here at all, who asks, and how much they get.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        Method, StatusCode,
        header::{AUTHORIZATION, HOST, PROXY_AUTHORIZATION},
        request::Parts,
    },
    middleware::Next,
    response::Response,
};
use engine::{Engine, LinkRefused, LinkTarget, OpenLink, Principal};
use sandbox::{Error, ErrorKind};
use tokio_util::sync::CancellationToken;

use super::{
    audit::Asker,
    auth::{Authenticate, Peer},
    error::Refusal,
    hosts::Hosts,
    inside,
    key_auth::{KEY_HEADER, OPENSANDBOX_KEY_HEADER, QueryKey, has_key_header, shows_key, without_key},
    limits::{Limits, StreamLease, key_ended},
    link_auth::{LinkAuth, LinkPlaces},
    listen::Activity,
    session_auth::{self, SessionAuth},
    theirs,
};
use crate::{
    links::{self, BaseUrl},
    ports::{self, Proxy, TOKEN_HEADER},
};

/// Answered on TCP to those who have no key too: load balancers, and people who look what is there.
const OPEN_PATHS: &[&str] = &[
    "/",
    "/favicon.svg",
    "/v1/health",
    SESSION_PATH,
    "/api/v1/health",
    "/opensandbox/v1/health",
    "/opensandbox/v1/version",
    "/opensandbox/v1/openapi.json",
];

/// Files of the dashboard's page, which a browser loads before anyone signed in.
const OPEN_BELOW: &str = "/assets/";
/// The path for signing in, and for asking whether one is signed in.
const SESSION_PATH: &str = "/v1/session";

/// An answer's extension: who has just signed in.
#[derive(Debug, Clone)]
pub(crate) struct SignedIn(pub(crate) Principal);

/// The checks between one listener and the routes.
#[derive(Debug, Clone)]
pub struct Gate {
    engine: Engine,
    auth: Arc<dyn Authenticate>,
    /// The same without sessions of the dashboard, which count on the daemon's own names only.
    port_auth: Arc<dyn Authenticate>,
    network: Option<Arc<Network>>,
    /// To servers inside that have host names of their own.
    proxy: Option<Proxy>,
    /// The dialect that plain paths of this listener belong to.
    dialect: &'static str,
}

/// The checks that only a listener within reach of strangers needs.
#[derive(Debug)]
struct Network {
    hosts: Hosts,
    limits: Arc<Limits>,
}

impl Gate {
    /// For the Unix socket: whoever gets in owns the daemon, so there is nothing to hold back.
    pub fn unix(engine: Engine, auth: Arc<dyn Authenticate>) -> Self {
        let port_auth = Arc::clone(&auth);
        Self { engine, auth, port_auth, network: None, proxy: None, dialect: "" }
    }

    /// For TCP. Sessions of the dashboard count beside what `auth` takes.
    pub fn tcp(engine: Engine, auth: Arc<dyn Authenticate>, hosts: Hosts, limits: Arc<Limits>) -> Self {
        let port_auth = Arc::clone(&auth);
        let auth = Arc::new(SessionAuth { engine: engine.clone(), hosts: hosts.clone(), others: auth });
        let network = Some(Arc::new(Network { hosts, limits }));
        Self { engine, auth, port_auth, network, proxy: None, dialect: "" }
    }

    /// Also serves host names of ports. `stop` ends what is open; `activity` counts streams that outlive their request.
    #[must_use]
    pub fn with_ports(mut self, activity: &Activity, stop: &CancellationToken) -> Self {
        self.proxy = Some(Proxy::new(self.engine.clone(), activity.clone(), stop.clone()));
        self
    }

    pub(super) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// Returns the asker of a request for a port by its own host name.
    pub(super) async fn visitor(&self, request: &Parts) -> sandbox::Result<Principal> {
        self.port_auth.authenticate(request).await
    }

    pub(super) fn count_failure(&self, peer: Option<Peer>) -> Result<(), Refusal> {
        self.network.as_ref().map_or(Ok(()), |network| network.limits.take_failure(peer))
    }

    pub(super) fn count_forged(&self, peer: Option<Peer>) -> Result<(), Refusal> {
        self.network.as_ref().map_or(Ok(()), |network| network.limits.take_forged_link(peer))
    }

    /// Counts a request of a known asker, and gives it what it needs to open streams.
    pub(super) fn admit(
        &self,
        parts: &mut Parts,
        who: &Principal,
        link: Option<&OpenLink>,
    ) -> Result<StreamLease, Refusal> {
        let limits = self.network.as_ref().map(|network| &network.limits);
        if let Some(limits) = limits {
            limits.take_request(who)?;
        }
        let streams = limits.map(|limits| Arc::clone(limits.streams()));
        let lease = StreamLease::new(streams, self.auth_of(link), who.clone());
        let lease = lease.by_link(link.map(LinkPlaces::of));
        lease.check_before(parts)?;
        parts.extensions.insert(lease.clone());
        Ok(lease)
    }

    /// Returns what knows when the asker's right ends: with the key, or earlier with the link.
    fn auth_of(&self, link: Option<&OpenLink>) -> Arc<dyn Authenticate> {
        let others = Arc::clone(&self.auth);
        match link.cloned() {
            Some(link) => Arc::new(LinkAuth { engine: self.engine.clone(), link, others }),
            None => others,
        }
    }

    /// For a listener whose plain paths belong to a dialect, by its name.
    #[must_use]
    pub fn speaking(self, dialect: &'static str) -> Self {
        Self { dialect, ..self }
    }

    /// The request as the router gets it. What a port's own host is asked for is the business of the server inside.
    pub(super) fn routed(&self, request: Request) -> Request {
        let (parts, body) = request.into_parts();
        let is_of_port = self.hosts().is_some_and(|hosts| !matches!(hosts.port_host(&parts), Ok(None)));
        let request = Request::from_parts(parts, body);
        if is_of_port { request } else { theirs::route(request, self.dialect == "opensandbox") }
    }

    pub(super) fn dialect(&self) -> &'static str {
        self.dialect
    }

    /// Returns the engine, which keeps the audit.
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn hosts(&self) -> Option<&Hosts> {
        self.network.as_ref().map(|network| &network.hosts)
    }

    /// Returns the asker; `None` only where nobody needs to be known.
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
    /// Returns what the request's link opens, if it is one. Its token is the right: no key is asked for.
    fn link(&self, request: &Parts) -> Result<Option<OpenLink>, Refusal> {
        let is_read = matches!(request.method, Method::GET | Method::HEAD);
        let path = request.uri.path();
        // Whoever shows a key asks with that.
        let inside = inside::asked(request).filter(|_| !has_key_header(request));
        let port = ports::port_of_path(path).zip(request.headers.get(TOKEN_HEADER));
        let token = match (inside, port) {
            (Some(asked), _) => asked.token,
            (None, Some((_, shown))) => shown.to_str().unwrap_or_default(),
            (None, None) => match links::token_of(path).filter(|_| is_read) {
                Some(token) => token,
                None => return Ok(None),
            },
        };
        let refused = |error| if inside.is_some() { inside::refused() } else { error };
        let gone = |sandbox, error| inside.map_or(error, |asked| asked.refused_without(&sandbox));
        let link = match self.engine.open_link(token) {
            Ok(link) => link,
            Err(LinkRefused::Ended(error)) => return Err(refused(error).into()),
            Err(LinkRefused::Gone { sandbox, error }) => return Err(gone(sandbox, error).into()),
            Err(LinkRefused::Forged(error)) => {
                self.count_forged(request.extensions.get::<Peer>().copied())?;
                return Err(refused(error).into());
            }
        };
        let is_for_this = match (inside, port) {
            (Some(asked), _) => asked.opens(&link),
            (None, Some((port, _))) => opens_port(&link.target, port),
            (None, None) => true,
        };
        if is_for_this {
            return Ok(Some(link));
        }
        Err(refused(Error::new(ErrorKind::Denied, "this token is for another port")).into())
    }
}

fn opens_port(target: &LinkTarget, asked: u16) -> bool {
    match target {
        LinkTarget::Port { port } => *port == asked,
        LinkTarget::Inside => true,
        LinkTarget::File { .. } | LinkTarget::Output { .. } => false,
    }
}

fn is_open(request: &Parts) -> bool {
    let path = request.uri.path();
    matches!(request.method, Method::GET | Method::HEAD)
        && (OPEN_PATHS.contains(&path) || path.starts_with(OPEN_BELOW))
}

/// Signs in: the body says who asks. Wrong keys in it count as everywhere.
async fn sign_in(gate: &Gate, parts: Parts, body: Body, next: Next) -> Result<Response, Refusal> {
    let (peer, asker) = (parts.extensions.get::<Peer>().copied(), parts.extensions.get::<Asker>().cloned());
    let response = next.run(Request::from_parts(parts, body)).await;
    if let (Some(asker), Some(SignedIn(who))) = (asker, response.extensions().get()) {
        asker.tell(who);
    }
    if response.status() == StatusCode::UNAUTHORIZED {
        gate.count_failure(peer)?;
    }
    Ok(response)
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
    let base = gate.hosts().and_then(|hosts| base_of(hosts, &parts));
    if let Some(base) = base {
        parts.extensions.insert(base);
    }
    let is_session = parts.uri.path() == SESSION_PATH;
    if gate.network.is_some() && is_session && parts.method == Method::POST {
        return sign_in(&gate, parts, body, next).await;
    }
    let link = gate.link(&parts)?;
    let who = match &link {
        Some(link) => {
            parts.extensions.insert(link.clone());
            Some(link.who.clone())
        }
        None => gate.who(&parts).await?,
    };
    let Some(who) = who else {
        // A page asks this each time that it is opened: nothing was refused.
        if let Some(asker) = parts.extensions.get::<Asker>().filter(|_| is_session) {
            asker.ignore();
        }
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
    parts.headers.remove(OPENSANDBOX_KEY_HEADER);
    parts.headers.remove(inside::HEADER);
    session_auth::remove(&mut parts.headers);
    parts.extensions.insert(who.clone());
    let lease = gate.admit(&mut parts, &who, link.as_ref())?;
    let method = parts.method.clone();
    let response = tokio::select! {
        // Whoever signs out is still answered.
        biased;
        response = next.run(Request::from_parts(parts, body)) => response,
        // A long request must not outlast the right to make it.
        () = lease.ended() => return Err(key_ended().into()),
    };
    lease.count(&method, response)
}

/// Returns the address at which the asker finds us, for links.
fn base_of(hosts: &Hosts, request: &Parts) -> Option<BaseUrl> {
    // It was looked at and is one of our own.
    let host = request.headers.get(HOST)?.to_str().ok()?;
    Some(BaseUrl::of_host(hosts.is_tls, host))
}
