//! Names by which the daemon may be asked, and pages that may ask.
//!
//! A page in a browser can have its own name resolve to 127.0.0.1 and then ask us as if we were its server. It cannot
//! choose what stands in `Host` and `Origin`, so names that are not ours are refused.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use axum::http::{
    HeaderMap, Method,
    header::{HOST, HeaderName, ORIGIN},
    request::Parts,
};
use sandbox::{Error, ErrorKind, Result};

use super::{listen::LocalAddress, session_auth::is_upgrade};
use crate::{
    links,
    ports::{PortDomain, PortHost},
};

/// Longest name that DNS has, in brackets and with a port.
const MAX_AUTHORITY_BYTES: usize = 262;
/// As much of a wrong value as is repeated.
const MAX_SHOWN_CHARACTERS: usize = 128;

/// A host with the port that was given, if one was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    /// In lower case, without the final dot.
    Name(String),
    Ip(IpAddr),
}

impl Authority {
    fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_AUTHORITY_BYTES {
            return None;
        }
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            (Host::Ip(IpAddr::V6(address.parse::<Ipv6Addr>().ok()?).to_canonical()), rest)
        } else {
            let (name, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
            (Host::parse(name)?, rest)
        };
        let port = match port.strip_prefix(':') {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
            None if port.is_empty() => None,
            Some(_) | None => return None,
        };
        Some(Self { host, port })
    }

    /// Whether `asked` is this one. Without a port, any port is.
    fn covers(&self, asked: &Self) -> bool {
        self.host == asked.host && (self.port.is_none() || self.port == asked.port)
    }
}

impl FromStr for Authority {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| {
            Error::invalid(format!("{text:?} is not a host")).with_hint(
                "Write a name or an address, with a port or without: warren.example or [::1]:5555.",
            )
        })
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Some(Self::Ip(address.into()));
        }
        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        name.split('.').all(is_label).then(|| Self::Name(name.to_ascii_lowercase()))
    }

    /// No page can have these for its own without being on this machine.
    fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => name == "localhost",
            Self::Ip(address) => address.is_loopback(),
        }
    }
}

/// The origin of a page: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    is_https: bool,
    authority: Authority,
}

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let is_https = scheme.eq_ignore_ascii_case("https");
        (is_https || scheme.eq_ignore_ascii_case("http"))
            .then(|| Authority::parse(authority).map(|authority| Self { is_https, authority }))?
    }

    fn port_of(&self, authority: &Authority) -> u16 {
        authority.port.unwrap_or(if self.is_https { 443 } else { 80 })
    }

    /// Whether a page from here came from the server that is asked as `host`.
    fn is_of(&self, host: &Authority) -> bool {
        self.authority.host == host.host && self.port_of(&self.authority) == self.port_of(host)
    }

    fn is(&self, other: &Self) -> bool {
        self.is_https == other.is_https && self.is_of(&other.authority)
    }
}

impl FromStr for Origin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| {
            Error::invalid(format!("{text:?} is not an origin"))
                .with_hint("Write scheme, host and port, without a path: https://app.example:8443.")
        })
    }
}

/// The hosts and origins that a listener takes.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    pub allowed_hosts: Vec<Authority>,
    pub allowed_origins: Vec<Origin>,
    /// The listener itself speaks TLS: its pages are never plain.
    pub is_tls: bool,
    /// The domain of host names of ports, beside `localhost`.
    pub port_domain: Option<PortDomain>,
}

impl Hosts {
    /// The port whose host name is asked for. Such a host is never one of the daemon's own.
    pub(super) fn port_host(&self, request: &Parts) -> Result<Option<PortHost>> {
        let read = |text: &str| match Authority::parse(text)?.host {
            Host::Name(name) => PortHost::parse(&name, self.port_domain.as_ref()),
            Host::Ip(_) => None,
        };
        let host = single(&request.headers, &HOST)?;
        let found = host.and_then(read);
        let target = request.uri.authority().map(|target| read(target.as_str()));
        match (found, target) {
            (found, None) => Ok(found),
            (found, Some(target)) if found == target => Ok(found),
            _ => Err(Error::new(ErrorKind::Denied, "the request names two different hosts")
                .with_hint("Send the same name in the Host header and in the target.")),
        }
    }

