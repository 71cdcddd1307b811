//! Requests to host names of ports: only ever answered by the server inside, never by a route of ours.
//!
//! A visitor has a right by one of four ways: a signed token (in a header, in the query of the first visit, then in a
//! cookie), a key, a daemon that asks nobody for a key, or a port that is public. A cookie and a daemon without keys
//! are ambient: a browser uses them for every page that asks. So there, what a page of another origin asks for is
//! refused, except that a person may follow a link.
//!
//! A host by a sandbox's name may be another sandbox's tomorrow, and a browser would run what the first one left there.
//! So no page is ever opened in such an origin: browsers are sent to the host by id, and what others get there could
//! not run.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Uri,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, REFERRER_POLICY, SET_COOKIE,
            UPGRADE,
        },
        request::Parts,
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use engine::{LinkRefused, LinkTarget, MAX_LINK_TTL, OpenLink, Principal, SandboxRef};
use sandbox::{Error, ErrorKind};

use super::{auth::Peer, error::Refusal, gate::Gate, hosts::Hosts, limits::key_ended};
use crate::{
    links::BaseUrl,
    ports::{
        PortHost, TOKEN_COOKIES, TOKEN_HEADER, TOKEN_PARAMETER, failure_page, label, shows_key, wants_page,
    },
};

/// Gives a page that is opened at a host by name an opaque origin without scripts.
const NO_PAGE_POLICY: &str = "sandbox";

/// A visitor of a port.
struct Visitor {
    who: Principal,
    sandbox: SandboxRef,
    is_ambient: bool,
    /// The link or public port that let the visitor in; absent for a key.
    link: Option<OpenLink>,
}

