//! Requests to indexes: guarded and bounded in time.

mod clients;
mod grants;
mod proxy;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use downloads::{Guard, Refused};
use hyper::{
    StatusCode,
    header::{
        ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
        LOCATION,
    },
};
use reqwest::{Method, Request, Response};
use tokio::time::{self, timeout};
use url::Url;

use self::{clients::Clients, grants::Grants};
use crate::{
    config::{GatewayConfig, Manager, Patience, bare, shown},
    error::{Failure, FailureKind, GatewayError},
    stats::Counters,
};

const MAX_REDIRECTS: usize = 5;

/// Indexes that are remembered as being away.
const MAX_AWAY: usize = 64;

#[derive(Debug)]
pub(crate) struct Upstream {
    /// By manager: the indexes that are configured for it, and what the operator added for all.
    guards: [Guard; Manager::ALL.len()],
    grants: Grants,
    clients: Clients,
    patience: Patience,
    away: Mutex<HashMap<String, Instant>>,
    counters: Arc<Counters>,
}

/// One question to an index.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) url: Url,
    pub(crate) accept: &'static str,
    /// Whether the body may come compressed. Files must not.
    pub(crate) may_compress: bool,
    pub(crate) manager: Manager,
    /// The validators of the copy that we have: the index is to answer only if it changed.
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
}

/// An answer, redirects followed.
#[derive(Debug)]
pub(crate) struct Answer {
    response: Response,
    /// Where it came from in the end.
    pub(crate) url: Url,
    deadline: time::Instant,
    silence: Duration,
    counters: Arc<Counters>,
}

impl Upstream {
    pub(crate) fn new(config: &GatewayConfig, counters: Arc<Counters>) -> Result<Self, GatewayError> {
        let mut guards = Manager::ALL.map(|_| Guard::default());
        let mut grants = Grants::default();
        let indexes = [(Manager::Pip, &config.pip_index), (Manager::Npm, &config.npm_registry)];
        let sources = config.apt_sources.iter().map(|url| (Manager::Apt, url));
        for (manager, url) in indexes.into_iter().chain(sources) {
            guards[manager as usize].allow(url.host_str().unwrap_or_default(), url.port_or_known_default());
            grants.add(manager, url, &config.credentials);
        }
        for name in &config.also_reach {
            let (host, port) = host_and_port(name);
            guards.iter_mut().for_each(|guard| guard.allow(host, port));
        }
        Ok(Self {
            guards,
            grants,
            clients: Clients::new(config)?,
            patience: config.patience,
            away: Mutex::default(),
            counters,
        })
    }

    pub(crate) fn patience(&self) -> Patience {
        self.patience
    }

    /// Whether the index did not answer a moment ago.
    pub(crate) fn is_away(&self, url: &Url) -> bool {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.get(&origin(url)).is_some_and(|since| since.elapsed() < self.patience.away)
    }

    /// Whether the operator configured this very host and port.
    pub(crate) fn is_trusted(&self, manager: Manager, url: &Url) -> bool {
        self.guards[manager as usize].is_named(url)
    }

    /// Asks, and follows redirects. Any status but a redirect is an answer.
    pub(crate) async fn ask(&self, ask: &Ask, whole: Duration) -> Result<Answer, Failure> {
        let deadline = time::Instant::now() + whole;
        let outcome = time::timeout_at(deadline, self.ask_until(ask, deadline))
            .await
            .unwrap_or_else(|_elapsed| Err(no_answer(&ask.url)));
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        match &outcome {
            Err(failure) if failure.is_absence() => {
                away.retain(|_, since| since.elapsed() < self.patience.away);
                if away.len() < MAX_AWAY {
                    away.insert(origin(&ask.url), Instant::now());
                }
            }
            _ => {
                away.remove(&origin(&ask.url));
            }
        }
        drop(away);
        outcome
    }

    async fn ask_until(&self, ask: &Ask, deadline: time::Instant) -> Result<Answer, Failure> {
        let mut url = bare(&ask.url);
        for _ in 0..=MAX_REDIRECTS {
            let response = self.ask_once(ask, &url).await?;
            let location = match response.status().as_u16() {
                301 | 302 | 303 | 307 | 308 => response.headers().get(LOCATION),
                _ => {
                    let (silence, counters) = (self.patience.silence, Arc::clone(&self.counters));
                    return Ok(Answer { response, url, deadline, silence, counters });
                }
            };
            let location = location.and_then(|location| location.to_str().ok()).unwrap_or_default();
            let next = url
                .join(location)
                .map_err(|error| garbled(format!("{} redirects to no address: {error}", shown(&url))))?;
            if url.scheme() == "https" && next.scheme() == "http" && !self.is_trusted(ask.manager, &next) {
                let detail = format!("{} redirects to {} without TLS", shown(&url), shown(&next));
                return Err(Failure::new(FailureKind::Forbidden, detail));
            }
            url = bare(&next);
        }
        Err(garbled(format!("{} redirects more than {MAX_REDIRECTS} times", shown(&ask.url))))
    }