    /// Whether pages of this port are reached by TLS.
    pub(super) fn is_tls_for(&self, host: &PortHost) -> bool {
        let said = self.port_domain.as_ref().filter(|_| host.is_of_domain).and_then(PortDomain::is_https);
        said.unwrap_or(self.is_tls)
    }

    /// Whether the request comes from a page of the very host that it asks.
    pub(super) fn is_own_origin(request: &Parts) -> bool {
        let text = |name| single(&request.headers, name).ok().flatten();
        let host = text(&HOST).and_then(Authority::parse);
        let origin = text(&ORIGIN).and_then(Origin::parse);
        host.zip(origin).is_some_and(|(host, origin)| origin.is_of(&host))
    }

    /// Whether the request can have come from a page that the asked host itself served: what a session, which a browser
    /// carries around, is good for. Programs send neither header; a WebSocket has no other protection, so there the
    /// origin must be told.
    pub(super) fn is_own_page(&self, request: &Parts) -> bool {
        let headers = &request.headers;
        let host = single(headers, &HOST).ok().flatten().and_then(Authority::parse);
        let is_same_site = headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin");
        let is_same_origin = match single(headers, &ORIGIN) {
            Ok(Some(text)) => host.is_some_and(|host| self.is_same_origin(text, &host)),
            Ok(None) => !is_upgrade(request),
            Err(_several) => false,
        };
        is_same_site && is_same_origin
    }

    /// Refuses a request that a hostile page could have sent.
    pub(super) fn check(&self, request: &Parts) -> Result<()> {
        let local = request.extensions.get::<LocalAddress>().map(|local| local.0.ip().to_canonical());
        let host = self.host(request, local)?;
        let origin = single(&request.headers, &ORIGIN)?;
        match origin {
            None if is_sent_by_a_foreign_page(&request.headers) && !is_picture_by_link(request) => {
                Err(Error::new(ErrorKind::Denied, "a page from another origin may not use this daemon")
                    .with_hint(
                        "If you trust it, make it use CORS and start the daemon with --allowed-origin.",
                    ))
            }
            None => Ok(()),
            Some(text) if self.takes_origin(text, &host) => Ok(()),
            Some(text) => Err(Error::new(
                ErrorKind::Denied,
                format!("pages from {} may not use this daemon", shown(text)),
            )
            .with_hint("If you trust them, start the daemon with --allowed-origin.")),
        }
    }

    /// The host that was asked for, if it is one of ours. Where the target names one too, both must be.
    fn host(&self, request: &Parts, local: Option<IpAddr>) -> Result<Authority> {
        let Some(text) = single(&request.headers, &HOST)? else {
            return Err(Error::new(ErrorKind::Denied, "the request names no host")
                .with_hint("Send a Host header; HTTP/1.1 requires one."));
        };
        let host = self.own(text, local)?;
        if let Some(target) = request.uri.authority() {
            self.own(target.as_str(), local)?;
        }
        Ok(host)
    }

    fn own(&self, text: &str, local: Option<IpAddr>) -> Result<Authority> {
        let is_own = |asked: &Authority| {
            asked.host.is_loopback()
                || local.is_some_and(|local| asked.host == Host::Ip(local))
                || self.allowed_hosts.iter().any(|allowed| allowed.covers(asked))
        };
        Authority::parse(text).filter(is_own).ok_or_else(|| {
            Error::new(ErrorKind::Denied, format!("{} is not a name of this daemon", shown(text))).with_hint(
                "Use localhost or the address it listens on, or start the daemon with --allowed-host.",
            )
        })
    }

    fn takes_origin(&self, text: &str, host: &Authority) -> bool {
        self.is_same_origin(text, host) || Origin::parse(text).is_some_and(|origin| self.allows(&origin))
    }

    fn is_same_origin(&self, text: &str, host: &Authority) -> bool {
        // In front of a plain listener there may be a proxy that speaks TLS.
        let fits = |origin: Origin| (origin.is_https || !self.is_tls) && origin.is_of(host);
        Origin::parse(text).is_some_and(fits)
    }

    fn allows(&self, origin: &Origin) -> bool {
        self.allowed_origins.iter().any(|allowed| allowed.is(origin))
    }

