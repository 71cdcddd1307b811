//! The headers that pass between a caller and a server inside, and their form.
//!
//! Three sorts do not pass: those about one connection (RFC 9110, 7.6.1), our own credentials, and, where the answer is
//! shown in our own origin, all but those that are known to give the server inside no power there.

use std::net::IpAddr;

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{
        ALT_SVC, AUTHORIZATION, CONNECTION, CONTENT_LOCATION, CONTENT_SECURITY_POLICY, COOKIE, HOST,
        LOCATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERRER_POLICY, SET_COOKIE, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE, X_CONTENT_TYPE_OPTIONS,
    },
};

use crate::http::{SESSION_COOKIES, remove_proof};

/// Carries a signed token of ours, for programs.
pub(crate) const TOKEN_HEADER: &str = "x-warren-token";
/// The same in a query, for the first visit of a browser.
pub(crate) const TOKEN_PARAMETER: &str = "warren_token";
/// The same in a cookie, for every later visit; with the prefix where the connection is secure, so that no
/// neighbouring host can set it.
pub(crate) const TOKEN_COOKIES: [&str; 2] = ["warren_port", "__Host-warren_port"];

/// Names of cookies that are ours alone, whoever sets them.
fn own_cookies() -> impl Iterator<Item = &'static str> {
    TOKEN_COOKIES.into_iter().chain(SESSION_COOKIES)
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
const KEY_PARAMETER: &str = "api_key";
/// The prefixes of the secrets of keys.
const KEY_PREFIXES: [&str; 2] = ["wrn_", "msb_"];

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The headers in which a caller describes itself and the way of its request; only what we know of it goes inside.
const ABOUT_THE_WAY: [&str; 10] = [
    "expect",
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
];
const FORWARDED_PREFIX: &str = "x-forwarded-";
/// Credentials of another system that we stand in for.
const OPEN_SANDBOX_PREFIX: &str = "open-sandbox-";

/// The headers that no server inside may send: they are about our listener, reach beyond one host name, or tell a proxy
/// in front of us, such as nginx, to answer with something of its own.
const NEVER_OUT: [HeaderName; 8] = [
    ALT_SVC,
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("x-accel-redirect"),
    HeaderName::from_static("x-accel-expires"),
    HeaderName::from_static("x-sendfile"),
    HeaderName::from_static("x-lighttpd-send-file"),
    HeaderName::from_static("x-lighttpd-send-tempfile"),
    HeaderName::from_static("x-reproxy-url"),
];

/// The headers that a server inside may send in our own origin: about the content, and for programs. Browsers learn new
/// ones that act for a whole origin, so all others are left out: a cookie there would go to every port of this host
/// name, and a question for a password would come from us.
const IN_OUR_ORIGIN: [&str; 19] = [
    "accept-ranges",
    "age",
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "location",
    "retry-after",
    "server",
    "vary",
];
/// Beginnings of such headers. What begins with `x-` has no meaning to browsers, but for a few old ones that can only
/// hold a page down further, and no new one gets such a name (RFC 6648).
const PREFIXES_IN_OUR_ORIGIN: [&str; 6] = ["x-", "sec-websocket-", "mcp-", "docker-", "grpc-", "ratelimit"];

/// A page in our own origin gets an opaque origin instead: no scripts, no forms, no windows, no frames around it.
const OUR_ORIGIN_POLICY: &str = "sandbox; frame-ancestors 'none'";

/// How a request came to us.
#[derive(Debug)]
pub(super) struct Way<'a> {
    pub(super) peer: Option<IpAddr>,
    pub(super) is_tls: bool,
    /// The path below which the server appears outside; empty if it has a host name of its own.
    pub(super) prefix: &'a str,
    pub(super) port: u16,
}

impl Way<'_> {
    pub(super) fn is_in_our_origin(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// The host that the server inside is asked for.
    ///
    /// A server with a host name of its own sees that name: it compares `Origin` with it, and makes addresses of it.
    /// Below a path the name is the daemon's, which means nothing inside: the server sees the name that a program
    /// beside it would use.
    fn host_inside(&self, asked: Option<&HeaderValue>) -> Option<HeaderValue> {
        match asked {
            Some(asked) if !self.is_in_our_origin() => Some(asked.clone()),
            Some(_) | None => HeaderValue::from_str(&format!("localhost:{}", self.port)).ok(),
        }
    }
}

