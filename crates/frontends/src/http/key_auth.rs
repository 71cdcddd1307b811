//! Keys: in a header, or in the query for clients that can send no header. Clients of microsandbox have further ways.

use std::fmt;

use axum::{
    extract::Query,
    http::{
        HeaderMap, Uri,
        header::{AUTHORIZATION, PROXY_AUTHORIZATION},
        request::Parts,
        uri::{InvalidUri, PathAndQuery},
    },
};
use engine::{Engine, Principal};
use futures_util::future::{BoxFuture, FutureExt};
use sandbox::{Error, ErrorKind, Next, Result};

use super::auth::Authenticate;

/// Name of the parameter in the query.
const PARAMETER: &str = "api_key";
const SCHEME: &str = "bearer";
/// The header that clients of other systems send in place of `Authorization`.
pub(super) const KEY_HEADER: &str = "x-api-key";
/// The same of OpenSandbox's clients, on its routes.
pub(super) const OPENSANDBOX_KEY_HEADER: &str = "open-sandbox-api-key";

/// Authenticates TCP callers by key: `Authorization: Bearer <key>`, `X-API-Key: <key>` or `?api_key=<key>`.
#[derive(Debug, Clone)]
pub struct KeyAuth {
    engine: Engine,
}

impl KeyAuth {
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

impl Authenticate for KeyAuth {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Principal>> {
        let secret = secret_of(&request.headers, &request.uri);
        async move { self.engine.authenticate_key(&secret?).await }.boxed()
    }

    fn ended(&self, who: &Principal) -> BoxFuture<'static, ()> {
        let (engine, who) = (self.engine.clone(), who.clone());
        async move { engine.principal_ended(&who).await }.boxed()
    }
}

/// The one key that a request carries. It is never part of a message.
fn secret_of(headers: &HeaderMap, uri: &Uri) -> Result<String> {
    let mut secrets = from_query(uri)?;
    let takes_more = takes_keys_of_microsandbox(uri.path());
    let header = match takes_more && headers.contains_key(PROXY_AUTHORIZATION) {
        true => PROXY_AUTHORIZATION,
        false => AUTHORIZATION,
    };
    for value in headers.get_all(header) {
        let text = value.to_str().map_err(|_not_text| malformed())?.trim();
        let secret = match text.split_once(' ') {
            Some((scheme, secret)) if scheme.eq_ignore_ascii_case(SCHEME) => secret.trim(),
            None if takes_more && !text.is_empty() => text,
            _ => return Err(malformed()),
        };
        secrets.push(secret.to_owned());
    }
    let theirs = headers.get_all(OPENSANDBOX_KEY_HEADER).iter().filter(|_| is_of_opensandbox(uri.path()));
    for value in headers.get_all(KEY_HEADER).iter().chain(theirs) {
        let secret = value.to_str().map_err(|_not_text| malformed())?;
        secrets.push(secret.trim().to_owned());
    }
    secrets.dedup();
    match <[String; 1]>::try_from(secrets) {
        Ok([secret]) => Ok(secret),
        Err(none) if none.is_empty() => Err(refusal("no key was sent")),
        Err(_several) => Err(refusal("several keys were sent, and they differ")),
    }
}

/// Clients of microsandbox send a key as `Proxy-Authorization`, which then counts alone, or as `Authorization`; in both
/// it may stand without a scheme.
fn takes_keys_of_microsandbox(path: &str) -> bool {
    path == "/api/v1/rpc" || path == "/mcp" || path.starts_with("/mcp/")
}

fn is_of_opensandbox(path: &str) -> bool {
    ["/opensandbox/", "/mcp/opensandbox", "/sse/opensandbox"].iter().any(|own| path.starts_with(own))
}

fn from_query(uri: &Uri) -> Result<Vec<String>> {
    let pairs: Query<Vec<(String, String)>> =
        Query::try_from_uri(uri).map_err(|_unreadable| Error::invalid("invalid query"))?;
    Ok(pairs.0.into_iter().filter(|(name, _)| name == PARAMETER).map(|(_, value)| value).collect())
}

/// Whether a request carries a key, right or wrong.
pub(super) fn shows_key(request: &Parts) -> bool {
    has_key_header(request) || without_key(&request.uri).is_some()
}

/// The same, but for a key in the query.
pub(super) fn has_key_header(request: &Parts) -> bool {
    [AUTHORIZATION.as_str(), PROXY_AUTHORIZATION.as_str(), KEY_HEADER, OPENSANDBOX_KEY_HEADER]
        .into_iter()
        .any(|name| request.headers.contains_key(name))
}

fn malformed() -> Error {
    refusal("the Authorization header contains no key")
}

fn refusal(message: &str) -> Error {
    Error::new(ErrorKind::Unauthenticated, message).with_next(Next::MakeKey)
}

/// The pieces of a query that carry a key, as they came. Who was told to come back by an address alone needs them in
/// it.
#[derive(Clone)]
pub(crate) struct QueryKey(pub(crate) String);

impl fmt::Debug for QueryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueryKey")
    }
}

impl QueryKey {
    pub(super) fn of(uri: &Uri) -> Self {
        let pieces: Vec<_> = uri.query().unwrap_or_default().split('&').filter(is_key).collect();
        Self(pieces.join("&"))
    }
}

