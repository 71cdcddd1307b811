//! Debian repositories: files by their address. apt verifies them itself, by the archive's signature.

use std::sync::Arc;

use hyper::{HeaderMap, Response, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::{
    Inner, Scope,
    clients::Client,
    config::Manager,
    digest::{Algorithm, Stated},
    error::Refusal,
    files::{Change, FileRequest},
    reply::Body,
    route::{self, Route},
    upstream::Ask,
};

/// Longest host name in a refusal, in characters.
const MAX_SHOWN_CHARS: usize = 100;

/// As apt writes paths.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'+')
    .remove(b':')
    .remove(b'=');

/// Finds the file of a configured source that an address stands for; nothing else has one.
pub(crate) fn at_address(inner: &Inner, scope: Scope, uri: &Uri) -> Result<Route, Refusal> {
    if !scope.apt || uri.scheme_str() != Some("http") {
        return Err(Refusal::bad_request("This is not a proxy. Ask for a path, not for an address."));
    }
    let host = uri.host().unwrap_or_default();
    // A source that we reach over TLS may be named without it.
    let is_there = |base: &Url| {
        base.host_str().is_some_and(|own| own.eq_ignore_ascii_case(host)) && base.port() == port(uri)
    };
    let found = inner.apt_sources.iter().enumerate().filter(|(_, base)| is_there(base));
    let found = found.filter_map(|(number, base)| Some((number, uri.path().strip_prefix(base.path())?)));
    // The most specific one.
    let Some((number, rest)) = found.min_by_key(|(_, rest)| rest.len()) else {
        let shown: String = host.chars().take(MAX_SHOWN_CHARS).collect();
        let sentence =
            format!("No apt source of this host is there: {shown}. Its operator sets apt.sources.");
        return Err(Refusal::new(StatusCode::FORBIDDEN, sentence));
    };
    route::apt_file(number, rest)
}

fn port(uri: &Uri) -> Option<u16> {
    uri.port_u16().filter(|port| *port != 80)
}

pub(crate) async fn file(
    inner: &Inner,
    client: &Arc<Client>,
    source: usize,
    path: &[String],
    headers: &HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let base = inner.apt_sources.get(source).ok_or_else(|| {
        Refusal::not_found(format!(
            "There is no apt source {source}; this host offers {}.",
            inner.apt_sources.len()
        ))
    })?;
    let joined: Vec<String> =
        path.iter().map(|part| utf8_percent_encode(part, IN_PATH).to_string()).collect();
    let mut url = base.clone();
    url.set_path(&format!("{}{}", base.path(), joined.join("/")));
    let stated = by_hash(path);
    let wanted = FileRequest {
        what: format!("the file {}", path.join("/")),
        ask: Ask {
            url,
            accept: "*/*",
            may_compress: false,
            manager: Manager::Apt,
            etag: None,
            last_modified: None,
        },
        change: if stated.is_some() || is_package(path) { Change::Never } else { Change::Often },
        stated,
        content_type: "application/octet-stream",
    };
    inner.files.get(client, wanted, headers).await
}

/// `…/by-hash/SHA256/<hex>`: the name states the content.
fn by_hash(path: &[String]) -> Option<Stated> {
    match path {
        [.., word, algorithm, hex] if word == "by-hash" => {
            Stated::from_hex(Algorithm::named(algorithm)?, hex)
        }
        _ => None,
    }
}

/// Names with a version in them, whose content an archive never changes. Where one did, apt sees that the hash is
/// another, and `-o Acquire::http::No-Cache=true` gets the new one.
fn is_package(path: &[String]) -> bool {
    let name = path.last().map(String::as_str).unwrap_or_default();
    [".deb", ".udeb", ".ddeb", ".dsc"].iter().any(|ending| name.ends_with(ending))
        || path.iter().any(|part| part == "pool")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('/').map(str::to_owned).collect()
    }

    #[test]
    fn names_that_state_their_content() {
        let hex = "a".repeat(64);
        let stated = by_hash(&path(&format!("dists/stable/main/binary-amd64/by-hash/SHA256/{hex}"))).unwrap();
        assert_eq!(stated, Stated { algorithm: Algorithm::Sha256, hex });
        assert_eq!(by_hash(&path("dists/stable/by-hash/SHA256/abc")), None);
        assert_eq!(by_hash(&path("dists/stable/InRelease")), None);
        assert!(is_package(&path("pool/main/h/hello/hello_2.10-3_amd64.deb")));
        assert!(is_package(&path("hello_1_all.deb")));
        assert!(!is_package(&path("dists/stable/main/binary-amd64/Packages.xz")));
    }
}
