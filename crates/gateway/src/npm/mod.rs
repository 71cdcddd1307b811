//! npm packages: packuments (what there is of a package) and tarballs.

mod packument;

use std::sync::Arc;

use bytes::Bytes;
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::{
    Inner,
    clients::Client,
    config::Manager,
    error::Refusal,
    files::{self, Change},
    pages::{self, Page},
    reply::{self, Body, Part},
    upstream::Ask,
};

/// The form of a packument with what installers need; a tenth of the whole.
const ABBREVIATED: &str = "application/vnd.npm.install-v1+json";
const FULL: &str = "application/json";

/// A packument's name in a path: the slash of a scope is encoded, the rest as npm does.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@');

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Abbreviated,
    Full,
}

pub(crate) async fn package(
    inner: &Inner,
    client: &Client,
    package: &str,
    headers: &HeaderMap,
    base: &str,
) -> Result<Response<Body>, Refusal> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let (detail, content_type) = match accept.contains(ABBREVIATED) {
        true => (Detail::Abbreviated, ABBREVIATED),
        false => (Detail::Full, FULL),
    };
    let page = inner.pages.get(client, wanted(inner, package, detail)).await?;
    let form = page
        .form(packument::FORM)
        .ok_or_else(|| Refusal::not_found(format!("The packument of {package} cannot be read.")))?;
    // Our own address is in the answer, so it is in the validator too.
    let etag = format!(
        "\"{}-{}\"",
        form.sha256,
        crate::digest::sha256_hex(base.as_bytes()).get(..8).unwrap_or_default()
    );
    if headers.get(IF_NONE_MATCH).is_some_and(|seen| seen.as_bytes() == etag.as_bytes()) {
        let mut response = reply::empty(StatusCode::NOT_MODIFIED);
        reply::set(&mut response, ETAG, &etag);
        return Ok(response);
    }
    let inserted = Bytes::from(format!("{base}/npm/"));
    let part = Part { file: Arc::new(form.file), from: 0, to: form.size, cuts: form.cuts, inserted };
    let length = part.length();
    let mut response = Response::new(reply::pieces(part.stream(), Arc::clone(&inner.counters)));
    reply::set_length(&mut response, length);
    reply::set(&mut response, CONTENT_TYPE, content_type);
    reply::set(&mut response, VARY, "Accept");
    reply::set(&mut response, ETAG, &etag);
    reply::set(&mut response, CACHE_CONTROL, "no-cache");
    Ok(response)
}

pub(crate) async fn tarball(
    inner: &Inner,
    client: &Arc<Client>,
    package: &str,
    file: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let page = known(inner, client, package).await?;
    let mut found = inner.pages.file(page, file).await;
    if matches!(found, Ok(None)) {
        // Perhaps it is newer than our page.
        let page = inner.pages.get(client, wanted(inner, package, Detail::Abbreviated)).await?;
        found = inner.pages.file(page, file).await;
    }
    let named = found
        .map_err(|error| Refusal::disk(&inner.counters, &error))?
        .ok_or_else(|| Refusal::not_found(format!("The package {package} has no file {file:?}.")))?;
    let wanted = files::FileRequest {
        what: format!("the file {file}"),
        ask: ask(named.url, "*/*", false),
        change: if named.stated.is_some() { Change::Never } else { Change::Sometimes },
        stated: named.stated,
        content_type: "application/octet-stream",
    };
    inner.files.get(client, wanted, headers).await
}

/// The packument that led the client to a file, in whichever detail it asked for that.
async fn known(inner: &Inner, client: &Client, package: &str) -> Result<Page, Refusal> {
    for detail in [Detail::Abbreviated, Detail::Full] {
        let key = wanted(inner, package, detail).key;
        if let Some(page) = inner.pages.peek(&key).await? {
            return Ok(page);
        }
    }
    inner.pages.get_any_age(client, wanted(inner, package, Detail::Abbreviated)).await
}

fn wanted(inner: &Inner, package: &str, detail: Detail) -> pages::PageRequest {
    let mut url = inner.npm_registry.clone();
    url.set_path(&format!("{}{}", url.path(), utf8_percent_encode(package, IN_PATH)));
    let accept = match detail {
        Detail::Abbreviated => "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*",
        Detail::Full => FULL,
    };
    let name = package.to_owned();
    pages::PageRequest {
        key: format!("npm {detail:?} {} {package}", inner.npm_registry),
        what: format!("the package {package}"),
        ask: ask(url, accept, true),
        read: Box::new(move |fetched| packument::read(&name, fetched)),
    }
}

fn ask(url: Url, accept: &'static str, may_compress: bool) -> Ask {
    Ask { url, accept, may_compress, manager: Manager::Npm, etag: None, last_modified: None }
}
