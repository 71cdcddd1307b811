//! Sessions of the dashboard, as one more way to show who asks.
//!
//! A session is shown by both of its halves: a cookie, which no script can read, and a proof, which the page keeps and
//! sends itself. Browsers send cookies of a host name to every port of it, also to ports that sandboxes publish, and
//! with requests of any page; they send the proof nowhere by themselves.

use std::sync::Arc;

use axum::http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{COOKIE, ORIGIN, SEC_WEBSOCKET_PROTOCOL, UPGRADE},
    request::Parts,
};
use engine::{Engine, Principal};
use futures_util::future::{BoxFuture, FutureExt};
use sandbox::{Error, ErrorKind, Result};

use super::{auth::Authenticate, hosts::Hosts, key_auth::shows_key};

/// The prefix, where the connection is secure: then no neighbouring host can set it.
pub(crate) const SESSION_COOKIES: [&str; 2] = ["warren_session", "__Host-warren_session"];
/// Carries the proof.
pub(crate) const PROOF_HEADER: HeaderName = HeaderName::from_static("x-warren-dashboard");
/// The same for WebSockets, whose headers a page cannot choose: a subprotocol that begins so.
const PROOF_PROTOCOL: &str = "warren.proof.";
/// Cookies of our name that are looked at: servers that sandboxes publish on other ports of our host can add some, and
/// must not push out the right one. Browsers keep no more than a few hundred cookies of a host.
const MAX_COOKIES: usize = 512;

/// Authenticates by session, and by `others` where no session is shown.
#[derive(Debug)]
pub(super) struct SessionAuth {
    pub(super) engine: Engine,
    pub(super) hosts: Hosts,
    pub(super) others: Arc<dyn Authenticate>,
}

impl SessionAuth {
    /// Returns the principal of the shown session; none if none is shown, or it has ended.
    fn session(&self, request: &Parts) -> Result<Option<Principal>> {
        let Some(proof) = proof_of(&request.headers).filter(|_| !shows_key(request)) else { return Ok(None) };
        let tokens = cookies_of(&request.headers);
        let mut known = tokens.take(MAX_COOKIES).filter_map(|token| self.engine.open_session(token, proof));
        let Some(who) = known.next() else { return Ok(None) };
        if !self.hosts.is_own_page(request) {
            return Err(Error::new(ErrorKind::Denied, "a page from another origin may not use this session"));
        }
        Ok(Some(who))
    }
}

impl Authenticate for SessionAuth {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Principal>> {
        async move {
            match self.session(request)? {
                Some(who) => Ok(who),
                None => self.others.authenticate(request).await,
            }
        }
        .boxed()
    }

    fn ended(&self, who: &Principal) -> BoxFuture<'static, ()> {
        if who.session.is_none() {
            return self.others.ended(who);
        }
        let (engine, who) = (self.engine.clone(), who.clone());
        async move { engine.principal_ended(&who).await }.boxed()
    }
}

fn cookies_of(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| SESSION_COOKIES.contains(name)).map(|(_, value)| value)
}

fn proof_of(headers: &HeaderMap) -> Option<&str> {
    let in_header = headers.get(PROOF_HEADER).and_then(|value| value.to_str().ok());
    in_header.or_else(|| protocols(headers).find_map(|protocol| protocol.strip_prefix(PROOF_PROTOCOL)))
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|text| text.split(',')).map(str::trim)
}

/// Takes both halves out of a request, so that nothing behind the gate can tell them.
pub(super) fn remove(headers: &mut HeaderMap) {
    headers.remove(COOKIE);
    remove_proof(headers);
}

/// Takes out the page's half alone.
pub(crate) fn remove_proof(headers: &mut HeaderMap) {
    headers.remove(PROOF_HEADER);
    if headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        let others: Vec<_> =
            protocols(headers).filter(|protocol| !protocol.starts_with(PROOF_PROTOCOL)).collect();
        let others = HeaderValue::from_str(&others.join(", ")).ok().filter(|value| !value.is_empty());
        headers.remove(SEC_WEBSOCKET_PROTOCOL);
        headers.extend(others.map(|value| (SEC_WEBSOCKET_PROTOCOL, value)));
    }
}

/// The `Set-Cookie` of a session; an empty token and no seconds remove it.
pub(crate) fn set_cookie(token: &str, seconds: i64, is_secure: bool) -> String {
    let [plain, secure] = SESSION_COOKIES;
    let (name, secure) = if is_secure { (secure, "; Secure") } else { (plain, "") };
    format!("{name}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// Whether the browser that asks reaches us by TLS: a proxy in front of us may speak it for us.
pub(crate) fn is_page_secure(headers: &HeaderMap, is_listener_tls: bool) -> bool {
    let origin = headers.get(ORIGIN).and_then(|value| value.to_str().ok());
    is_listener_tls || origin.is_some_and(|origin| origin.starts_with("https://"))
}

/// Whether the request opens a WebSocket.
pub(super) fn is_upgrade(request: &Parts) -> bool {
    request.headers.contains_key(UPGRADE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_are_found_and_taken_out() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1; warren_session=one; warren_sessions=no"));
        headers.append(COOKIE, HeaderValue::from_static("__Host-warren_session=two"));
        headers.append(
            SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static("warren.terminal.v1, warren.proof.half"),
        );
        assert_eq!(cookies_of(&headers).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(proof_of(&headers), Some("half"));
        headers.insert(PROOF_HEADER, HeaderValue::from_static("other"));
        assert_eq!(proof_of(&headers), Some("other"));
        remove(&mut headers);
        assert_eq!((cookies_of(&headers).count(), proof_of(&headers)), (0, None));
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "warren.terminal.v1");
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn cookies_are_for_http_and_this_site_only() {
        assert_eq!(
            set_cookie("x", 60, false),
            "warren_session=x; Path=/; Max-Age=60; HttpOnly; SameSite=Strict"
        );
        assert_eq!(
            set_cookie("x", 60, true),
            "__Host-warren_session=x; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure"
        );
    }
}
