//! One HTTP client for all registries, with bounds on everything.

use std::{fs, sync::Arc, time::Duration};

use downloads::{Guard, Refused};
use reqwest::{
    Client, Response, StatusCode,
    header::{HeaderMap, RETRY_AFTER},
    redirect,
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::{
    error::{Error, Result},
    options::Options,
};

/// Registries redirect once or twice, to where their blobs are.
const MAX_REDIRECTS: usize = 8;

/// A client that goes only where the guard allows, if there is one.
pub(super) fn build(options: &Options, guard: Option<&Arc<Guard>>) -> Result<Client> {
    let failed = |error: &dyn std::error::Error| Error::invalid(format!("HTTP client: {error}"));
    let mut builder = downloads::client_builder(authorities(options)?).map_err(|error| failed(&error))?;
    if let Some(guard) = guard {
        builder = builder.dns_resolver(guard.resolver());
    }
    let guard = guard.cloned();
    builder
        .user_agent("warren")
        .connect_timeout(options.timeouts.connect)
        .read_timeout(options.timeouts.idle)
        .redirect(redirect::Policy::custom(move |attempt| follow(attempt, guard.as_deref())))
        .build()
        .map_err(|error| failed(&error))
}

/// The certificate authorities of [`Options::ca_files`].
fn authorities(options: &Options) -> Result<Vec<CertificateDer<'static>>> {
    let mut authorities = Vec::new();
    for file in &options.ca_files {
        let pem = fs::read(file).map_err(Error::io("read", file))?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let holds_none = |_| Error::invalid(format!("{} holds no certificate", file.display()));
            authorities.push(certificate.map_err(holds_none)?);
        }
    }
    Ok(authorities)
}

fn follow(attempt: redirect::Attempt<'_>, guard: Option<&Guard>) -> redirect::Action {
    if attempt.previous().len() > MAX_REDIRECTS {
        return attempt.error("it redirects without end");
    }
    let was_secure = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if was_secure && attempt.url().scheme() != "https" {
        return attempt.error("it redirects away from TLS");
    }
    match guard.map(|guard| guard.check(attempt.url())) {
        Some(Err(refused)) => attempt.error(refused),
        Some(Ok(())) | None => attempt.follow(),
    }
}

/// Words an error on the way, without the URL: those of blobs may hold keys.
pub(super) fn failed(what: &str, error: reqwest::Error, idle: Duration) -> Error {
    if error.is_timeout() {
        return Error::TimedOut { what: what.to_owned(), after: idle };
    }
    if let Some(refused) = downloads::cause::<Refused>(&error) {
        return denied(what, refused);
    }
    Error::Unavailable { what: what.to_owned(), why: downloads::reason(error) }
}

pub(super) fn denied(what: &str, refused: &Refused) -> Error {
    Error::Denied { what: what.to_owned(), why: refused.to_string() }
}

/// An answer that is no success, as an error.
pub(super) fn refused(what: &str, response: &Response) -> Error {
    let what = what.to_owned();
    match response.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::Unauthorized { what },
        StatusCode::NOT_FOUND => Error::NotFound { what },
        StatusCode::TOO_MANY_REQUESTS => {
            Error::RateLimited { what, retry_after: retry_after(response.headers()) }
        }
        status => Error::Unavailable { what, why: format!("the registry answered {status}") },
    }
}

/// Seconds, or a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    Duration::try_from(date.timestamp().duration_since(jiff::Timestamp::now())).ok()
}

/// The whole body, unless it is longer than `most`.
pub(super) async fn body(what: &str, mut response: Response, most: u64, idle: Duration) -> Result<Vec<u8>> {
    let too_large = || Error::TooLarge { what: what.to_owned(), limit: "max_document_bytes".into(), most };
    if response.content_length().is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(what, error, idle))? {
        if (bytes.len() + chunk.len()) as u64 > most {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_come_back() {
        let after = |text: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]));
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("Fri, 31 Dec 1999 23:59:59 GMT"), None);
        assert!(after("Fri, 31 Dec 2100 23:59:59 GMT").is_some_and(|wait| wait > Duration::from_secs(86400)));
        assert_eq!(after("soon"), None);
    }
}