fn is_key(piece: &&str) -> bool {
    let alone = format!("/?{piece}").parse().ok();
    alone.is_some_and(|alone| from_query(&alone).is_ok_and(|found| !found.is_empty()))
}

/// The address without the key, for everything that comes after: no route takes the parameter, and nothing should be
/// able to log it. None: there is no key in it.
pub(super) fn without_key(uri: &Uri) -> Option<Uri> {
    let query = uri.query()?;
    if !query.split('&').any(|piece| is_key(&piece)) {
        return None;
    }
    let kept: Vec<_> = query.split('&').filter(|piece| !is_key(piece)).collect();
    let path = uri.path();
    let target = if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) };
    let mut parts = uri.clone().into_parts();
    let target: Result<PathAndQuery, InvalidUri> = target.parse();
    parts.path_and_query = Some(target.unwrap_or_else(|_malformed| PathAndQuery::from_static("/")));
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_systems_send_a_header_of_their_own() {
        let mut headers = HeaderMap::new();
        headers.insert(KEY_HEADER, "abc".parse().unwrap());
        assert_eq!(secret_of(&headers, &"/".parse().unwrap()).unwrap(), "abc");
        headers.insert(AUTHORIZATION, "Bearer other".parse().unwrap());
        assert!(secret_of(&headers, &"/".parse().unwrap()).is_err());
    }

    #[test]
    fn opensandbox_has_a_header_on_its_own_routes() {
        let mut headers = HeaderMap::new();
        headers.insert(OPENSANDBOX_KEY_HEADER, "abc".parse().unwrap());
        let of = |path: &str, headers: &HeaderMap| secret_of(headers, &path.parse().unwrap()).ok();
        assert_eq!(of("/opensandbox/v1/sandboxes", &headers).as_deref(), Some("abc"));
        assert_eq!(of("/v1/sandboxes", &headers), None);
        headers.insert(AUTHORIZATION, "Bearer other".parse().unwrap());
        assert_eq!(of("/opensandbox/v1/sandboxes", &headers), None);
    }

    fn secret(target: &str, headers: &[&str]) -> Result<String, String> {
        let mut map = HeaderMap::new();
        for value in headers {
            map.append(AUTHORIZATION, value.parse().unwrap());
        }
        secret_of(&map, &target.parse().unwrap()).map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::Unauthenticated);
            assert!(crate::http::error::hint(&error).unwrap().contains("Bearer"));
            format!("{error} {:?}", crate::http::error::hint(&error))
        })
    }

    #[test]
    fn a_key_comes_in_the_header_or_in_the_query() {
        assert_eq!(secret("/sse", &["Bearer abc_d-e"]), Ok("abc_d-e".to_owned()));
        assert_eq!(secret("/sse", &["bearer   abc "]), Ok("abc".to_owned()));
        assert_eq!(secret("/sse?x=1&api_key=a%5Fb%2D", &[]), Ok("a_b-".to_owned()));
        assert_eq!(secret("/sse?api_key=abc", &["Bearer abc"]), Ok("abc".to_owned()));
    }

    #[test]
    fn no_key_and_two_keys_are_refused_and_never_repeated() {
        for (target, headers) in [
            ("/", &[][..]),
            ("/?api_key=s3cret", &["Bearer other"]),
            ("/?api_key=s3cret&api_key=other", &[]),
            ("/", &["Bearer s3cret", "Bearer other"]),
            ("/", &["Basic s3cret"]),
            ("/", &["s3cret"]),
        ] {
            let refused = secret(target, headers).unwrap_err();
            assert!(!refused.contains("s3cret"), "{refused}");
        }
    }

    #[test]
    fn clients_of_microsandbox_may_leave_out_the_scheme_and_use_another_header() {
        let of = |target: &str, proxy: &str, own: &str| {
            let mut map = HeaderMap::new();
            for (name, value) in [(PROXY_AUTHORIZATION, proxy), (AUTHORIZATION, own)] {
                if !value.is_empty() {
                    map.append(name, value.parse().unwrap());
                }
            }
            secret_of(&map, &target.parse().unwrap()).ok()
        };
        for target in ["/api/v1/rpc", "/mcp", "/mcp/microsandbox"] {
            assert_eq!(of(target, "", "msb_a").as_deref(), Some("msb_a"));
            assert_eq!(of(target, "msb_a", "").as_deref(), Some("msb_a"));
            assert_eq!(of(target, "Bearer msb_a", "Basic x").as_deref(), Some("msb_a"), "checked first");
            assert_eq!(of(target, "Basic x", "Bearer msb_a"), None);
            assert_eq!(of(target, "", "Basic x"), None);
        }
        for target in ["/v1/sandboxes", "/", "/mcpx", "/api/v1/health"] {
            assert_eq!((of(target, "msb_a", ""), of(target, "", "msb_a")), (None, None), "{target}");
        }
    }

    #[test]
    fn the_address_is_passed_on_without_the_key() {
        let without = |text: &str| without_key(&text.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(without("/v1/x?api_key=s").as_deref(), Some("/v1/x"));
        assert_eq!(without("/v1/x?a=1&api%5Fkey=s&b=%20").as_deref(), Some("/v1/x?a=1&b=%20"));
        assert_eq!(without("/v1/x?a=api_key"), None);
        assert_eq!(without("/v1/x"), None);
    }
}