    /// The request's origin, if it is one that the operator allowed.
    pub(super) fn allowed_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let text = single(headers, &ORIGIN).ok()??;
        self.allows(&Origin::parse(text)?).then_some(text)
    }
}

/// Browsers send no `Origin` with a picture or a script. Their answers cannot be read by the page, but wrong keys in
/// them would use up what this address may get wrong. Following a link is the user's own doing.
fn is_sent_by_a_foreign_page(headers: &HeaderMap) -> bool {
    let says = |name: &str, words: &[&[u8]]| {
        headers.get(name).is_some_and(|value| words.contains(&value.as_bytes()))
    };
    says("sec-fetch-site", &[b"cross-site", b"same-site"]) && !says("sec-fetch-dest", &[b"document"])
}

/// Pages of others may show the pictures that they know a link to: the link is the right, and the page cannot read
/// them.
fn is_picture_by_link(request: &Parts) -> bool {
    let is_picture = request.headers.get("sec-fetch-dest").is_some_and(|value| value == "image");
    is_picture && request.method == Method::GET && links::token_of(request.uri.path()).is_some()
}

/// A header that may be there once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str() {
        Ok(text) if values.next().is_none() => Ok(Some(text)),
        Ok(_) => Err(Error::new(ErrorKind::Denied, format!("the request has more than one {name} header"))),
        Err(_not_text) => Err(Error::new(ErrorKind::Denied, format!("the {name} header is not plain text"))),
    }
}

fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(MAX_SHOWN_CHARACTERS).collect::<String>())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    /// Checks a request as a listener on 192.0.2.7 does.
    fn check(hosts: &Hosts, target: &str, headers: &[(&str, &str)]) -> Result<()> {
        let mut request = Request::get(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        parts.extensions.insert(LocalAddress(([192, 0, 2, 7], 5555).into()));
        hosts.check(&parts)
    }

    fn takes_host(hosts: &Hosts, host: &str) -> bool {
        check(hosts, "/", &[("host", host)]).is_ok()
    }

    #[test]
    fn our_own_names_are_taken_in_every_spelling() {
        let hosts = Hosts::default();
        for host in [
            "localhost",
            "localhost:5555",
            "LocalHost:1",
            "localhost.",
            "localhost.:80",
            "127.0.0.1",
            "127.0.0.1:65535",
            "127.8.8.8",
            "[::1]",
            "[::1]:5555",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]:5555",
            "192.0.2.7:5555",
        ] {
            assert!(takes_host(&hosts, host), "{host}");
        }
    }

    #[test]
    fn other_names_are_not() {
        let hosts = Hosts::default();
        let long = "a".repeat(300);
        for host in [
            "evil.example",
            "evil.example:5555",
            "localhost.evil.example",
            "evil.localhost",
            "localhost..",
            ".localhost",
            "localhost:",
            "localhost:x",
            "localhost:+80",
            "localhost:65536",
            "localhost:80:80",
            "me@localhost",
            "localhost@evil.example",
            "localhost/",
            "127.0.0.1.evil.example",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "0.0.0.0",
            "::1",
            "[::1",
            "[::1]x",
            "[::1%lo]",
            "[::2]",
            "[127.0.0.1]",
            "192.0.2.8",
            "",
            ".",
            " localhost",
            "localhost,evil.example",
            &long,
        ] {
            assert!(!takes_host(&hosts, host), "{host}");
        }
    }

    #[test]
    fn the_operator_can_name_more() {
        let hosts = Hosts {
            allowed_hosts: vec!["Warren.Example".parse().unwrap(), "other.example:8443".parse().unwrap()],
            ..Hosts::default()
        };
        for host in ["warren.example", "WARREN.example.:99", "other.example:8443", "localhost"] {
            assert!(takes_host(&hosts, host), "{host}");
        }
        for host in ["x.warren.example", "other.example", "other.example:1"] {
            assert!(!takes_host(&hosts, host), "{host}");
        }
    }

    #[test]
    fn a_host_must_be_there_once_and_the_target_may_not_contradict() {
        let hosts = Hosts::default();
        let refused = check(&hosts, "/", &[]).unwrap_err();
        assert!(
            refused.kind() == ErrorKind::Denied
                && crate::http::error::hint(&refused).unwrap().contains("Host")
        );
        assert!(check(&hosts, "/", &[("host", "localhost"), ("host", "localhost")]).is_err());
        assert!(check(&hosts, "http://evil.example/", &[("host", "localhost")]).is_err());
        assert!(check(&hosts, "http://localhost/", &[("host", "evil.example")]).is_err());
        check(&hosts, "http://localhost:5555/v1", &[("host", "localhost:5555")]).unwrap();
    }

    #[test]
    fn a_page_must_be_ours_or_allowed() {
        let plain = Hosts::default();
        let tls = Hosts { is_tls: true, ..Hosts::default() };
        let open = Hosts {
            allowed_origins: vec![
                "https://App.Example".parse().unwrap(),
                "http://localhost:3000".parse().unwrap(),
            ],
            ..Hosts::default()
        };
        let takes = |hosts: &Hosts, host: &str, origin: &str| {
            check(hosts, "/", &[("host", host), ("origin", origin)]).is_ok()
        };
        assert!(takes(&plain, "localhost:5555", "http://localhost:5555"));
        assert!(takes(&plain, "LOCALHOST:5555", "HTTP://localhost.:5555"));
        assert!(
            takes(&plain, "localhost", "http://localhost:80")
                && takes(&plain, "localhost:443", "https://localhost")
        );
        assert!(takes(&plain, "[::1]:5555", "http://[0::1]:5555"));
        for origin in [
            "null",
            "",
            "*",
            "localhost:5555",
            "http://localhost",
            "http://localhost:5556",
            "http://127.0.0.1:5555",
            "http://evil.example:5555",
            "http://localhost:5555/",
            "http://localhost:5555@evil.example",
            "http://me@localhost:5555",
            "file://localhost:5555",
            "chrome-extension://localhost:5555",
            "http://localhost:5555 http://evil.example",
        ] {
            assert!(!takes(&plain, "localhost:5555", origin), "{origin}");
            assert!(!takes(&open, "localhost:5555", origin), "{origin}");
        }
        assert!(takes(&tls, "localhost:5555", "https://localhost:5555"));
        assert!(!takes(&tls, "localhost:5555", "http://localhost:5555"));
        assert!(takes(&open, "localhost:5555", "https://app.example:443"));
        assert!(takes(&open, "localhost:5555", "http://localhost:3000"));
        assert!(!takes(&open, "localhost:5555", "http://app.example"));
        let two = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")];
        assert!(check(&plain, "/", &two).is_err());
        // An origin does not excuse a host.
        assert!(!takes(&open, "app.example", "https://app.example"));
    }

    #[test]
    fn a_picture_on_a_hostile_page_is_refused_and_a_link_is_not() {
        let hosts = Hosts { allowed_origins: vec!["https://a.example".parse().unwrap()], ..Hosts::default() };
        let takes = |headers: &[(&str, &str)]| {
            check(&hosts, "/", &[&[("host", "localhost")], headers].concat()).is_ok()
        };
        for site in ["cross-site", "same-site"] {
            assert!(!takes(&[("sec-fetch-site", site)]));
            assert!(!takes(&[("sec-fetch-site", site), ("sec-fetch-dest", "image")]));
            assert!(!takes(&[("sec-fetch-site", site), ("sec-fetch-dest", "iframe")]));
            assert!(takes(&[("sec-fetch-site", site), ("sec-fetch-dest", "document")]));
            assert!(takes(&[("sec-fetch-site", site), ("origin", "https://a.example")]));
        }
        assert!(takes(&[("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "empty")]));
        assert!(takes(&[("sec-fetch-site", "none"), ("sec-fetch-dest", "document")]));
    }

    #[test]
    fn what_an_operator_writes_wrong_is_named() {
        for text in ["https://a.example", "a b", "", "*"] {
            assert!(text.parse::<Authority>().unwrap_err().to_string().contains(text));
        }
        for text in ["a.example", "null", "https://a.example/x", "ftp://a.example"] {
            assert!(
                crate::http::error::hint(&text.parse::<Origin>().unwrap_err()).unwrap().contains("scheme")
            );
        }
    }
}
