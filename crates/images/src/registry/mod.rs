//! Registries: the OCI distribution protocol, mostly its pulling half.
//!
//! A session asks for one image, at the mirrors of its registry and then at the registry itself, with one set of
//! credentials. Everything an answer can be is bounded: its length, its silence, how often it redirects and how often
//! it is asked for again.

mod challenge;
mod client;
mod credentials;
mod download;
mod guard;
mod token;
mod upload;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use downloads::Guard;
use futures_util::{FutureExt as _, future::BoxFuture};
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderValue, RANGE},
};

pub(crate) use self::download::{BlobDownload, Held};
use self::{challenge::Challenge, credentials::Secret};
use crate::{
    digest::Digest,
    error::{Error, Result},
    images::PullOptions,
    options::{Options, Reach, Retry, Timeouts},
    reference::Reference,
};

/// Where the registry that calls itself `docker.io` really is.
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";

const MANIFEST_TYPES: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// Reaches all registries.
#[derive(Debug)]
pub(crate) struct Registries {
    client: Client,
    /// For callers who must not reach this host's own network.
    guarded_client: Client,
    guard: Arc<Guard>,
    options: Arc<Options>,
}

impl Registries {
    pub(crate) fn new(options: Arc<Options>) -> Result<Self> {
        let guard = Arc::new(guard::guard(&options)?);
        let client = client::build(&options, None)?;
        let guarded_client = client::build(&options, Some(&guard))?;
        Ok(Self { client, guarded_client, guard, options })
    }

    /// Begins to ask for an image. `credentials` are for its registry alone and go before configured ones.
    pub(crate) fn session(&self, reference: &Reference, asked: &PullOptions) -> Result<Session> {
        let (client, guard, uses_login) = match asked.reach {
            Reach::Everywhere => (&self.client, None, true),
            Reach::Public => {
                self.options.check_allowed(reference.registry())?;
                let uses_login = self.options.lends_login_for(reference.registry());
                (&self.guarded_client, Some(Arc::clone(&self.guard)), uses_login)
            }
        };
        let mirrors = self.options.mirrors.iter().filter(|mirror| mirror.registry == reference.registry());
        Ok(Session {
            client: client.clone(),
            guard,
            options: Arc::clone(&self.options),
            repository: reference.repository().to_owned(),
            mirrors: mirrors.map(|mirror| Endpoint::mirror(&mirror.url)).collect::<Result<_>>()?,
            registry: Endpoint::registry(reference.registry(), &self.options, asked)?,
            uses_login,
        })
    }
}

/// A registry or a mirror, and its name in a configuration of credentials.
#[derive(Debug)]
struct Endpoint {
    base: Url,
    name: String,
    secret: Option<Secret>,
    /// The header that it accepted last.
    authorization: Mutex<Option<HeaderValue>>,
}

impl Endpoint {
    fn mirror(url: &str) -> Result<Self> {
        let base = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let base = base.ok_or_else(|| Error::invalid(format!("{url:?} is not an address of a mirror")))?;
        let host = base.host_str().unwrap_or_default();
        let name = base.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Ok(Self { base, name, secret: None, authorization: Mutex::default() })
    }

    fn registry(registry: &str, options: &Options, asked: &PullOptions) -> Result<Self> {
        let is_insecure = asked.insecure
            || options.insecure.iter().any(|insecure| insecure == registry)
            || is_loopback(registry);
        let scheme = if is_insecure { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{}", docker_hub_or(registry)))
            .map_err(|error| Error::invalid(format!("{registry:?} is not a registry: {error}")))?;
        let secret = asked.credentials.clone().map(Secret::Password);
        Ok(Self { base, name: registry.to_owned(), secret, authorization: Mutex::default() })
    }

    fn url(&self, repository: &str, kind: &str, which: &str) -> Result<Url> {
        let base = self.base.as_str().trim_end_matches('/');
        Url::parse(&format!("{base}/v2/{repository}/{kind}/{which}"))
            .map_err(|error| Error::invalid(format!("{repository:?} is not a repository: {error}")))
    }
}

fn docker_hub_or(registry: &str) -> &str {
    if registry == "docker.io" { DOCKER_HUB_HOST } else { registry }
}

fn is_loopback(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _port)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A manifest or an index, as it came.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) digest: Digest,
    pub(crate) bytes: Vec<u8>,
}

/// The requests for one image.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    guard: Option<Arc<Guard>>,
    options: Arc<Options>,
    repository: String,
    mirrors: Vec<Endpoint>,
    registry: Endpoint,
    /// Whether the operator's own credentials ([`Options::auth`]) may be shown to the registry.
    uses_login: bool,
}

/// Called before a wait, with its length and its reason.
pub(crate) type OnRetry<'a> = &'a (dyn Fn(Duration, &Error) + Send + Sync);

impl Session {
    /// Refuses a URL that this pull may not reach. The client itself checks where redirects lead.
    fn check(&self, url: &Url, what: &str) -> Result<()> {
        let checked = self.guard.as_ref().map_or(Ok(()), |guard| guard.check(url));
        checked.map_err(|refused| client::denied(what, &refused))
    }

    fn timeouts(&self) -> &Timeouts {
        &self.options.timeouts
    }

    /// The manifest or index that `wanted` (a tag or a digest) names; a digest is verified.
    pub(crate) async fn manifest(&self, wanted: &str, on_retry: OnRetry<'_>) -> Result<Document> {
        let document = self.document("manifests", wanted, on_retry).await?;
        if let Ok(digest) = wanted.parse::<Digest>() {
            digest.expect(&document.digest, format!("the manifest of {}", self.repository))?;
        }
        Ok(document)
    }

