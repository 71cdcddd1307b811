//! The pushing half of the OCI distribution protocol, and the check of a login.
//!
//! Only the registry itself is asked, never a mirror. Blobs go in pieces, so that memory is bounded and a slow line
//! does not look like silence.

use std::{path::Path, sync::PoisonError};

use reqwest::{
    Method, RequestBuilder, Response, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION},
};
use tokio::{fs::File, io::AsyncReadExt as _};

use super::{Session, challenge::Challenge, client};
use crate::{
    digest::Digest,
    error::{Error, Result},
};

/// Sent at once: with the shortest silence that is allowed, a line of 140 KB/s is fast enough.
const PIECE_BYTES: u64 = 4 * 1024 * 1024;

impl Session {
    /// Whether the registry lets us in. One that asks nobody for a password lets everybody in.
    pub(crate) async fn check_login(&self) -> Result<()> {
        let what = format!("registry {}", self.registry.name);
        let base = self.registry.base.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{base}/v2/")).map_err(|error| Error::invalid(error.to_string()))?;
        let response = self.ask(&what, &url, || self.client.get(url.clone())).await?;
        if response.status() == StatusCode::OK { Ok(()) } else { Err(client::refused(&what, &response)) }
    }

    pub(crate) async fn has_blob(&self, digest: &Digest) -> Result<bool> {
        let what = self.describe(&self.registry, "blobs", digest.as_str());
        let url = self.registry.url(&self.repository, "blobs", digest.as_str())?;
        let response = self.ask(&what, &url, || self.client.head(url.clone())).await?;
        match response.status() {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(client::refused(&what, &response)),
        }
    }

    /// Uploads the file, which has this digest, and reports how much of it has gone.
    pub(crate) async fn upload_blob(&self, digest: &Digest, file: &Path, sent: impl Fn(u64)) -> Result<()> {
        let what = self.describe(&self.registry, "blobs", digest.as_str());
        let begin = self.registry.url(&self.repository, "blobs", "uploads/")?;
        let response =
            self.ask(&what, &begin, || self.client.post(begin.clone()).header(CONTENT_LENGTH, 0)).await?;
        let mut place = self.next_place(&what, &begin, StatusCode::ACCEPTED, &response)?;
        let mut opened = File::open(file).await.map_err(Error::io("open", file))?;
        let mut at = 0;
        loop {
            let mut piece = Vec::new();
            (&mut opened).take(PIECE_BYTES).read_to_end(&mut piece).await.map_err(Error::io("read", file))?;
            let length = piece.len() as u64;
            if length == 0 {
                break;
            }
            let range = format!("{at}-{}", at + length - 1);
            let response = self
                .ask(&what, &place, || {
                    let request =
                        self.client.patch(place.clone()).header(CONTENT_TYPE, "application/octet-stream");
                    request.header(CONTENT_RANGE, &range).body(piece.clone())
                })
                .await?;
            place = self.next_place(&what, &place, StatusCode::ACCEPTED, &response)?;
            at += length;
            sent(at);
        }
        let mut end = place;
        end.query_pairs_mut().append_pair("digest", digest.as_str());
        let response =
            self.ask(&what, &end, || self.client.put(end.clone()).header(CONTENT_LENGTH, 0)).await?;
        if response.status() == StatusCode::CREATED { Ok(()) } else { Err(client::refused(&what, &response)) }
    }

    pub(crate) async fn put_manifest(&self, tag: &str, media_type: &str, manifest: &[u8]) -> Result<()> {
        let what = self.describe(&self.registry, "manifests", tag);
        let url = self.registry.url(&self.repository, "manifests", tag)?;
        let send = || {
            let request = self.client.request(Method::PUT, url.clone()).header(CONTENT_TYPE, media_type);
            request.body(manifest.to_vec())
        };
        let response = self.ask(&what, &url, send).await?;
        if response.status() == StatusCode::CREATED { Ok(()) } else { Err(client::refused(&what, &response)) }
    }

    /// Where the upload goes on. The registry may name another host, but never one without TLS where it has it itself.
    fn next_place(&self, what: &str, from: &Url, wanted: StatusCode, response: &Response) -> Result<Url> {
        if response.status() != wanted {
            return Err(client::refused(what, response));
        }
        let unusable = || Error::Unavailable {
            what: what.to_owned(),
            why: "the registry named no address that can be used for the upload".to_owned(),
        };
        let location =
            response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).ok_or_else(unusable)?;
        let place = from.join(location).map_err(|_invalid| unusable())?;
        let is_kept = place.scheme() == self.registry.base.scheme() || place.scheme() == "https";
        if is_kept { Ok(place) } else { Err(unusable()) }
    }

    /// Sends a request, and once more with authorization if that is what was missing.
    async fn ask(&self, what: &str, url: &Url, request: impl Fn() -> RequestBuilder) -> Result<Response> {
        let first = self.send_to_registry(what, url, request()).await?;
        if first.status() != StatusCode::UNAUTHORIZED {
            return Ok(first);
        }
        let challenge =
            Challenge::of(first.headers()).ok_or_else(|| Error::Unauthorized { what: what.to_owned() })?;
        drop(first);
        let authorization = self.authorize_for(&self.registry, &challenge, "pull,push").await?;
        *self.registry.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(authorization);
        self.send_to_registry(what, url, request()).await
    }

    async fn send_to_registry(&self, what: &str, url: &Url, request: RequestBuilder) -> Result<Response> {
        self.check(url, what)?;
        let is_own = url.origin() == self.registry.base.origin();
        let known = self.registry.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let request = match known.filter(|_| is_own) {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        };
        request.send().await.map_err(|error| client::failed(what, error, self.timeouts().idle))
    }
}