/// Makes a request's headers those that the server inside gets.
pub(super) fn inward(headers: &mut HeaderMap, way: &Way<'_>, upgrade: Option<&HeaderValue>) {
    let host = headers.get(HOST).cloned();
    drop_hop_by_hop(headers);
    drop_where(headers, |name| is_said_by_us_alone(&name.replace('_', "-")));
    for name in [AUTHORIZATION, KEY_HEADER] {
        if headers.get_all(&name).iter().any(carries_key) {
            headers.remove(&name);
        }
    }
    drop_own_cookies(headers, way);
    remove_proof(headers);
    let mut set = |name: &'static str, value: Option<HeaderValue>| {
        headers.extend(value.map(|value| (HeaderName::from_static(name), value)));
    };
    set("x-forwarded-host", host.clone());
    set("x-forwarded-proto", Some(HeaderValue::from_static(if way.is_tls { "https" } else { "http" })));
    set("x-forwarded-for", way.peer.and_then(|peer| HeaderValue::from_str(&peer.to_string()).ok()));
    if way.is_in_our_origin() {
        set("x-forwarded-prefix", HeaderValue::from_str(way.prefix).ok());
    }
    if let Some(host) = way.host_inside(host.as_ref()) {
        headers.insert(HOST, host);
    }
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, upgrade.clone());
    }
}

/// Whether a caller may not say this, by its name with `-` in place of `_`: to many servers (CGI, WSGI) both are one.
fn is_said_by_us_alone(name: &str) -> bool {
    ABOUT_THE_WAY.contains(&name)
        || name == TOKEN_HEADER
        || name.starts_with(FORWARDED_PREFIX)
        || name.starts_with(OPEN_SANDBOX_PREFIX)
}

/// Makes an answer's headers those that the caller gets.
pub(super) fn outward(headers: &mut HeaderMap, way: &Way<'_>) {
    let upgrade = headers.get(UPGRADE).cloned();
    drop_hop_by_hop(headers);
    NEVER_OUT.iter().for_each(|name| drop(headers.remove(name)));
    if let Some(upgrade) = upgrade {
        // The caller of an answer that switches protocols needs it; on others it does no harm.
        headers.insert(UPGRADE, upgrade);
    }
    if !way.is_in_our_origin() {
        hold_cookies_to_their_host(headers);
        return;
    }
    drop_where(headers, |name| name != UPGRADE && !may_be_in_our_origin(name));
    for name in [LOCATION, CONTENT_LOCATION] {
        if let Some(moved) = headers.get(&name).and_then(|value| below_prefix(value, way)) {
            headers.insert(name, moved);
        }
    }
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(OUR_ORIGIN_POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

fn may_be_in_our_origin(name: &str) -> bool {
    IN_OUR_ORIGIN.contains(&name) || PREFIXES_IN_OUR_ORIGIN.iter().any(|prefix| name.starts_with(prefix))
}

/// The target without our credentials: path and query only.
pub(super) fn target_inside(uri: &Uri) -> Uri {
    let path = if uri.path().is_empty() { "/" } else { uri.path() };
    let is_ours = |piece: &&str| {
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        name == TOKEN_PARAMETER || (name == KEY_PARAMETER && looks_like_key(value))
    };
    let kept: Vec<_> = uri
        .query()
        .map(|query| query.split('&').filter(|piece| !is_ours(piece)).collect())
        .unwrap_or_default();
    let target = if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) };
    target.parse().unwrap_or_else(|_malformed| Uri::from_static("/"))
}

/// Whether the request carries what looks like one of our keys.
pub(crate) fn shows_key(headers: &HeaderMap, uri: &Uri) -> bool {
    let in_headers = |name: HeaderName| headers.get_all(name).iter().any(carries_key);
    let is_key = |piece: &str| {
        piece.split_once('=').is_some_and(|(name, value)| name == KEY_PARAMETER && looks_like_key(value))
    };
    in_headers(AUTHORIZATION)
        || in_headers(KEY_HEADER)
        || uri.query().is_some_and(|query| query.split('&').any(is_key))
}

fn looks_like_key(text: &str) -> bool {
    KEY_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

/// Whether this is one of our keys, with a scheme or without.
fn carries_key(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|text| text.split_ascii_whitespace().any(looks_like_key))
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

fn drop_where(headers: &mut HeaderMap, is_dropped: impl Fn(&str) -> bool) {
    let dropped: Vec<_> = headers.keys().filter(|name| is_dropped(name.as_str())).cloned().collect();
    for name in dropped {
        headers.remove(name);
    }
}

/// In our own origin, a browser adds the cookies of every server on this host name, whatever its port.
fn drop_own_cookies(headers: &mut HeaderMap, way: &Way<'_>) {
    if way.is_in_our_origin() {
        headers.remove(COOKIE);
        return;
    }
    let is_ours = |piece: &[u8]| {
        let name = piece.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        own_cookies().any(|own| own.as_bytes() == name)
    };
    let kept: Vec<_> = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| {
            let pieces: Vec<_> =
                value.as_bytes().split(|byte| *byte == b';').filter(|p| !is_ours(p)).collect();
            HeaderValue::from_bytes(pieces.join(&b';').trim_ascii()).ok().filter(|value| !value.is_empty())
        })
        .collect();
    headers.remove(COOKIE);
    for value in kept {
        headers.append(COOKIE, value);
    }
}