    /// A small blob: an image's configuration.
    pub(crate) async fn config(&self, digest: &Digest, size: u64, on_retry: OnRetry<'_>) -> Result<Document> {
        let document = self.document("blobs", digest.as_str(), on_retry).await?;
        let what = || format!("the configuration of {}", self.repository);
        if document.bytes.len() as u64 != size {
            return Err(Error::corrupt(what(), format!("{size} bytes"), document.bytes.len().to_string()));
        }
        digest.expect(&document.digest, what())?;
        Ok(document)
    }

    async fn document(&self, kind: &str, which: &str, on_retry: OnRetry<'_>) -> Result<Document> {
        self.at_each_endpoint(|endpoint| self.document_at(endpoint, kind, which, on_retry).boxed()).await
    }

    /// Asks again after transient failures, with longer and longer waits.
    async fn document_at(
        &self,
        endpoint: &Endpoint,
        kind: &str,
        which: &str,
        on_retry: OnRetry<'_>,
    ) -> Result<Document> {
        let mut attempt = 1;
        loop {
            let error = match self.document_once(endpoint, kind, which).await {
                Ok(document) => return Ok(document),
                Err(error) => error,
            };
            let Some(wait) = wait_after(&error, attempt, &self.options.retry) else { return Err(error) };
            on_retry(wait, &error);
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    async fn document_once(&self, endpoint: &Endpoint, kind: &str, which: &str) -> Result<Document> {
        let (most, limit) = (self.options.limits.max_document_bytes, self.timeouts().request);
        let what = self.describe(endpoint, kind, which);
        let whole = async {
            let response = self.get(endpoint, kind, which, None).await?;
            if response.status() != StatusCode::OK {
                return Err(client::refused(&what, &response));
            }
            client::body(&what, response, most, self.timeouts().idle).await
        };
        let bytes = tokio::time::timeout(limit, whole)
            .await
            .map_err(|_elapsed| Error::TimedOut { what: what.clone(), after: limit })??;
        Ok(Document { digest: Digest::of(&bytes), bytes })
    }

    /// Asks the mirrors first, and the registry itself last.
    async fn at_each_endpoint<'a, T>(
        &'a self,
        ask: impl Fn(&'a Endpoint) -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        for mirror in &self.mirrors {
            match ask(mirror).await {
                Err(error @ Error::NoSpace { .. }) => return Err(error),
                Err(error) => tracing::debug!(mirror = %mirror.base, %error, "mirror did not help"),
                found => return found,
            }
        }
        ask(&self.registry).await
    }

    fn describe(&self, endpoint: &Endpoint, kind: &str, which: &str) -> String {
        let kind = if kind == "manifests" { "manifest" } else { "blob" };
        format!("{kind} {which} of {}/{}", endpoint.name, self.repository)
    }

    /// Asks once, and once more with authorization when that is what is missing.
    async fn get(&self, endpoint: &Endpoint, kind: &str, which: &str, from: Option<u64>) -> Result<Response> {
        let what = self.describe(endpoint, kind, which);
        let first = self.send(endpoint, kind, which, from, &what).await?;
        if first.status() != StatusCode::UNAUTHORIZED {
            return Ok(first);
        }
        let challenge = Challenge::of(first.headers()).ok_or(Error::Unauthorized { what: what.clone() })?;
        drop(first);
        let authorization = self.authorize(endpoint, &challenge).await?;
        *endpoint.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(authorization);
        self.send(endpoint, kind, which, from, &what).await
    }

    async fn send(
        &self,
        endpoint: &Endpoint,
        kind: &str,
        which: &str,
        from: Option<u64>,
        what: &str,
    ) -> Result<Response> {
        let url = endpoint.url(&self.repository, kind, which)?;
        self.check(&url, what)?;
        let mut request = self.client.get(url);
        if kind == "manifests" {
            request = request.header(ACCEPT, MANIFEST_TYPES);
        }
        if let Some(from) = from {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        let known = endpoint.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(authorization) = known {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.send().await.map_err(|error| client::failed(what, error, self.timeouts().idle))
    }
}

/// How long to wait after a failure; `None` when there is no use in trying again.
fn wait_after(error: &Error, attempt: u32, retry: &Retry) -> Option<Duration> {
    if attempt >= retry.attempts || !error.is_retryable() {
        return None;
    }
    let doubled = retry.first_wait.saturating_mul(1 << (attempt - 1).min(16)).min(retry.longest_wait);
    match error {
        Error::RateLimited { retry_after: Some(wait), .. } => {
            (*wait <= retry.longest_wait).then(|| doubled.max(*wait))
        }
        _ => Some(doubled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback() {
        for yes in ["localhost", "localhost:5000", "127.0.0.1", "127.1.2.3:80", "[::1]:5000"] {
            assert!(is_loopback(yes), "{yes}");
        }
        for no in ["localhost.example", "example.org:5000", "10.0.0.1"] {
            assert!(!is_loopback(no), "{no}");
        }
    }

    #[test]
    fn waits_double_up_to_a_bound_and_follow_the_registry() {
        let retry =
            Retry { attempts: 5, first_wait: Duration::from_secs(1), longest_wait: Duration::from_secs(5) };
        let down = Error::Unavailable { what: String::new(), why: String::new() };
        let waits: Vec<_> = (1..=5).map(|attempt| wait_after(&down, attempt, &retry)).collect();
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(waits, [seconds(1), seconds(2), seconds(4), seconds(5), None]);

        let limited = |seconds| Error::RateLimited {
            what: String::new(),
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(wait_after(&limited(3), 1, &retry), seconds(3));
        assert_eq!(wait_after(&limited(3600), 1, &retry), None);
        assert_eq!(wait_after(&Error::NotFound { what: String::new() }, 1, &retry), None);
    }
}