    async fn ask_once(&self, ask: &Ask, url: &Url) -> Result<Response, Failure> {
        let refused = |refused| forbidden(url, &refused);
        self.guards[ask.manager as usize].check(url).map_err(refused)?;
        let is_trusted = self.is_trusted(ask.manager, url);
        let client = self.clients.choose(ask.manager, url, is_trusted).await.map_err(refused)?;
        let mut is_repeated = false;
        loop {
            self.counters.count(|stats| stats.upstream_requests += 1);
            let sent = timeout(self.patience.answer, client.execute(self.request(ask, url))).await;
            match sent.map_err(|_elapsed| no_answer(url))? {
                Ok(response) => return Ok(response),
                // An idle connection may have been closed by the far end just now.
                Err(error) if !is_repeated && is_closed(&error) => is_repeated = true,
                Err(error) => return Err(failed(url, error)),
            }
        }
    }

    fn request(&self, ask: &Ask, url: &Url) -> Request {
        let mut request = Request::new(Method::GET, url.clone());
        let encoding = if ask.may_compress { "gzip" } else { "identity" };
        let headers = [
            (ACCEPT, Some(ask.accept)),
            (ACCEPT_ENCODING, Some(encoding)),
            (IF_NONE_MATCH, ask.etag.as_deref()),
            (IF_MODIFIED_SINCE, ask.last_modified.as_deref()),
            (AUTHORIZATION, self.grants.authorization(ask.manager, url)),
        ];
        for (name, value) in headers {
            // A value that cannot be a header is left out: at worst the index answers in full or refuses.
            if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
                request.headers_mut().insert(name, value);
            }
        }
        request
    }
}

impl Answer {
    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(crate) fn header(&self, name: HeaderName) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// The next piece of the body.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let until = self.deadline.min(time::Instant::now() + self.silence);
        let chunk = time::timeout_at(until, self.response.chunk())
            .await
            .map_err(|_elapsed| timed_out(format!("{} stopped in the middle", shown(&self.url))))?
            .map_err(|error| {
                unreachable(format!("{} broke off: {}", shown(&self.url), downloads::reason(error)))
            })?;
        self.counters
            .count(|stats| stats.bytes_fetched += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64));
        Ok(chunk)
    }
}

/// `name` or `name:port`; an IPv6 address stands in brackets.
fn host_and_port(text: &str) -> (&str, Option<u16>) {
    let split = text.rsplit_once(':').and_then(|(host, port)| Some((host, Some(port.parse().ok()?))));
    split.unwrap_or((text, None))
}

fn origin(url: &Url) -> String {
    url[..url::Position::BeforePath].to_owned()
}

/// Whether the connection ended before an answer began.
fn is_closed(error: &reqwest::Error) -> bool {
    !error.is_connect()
        && downloads::cause::<hyper::Error>(error)
            .is_some_and(|error| error.is_incomplete_message() || error.is_canceled() || error.is_closed())
}

fn failed(url: &Url, error: reqwest::Error) -> Failure {
    if let Some(refused) = downloads::cause::<Refused>(&error) {
        return forbidden(url, refused);
    }
    if error.is_timeout() {
        return timed_out(format!("no connection to {}", shown(url)));
    }
    let is_garbled = downloads::cause::<hyper::Error>(&error).is_some_and(hyper::Error::is_parse);
    let detail = format!("{}: {}", shown(url), downloads::reason(error));
    if is_garbled { garbled(detail) } else { unreachable(detail) }
}

fn forbidden(url: &Url, refused: &Refused) -> Failure {
    Failure::new(FailureKind::Forbidden, format!("{} is not asked: {refused}", shown(url)))
}

fn no_answer(url: &Url) -> Failure {
    timed_out(format!("no answer from {}", shown(url)))
}

fn unreachable(detail: String) -> Failure {
    Failure::new(FailureKind::Unreachable, detail)
}

fn timed_out(detail: String) -> Failure {
    Failure::new(FailureKind::TimedOut, detail)
}

fn garbled(detail: String) -> Failure {
    Failure::new(FailureKind::Garbled, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_with_and_without_a_port() {
        for (text, host, port) in [
            ("files.corp.internal", "files.corp.internal", None),
            ("10.0.0.1:8080", "10.0.0.1", Some(8080)),
            ("[::1]:81", "[::1]", Some(81)),
            ("[::1]", "[::1]", None),
        ] {
            assert_eq!(host_and_port(text), (host, port), "{text}");
        }
    }
}