/// Removes `Domain`, with which one sandbox would set cookies for its neighbours, and cookies with our own name.
fn hold_cookies_to_their_host(headers: &mut HeaderMap) {
    let kept: Vec<_> = headers
        .get_all(SET_COOKIE)
        .iter()
        .filter_map(|value| {
            let is_attribute = |piece: &&[u8], wanted: &str| {
                let name = piece.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
                name.eq_ignore_ascii_case(wanted.as_bytes())
            };
            let pieces: Vec<_> = value.as_bytes().split(|byte| *byte == b';').collect();
            let is_ours =
                pieces.first().is_some_and(|first| own_cookies().any(|own| is_attribute(first, own)));
            let kept: Vec<_> = pieces.into_iter().filter(|piece| !is_attribute(piece, "domain")).collect();
            HeaderValue::from_bytes(&kept.join(&b';')).ok().filter(|_| !is_ours)
        })
        .collect();
    headers.remove(SET_COOKIE);
    for value in kept {
        headers.append(SET_COOKIE, value);
    }
}

/// Returns the address outside for an address of the server inside, if that is somewhere else.
fn below_prefix(value: &HeaderValue, way: &Way<'_>) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let own = format!("http://localhost:{}", way.port);
    let path = match text.strip_prefix(&own) {
        Some("") => "/",
        Some(path) if path.starts_with(['/', '?', '#']) => path,
        Some(_) => return None,
        // Two slashes begin another host.
        None if text.starts_with('/') && !text.starts_with("//") && !text.starts_with("/\\") => text,
        None => return None,
    };
    HeaderValue::from_str(&format!("{}{path}", way.prefix)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BELOW: Way<'static> =
        Way { peer: None, is_tls: false, prefix: "/v1/sandboxes/lab/ports/8000", port: 8000 };
    const OWN_HOST: Way<'static> = Way { peer: None, is_tls: true, prefix: "", port: 8000 };

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn nothing_about_the_connection_and_none_of_our_credentials_goes_inside() {
        let mut headers = map(&[
            ("host", "8000-lab.localhost:5555"),
            ("connection", "keep-alive, x-secret-of-this-hop"),
            ("x-secret-of-this-hop", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "Bearer wrn_x"),
            ("authorization", "Bearer wrn_x"),
            ("x-api-key", "msb_x"),
            ("x-warren-token", "t"),
            ("open-sandbox-api-key", "k"),
            ("x-forwarded-for", "198.51.100.1"),
            ("x-forwarded-port", "1"),
            ("forwarded", "for=198.51.100.1"),
            ("x-real-ip", "198.51.100.1"),
            ("x_forwarded_for", "198.51.100.1"),
            ("x_forwarded-proto", "ftp"),
            ("x_real_ip", "198.51.100.1"),
            ("true-client-ip", "198.51.100.1"),
            ("x_warren_token", "t"),
            ("x_own", "1"),
            ("cookie", "a=1; warren_port=t; warren_session=t; b=2"),
            ("cookie", "__Host-warren_port=t"),
            ("cookie", "__Host-warren_session=t"),
            ("x-warren-dashboard", "t"),
            ("sec-websocket-protocol", "chat, warren.proof.t"),
            ("accept", "*/*"),
        ]);
        inward(&mut headers, &Way { peer: Some([192, 0, 2, 1].into()), ..OWN_HOST }, None);
        assert_eq!(
            shown(&headers),
            [
                "accept: */*",
                "cookie: a=1; b=2",
                "host: 8000-lab.localhost:5555",
                "sec-websocket-protocol: chat",
                "x-forwarded-for: 192.0.2.1",
                "x-forwarded-host: 8000-lab.localhost:5555",
                "x-forwarded-proto: https",
                "x_own: 1",
            ]
        );
    }

    #[test]
    fn a_servers_own_credentials_pass() {
        let mut headers =
            map(&[("authorization", "Bearer of-the-app"), ("x-api-key", "app"), ("cookie", "session=1")]);
        inward(&mut headers, &OWN_HOST, None);
        let lines = shown(&headers);
        for line in ["authorization: Bearer of-the-app", "x-api-key: app", "cookie: session=1"] {
            assert!(lines.iter().any(|found| found == line), "{lines:?}");
        }
    }

    #[test]
    fn below_a_path_a_browsers_cookies_stay_out_and_the_server_has_a_plain_name() {
        let mut headers = map(&[("host", "127.0.0.1:5555"), ("cookie", "of-another-port=1")]);
        inward(&mut headers, &BELOW, None);
        assert_eq!(
            shown(&headers),
            [
                "host: localhost:8000",
                "x-forwarded-host: 127.0.0.1:5555",
                "x-forwarded-prefix: /v1/sandboxes/lab/ports/8000",
                "x-forwarded-proto: http",
            ]
        );
    }

    #[test]
    fn targets_lose_our_tokens_only() {
        let inside = |text: &str| target_inside(&text.parse().unwrap()).to_string();
        assert_eq!(inside("http://8000-lab.localhost:5555/a"), "/a");
        assert_eq!(inside("/a?x=1&warren_token=t&y"), "/a?x=1&y");
        assert_eq!(inside("/a?api_key=wrn_x"), "/a");
        assert_eq!(inside("/a?api_key=own"), "/a?api_key=own");
        assert_eq!(inside("/a%20b?q=%26"), "/a%20b?q=%26");
    }

    #[test]
    fn no_server_tells_a_proxy_in_front_of_us_what_to_answer() {
        for way in [&OWN_HOST, &BELOW] {
            let mut headers = map(&[
                ("x-accel-redirect", "/internal/secret"),
                ("x-sendfile", "/etc/passwd"),
                ("x-accel-buffering", "no"),
            ]);
            outward(&mut headers, way);
            let lines = shown(&headers);
            assert!(
                !lines.iter().any(|line| line.contains("secret") || line.contains("passwd")),
                "{lines:?}"
            );
            assert!(lines.contains(&"x-accel-buffering: no".to_owned()), "{lines:?}");
        }
    }

    #[test]
    fn a_server_in_our_origin_is_held_down() {
        let mut headers = map(&[
            ("content-type", "text/html"),
            ("set-cookie", "a=1"),
            ("access-control-allow-origin", "*"),
            ("www-authenticate", "Basic"),
            ("content-security-policy", "default-src *"),
            ("alt-svc", "h3"),
            ("clear-site-data", "\"*\""),
            ("speculation-rules", "\"/rules.json\""),
            ("not-known-yet", "1"),
            ("x-total-count", "3"),
            ("mcp-session-id", "1"),
            ("etag", "\"a\""),
            ("location", "/login?next=/"),
            ("connection", "close"),
        ]);
        outward(&mut headers, &BELOW);
        assert_eq!(
            shown(&headers),
            [
                "content-security-policy: sandbox; frame-ancestors 'none'",
                "content-type: text/html",
                "etag: \"a\"",
                "location: /v1/sandboxes/lab/ports/8000/login?next=/",
                "mcp-session-id: 1",
                "referrer-policy: no-referrer",
                "x-content-type-options: nosniff",
                "x-total-count: 3",
            ]
        );
    }

    #[test]
    fn addresses_move_below_the_prefix_if_they_are_the_servers_own() {
        let moved = |text: &'static str| {
            below_prefix(&HeaderValue::from_static(text), &BELOW)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        let below = |path: &str| Some(format!("{}{path}", BELOW.prefix));
        assert_eq!(moved("/x"), below("/x"));
        assert_eq!(moved("http://localhost:8000"), below("/"));
        assert_eq!(moved("http://localhost:8000/x?y"), below("/x?y"));
        for other in [
            "x",
            "../x",
            "//evil.example/x",
            "/\\evil.example",
            "https://evil.example/",
            "http://localhost:80001/",
        ] {
            assert_eq!(moved(other), None, "{other}");
        }
    }

    #[test]
    fn cookies_belong_to_one_host() {
        let mut headers = map(&[
            ("set-cookie", "a=1; Domain=apps.example; Path=/; HttpOnly"),
            ("set-cookie", "b=2;domain = .apps.example"),
            ("set-cookie", "domain=3"),
            ("set-cookie", "warren_port=mine"),
            ("set-cookie", "__host-WARREN_port=mine; Secure"),
        ]);
        outward(&mut headers, &OWN_HOST);
        // A cookie that is called "domain" is lost with the attribute; nobody has one.
        assert_eq!(shown(&headers), ["set-cookie: ", "set-cookie: a=1; Path=/; HttpOnly", "set-cookie: b=2"]);
    }
}