/// Answers a request to a port's host; everything else goes on.
pub(super) async fn answer(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let found = match gate.hosts().map(|hosts| hosts.port_host(&parts)) {
        Some(Ok(Some(found))) => found,
        Some(Err(error)) => return Refusal::from(error).into_response(),
        Some(Ok(None)) | None => return next.run(Request::from_parts(parts, body)).await,
    };
    let is_page = wants_page(&parts.headers);
    match visit(&gate, &found, parts, body).await {
        Ok(response) => response,
        Err(refusal) if is_page && refusal.retry_after.is_none() => {
            failure_page(super::http_status(refusal.error.kind()), refusal.error)
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn visit(gate: &Gate, host: &PortHost, mut parts: Parts, body: Body) -> Result<Response, Refusal> {
    let visitor = visitor(gate, host, &parts).await?;
    let is_tls = gate.hosts().is_some_and(|hosts| hosts.is_tls_for(host));
    let own = parts.headers.get(HOST).and_then(|value| value.to_str().ok());
    let base = own.map(|own| BaseUrl::of_host(is_tls, own));
    if !host.is_by_id && opens_page(&parts) {
        let sandbox = gate.engine().sandbox(&visitor.who, &visitor.sandbox).await?.id;
        let by_id = with_label(own.unwrap_or_default(), &label(&sandbox, host.port));
        return Ok(moved(&BaseUrl::of_host(is_tls, &by_id), &parts.uri));
    }
    if let Some(token) = query_token(&parts.uri).filter(|_| is_first_visit(&parts)) {
        return Ok(welcome(&token, &parts.uri, base.as_ref(), is_tls));
    }
    if let Some(base) = base {
        parts.extensions.insert(base);
    }
    let Some(proxy) = gate.proxy().cloned() else {
        return Err(Error::new(ErrorKind::Unavailable, "this listener serves no ports").into());
    };
    let lease = gate.admit(&mut parts, &visitor.who, visitor.link.as_ref())?;
    let method = parts.method.clone();
    let request = Request::from_parts(parts, body);
    let mut response = tokio::select! {
        response = proxy.forward(&visitor.who, &visitor.sandbox, host.port, "", request) => response?,
        () = lease.ended() => return Err(key_ended().into()),
    };
    if !host.is_by_id {
        response.headers_mut().append(CONTENT_SECURITY_POLICY, HeaderValue::from_static(NO_PAGE_POLICY));
    }
    lease.count(&method, response)
}

/// Finds the visitor's right, or refuses.
async fn visitor(gate: &Gate, host: &PortHost, parts: &Parts) -> Result<Visitor, Refusal> {
    let public = || {
        let link = gate.engine().open_public_port(&host.sandbox, host.port);
        link.map(|link| Visitor::by_link(link, false))
    };
    let found = match by_token(gate, host, parts).await? {
        Some(visitor) => Some(visitor),
        None => by_key(gate, host, parts).await?,
    };
    match found {
        Some(visitor) if visitor.is_ambient && is_foreign(parts) => public().ok_or_else(|| foreign().into()),
        Some(visitor) => Ok(visitor),
        None => public().ok_or_else(|| nobody().into()),
    }
}

async fn by_token(gate: &Gate, host: &PortHost, parts: &Parts) -> Result<Option<Visitor>, Refusal> {
    let shown = parts.headers.get(TOKEN_HEADER).map(|value| value.to_str().unwrap_or_default().to_owned());
    if let Some(token) = shown.or_else(|| query_token(&parts.uri)) {
        let link = opened(gate, host, &token, parts).await?;
        return Ok(Some(Visitor::by_link(link, false)));
    }
    for token in cookie_tokens(&parts.headers) {
        // One that ended, or that a page put there, must not keep others out.
        match opened(gate, host, &token, parts).await {
            Ok(link) => return Ok(Some(Visitor::by_link(link, true))),
            Err(refusal) if refusal.retry_after.is_some() => return Err(refusal),
            Err(_ended) => {}
        }
    }
    Ok(None)
}

impl Visitor {
    fn by_link(link: OpenLink, is_ambient: bool) -> Self {
        let (sandbox, who) = (SandboxRef::from(&link.sandbox), link.who.clone());
        Self { who, sandbox, is_ambient, link: Some(link) }
    }
}

/// Opens a token that is for this port. Forged ones are counted.
async fn opened(gate: &Gate, host: &PortHost, token: &str, parts: &Parts) -> Result<OpenLink, Refusal> {
    let link = match gate.engine().open_link(token) {
        Ok(link) => link,
        Err(LinkRefused::Ended(error) | LinkRefused::Gone { error, .. }) => return Err(error.into()),
        Err(LinkRefused::Forged(error)) => {
            gate.count_forged(parts.extensions.get::<Peer>().copied())?;
            return Err(error.into());
        }
    };
    let is_for_port = match link.target {
        LinkTarget::Port { port } => port == host.port,
        LinkTarget::Inside => true,
        LinkTarget::File { .. } | LinkTarget::Output { .. } => false,
    };
    // The name in the address may be another sandbox's by now.
    let is_for_sandbox = gate.engine().sandbox(&link.who, &host.sandbox).await.is_ok();
    if !is_for_port || !is_for_sandbox {
        return Err(Error::new(ErrorKind::Denied, "this token is for another port")
            .with_hint("Ask for the address of this one.")
            .into());
    }
    Ok(link)
}

async fn by_key(gate: &Gate, host: &PortHost, parts: &Parts) -> Result<Option<Visitor>, Refusal> {
    let is_shown = shows_key(&parts.headers, &parts.uri);
    match gate.visitor(parts).await {
        Ok(who) => {
            Ok(Some(Visitor { who, sandbox: host.sandbox.clone(), is_ambient: !is_shown, link: None }))
        }
        // Credentials that are not ours are for the server inside.
        Err(_) if !is_shown => Ok(None),
        Err(error) => {
            gate.count_failure(parts.extensions.get::<Peer>().copied())?;
            Err(error.into())
        }
    }
}

fn nobody() -> Error {
    Error::new(ErrorKind::Unauthenticated, "this address needs a token")
        .with_hint("`warren port SANDBOX PORT` prints an address with one. Programs can send a key instead.")
}

fn foreign() -> Error {
    Error::new(ErrorKind::Denied, "a page from another origin may not use this port")
        .with_hint("Open the address itself, or make the port public.")
}

/// Whether a page of another origin asks, and not a person who follows a link.
fn is_foreign(request: &Parts) -> bool {
    if request.headers.contains_key("origin") {
        return !Hosts::is_own_origin(request);
    }
    let says = |name: &str, words: &[&str]| {
        request.headers.get(name).is_some_and(|value| words.iter().any(|word| value == *word))
    };
    let is_followed = matches!(request.method, Method::GET | Method::HEAD)
        && says("sec-fetch-mode", &["navigate"])
        && says("sec-fetch-dest", &["document"]);
    says("sec-fetch-site", &["cross-site", "same-site"]) && !is_followed
}

fn query_token(uri: &Uri) -> Option<String> {
    let pieces = uri.query()?.split('&');
    pieces
        .filter_map(|piece| piece.split_once('='))
        .find(|(name, _)| *name == TOKEN_PARAMETER)
        .map(|(_, value)| value.to_owned())
}

fn cookie_tokens(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| TOKEN_COOKIES.contains(name)).map(|(_, value)| value.to_owned()).collect()
}

/// A browser that opens the address, as opposed to a program that has no use for cookies.
fn is_first_visit(request: &Parts) -> bool {
    opens_page(request) && wants_page(&request.headers)
}

/// Whether a browser asks for a page, to show it in a window or a frame.
fn opens_page(request: &Parts) -> bool {
    let headers = &request.headers;
    let is_opened =
        wants_page(headers) || headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    matches!(request.method, Method::GET | Method::HEAD)
        && is_opened
        && !headers.contains_key(UPGRADE)
        && !headers.contains_key(TOKEN_HEADER)
}

/// A host with another first label.
fn with_label(host: &str, label: &str) -> String {
    let (_, domain) = host.split_once('.').unwrap_or_default();
    format!("{label}.{domain}")
}

/// Sends a browser to the same page at another host, with its token if it has one.
fn moved(base: &BaseUrl, uri: &Uri) -> Response {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location = format!("{}{}{query}", base.as_str(), uri.path());
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    lead_to(response.headers_mut(), &location);
    response
}

/// The headers of an answer that sends a browser elsewhere, which nobody keeps.
fn lead_to(headers: &mut HeaderMap, location: &str) {
    headers.extend(HeaderValue::from_str(location).ok().map(|value| (LOCATION, value)));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// Keeps the token in a cookie and sends the browser to the same address without it, so that it stays in no history and
/// no `Referer`. `Lax`, because a link to a page must work from everywhere.
fn welcome(token: &str, uri: &Uri, base: Option<&BaseUrl>, is_tls: bool) -> Response {
    let kept: Vec<_> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|piece| piece.split('=').next() != Some(TOKEN_PARAMETER) && !piece.is_empty())
        .collect();
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    // Whole, since a path may begin with two slashes, which alone would name another host.
    let location = format!("{}{}{query}", base.map(BaseUrl::as_str).unwrap_or_default(), uri.path());
    let [plain, secure] = TOKEN_COOKIES;
    let (name, secure) = if is_tls { (secure, "; Secure") } else { (plain, "") };
    let max_age = MAX_LINK_TTL.as_secs();
    let cookie = format!("{name}={token}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}");
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    lead_to(headers, &location);
    headers.extend(HeaderValue::from_str(&cookie).ok().map(|value| (SET_COOKIE, value)));
    response
}
