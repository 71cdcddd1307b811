//! Requests to indexes: guarded, bounded in time, with connections that are used again.

mod connect;
mod grants;
mod guard;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{
        ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
        IF_NONE_MATCH, LOCATION, PROXY_AUTHORIZATION, USER_AGENT,
    },
};
use hyper_util::rt::TokioIo;
use tokio::time::{self, timeout};
use url::Url;

use self::{
    connect::{Tls, basic, connect, proxy_for},
    grants::Grants,
    guard::Guard,
};
use crate::{
    config::{GatewayConfig, Manager, Patience, Proxies, bare, shown},
    error::{Failure, FailureKind, GatewayError},
    stats::{self, Counters},
};

const MAX_REDIRECTS: usize = 5;

/// Idle connections that are kept, in all and how long.
const MAX_IDLE: usize = 8;
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Largest head of an answer, in bytes, and most headers in it.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

/// Indexes that are remembered as being away.
const MAX_AWAY: usize = 64;

const AGENT: &str = concat!("warren-gateway/", env!("CARGO_PKG_VERSION"));

type Sender = SendRequest<Empty<Bytes>>;

/// Which connections are alike: scheme, host and port of the far end, the proxy on the way, and whether the address was allowed
/// to be anywhere.
type Way = (String, Option<String>, bool);

#[derive(Debug)]
pub(crate) struct Upstream {
    guard: Guard,
    proxies: Proxies,
    apt_proxy: Option<Url>,
    grants: Grants,
    patience: Patience,
    tls: Tls,
    idle: Mutex<Vec<Idle>>,
    away: Mutex<HashMap<String, Instant>>,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Idle {
    way: Way,
    sender: Sender,
    since: Instant,
}

/// One question to an index.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) url: Url,
    pub(crate) accept: &'static str,
    /// Whether the body may come compressed. Files must not.
    pub(crate) may_compress: bool,
    pub(crate) manager: Manager,
    /// Only if it changed since: the validators of what we have.
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
}

/// An answer, redirects followed.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Where it came from in the end.
    pub(crate) url: Url,
    body: Incoming,
    deadline: time::Instant,
    silence: Duration,
    counters: Arc<Counters>,
    /// Goes back among the idle ones when the body has ended.
    connection: Option<(Way, Sender)>,
}

impl Upstream {
    pub(crate) fn new(config: &GatewayConfig, counters: Arc<Counters>) -> Result<Self, GatewayError> {
        let mut guard = Guard::default();
        let mut grants = Grants::default();
        let indexes = [(Manager::Pip, &config.pip_index), (Manager::Npm, &config.npm_registry)];
        let sources = config.apt_sources.iter().map(|url| (Manager::Apt, url));
        for (manager, url) in indexes.into_iter().chain(sources) {
            guard.trust(manager, url);
            grants.add(manager, url, &config.credentials);
        }
        for name in &config.also_reach {
            guard.trust_named(name);
        }
        for proxy in [&config.apt_proxy, &config.proxies.http, &config.proxies.https].into_iter().flatten() {
            crate::config::base(proxy)?;
        }
        Ok(Self {
            guard,
            proxies: config.proxies.clone(),
            apt_proxy: config.apt_proxy.clone(),
            grants,
            patience: config.patience,
            tls: Tls::default(),
            idle: Mutex::new(Vec::new()),
            away: Mutex::new(HashMap::new()),
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
        self.guard.is_trusted(manager, url)
    }

    /// Asks, and follows redirects. Any status but a redirect is an answer.
    pub(crate) async fn ask(&self, ask: &Ask, whole: Duration) -> Result<Answer, Failure> {
        let deadline = time::Instant::now() + whole;
        let outcome = time::timeout_at(deadline, self.ask_until(ask, deadline))
            .await
            .unwrap_or_else(|_elapsed| Err(timed_out(format!("no answer from {}", shown(&ask.url)))));
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
            let answer = self.ask_once(ask, &url, deadline).await?;
            let place = match answer.status.as_u16() {
                301 | 302 | 303 | 307 | 308 => answer.headers.get(LOCATION),
                _ => return Ok(answer),
            };
            let place = place.and_then(|place| place.to_str().ok()).unwrap_or_default();
            let next = url
                .join(place)
                .map_err(|error| garbled(format!("{} redirects to no address: {error}", shown(&url))))?;
            if url.scheme() == "https"
                && next.scheme() == "http"
                && !self.guard.is_trusted(ask.manager, &next)
            {
                let detail = format!("{} redirects to {} without TLS", shown(&url), shown(&next));
                return Err(Failure::new(FailureKind::Forbidden, detail));
            }
            url = bare(&next);
        }
        Err(garbled(format!("{} redirects more than {MAX_REDIRECTS} times", shown(&ask.url))))
    }

    async fn ask_once(&self, ask: &Ask, url: &Url, deadline: time::Instant) -> Result<Answer, Failure> {
        if let Some(reason) = self.guard.refusal(ask.manager, url) {
            return Err(Failure::new(
                FailureKind::Forbidden,
                format!("{} is not asked: {reason}", shown(url)),
            ));
        }
        let proxy = match (ask.manager, &self.apt_proxy) {
            (Manager::Apt, Some(proxy)) => Some(proxy),
            _ => proxy_for(&self.proxies, url),
        };
        let is_trusted = self.guard.is_trusted(ask.manager, url);
        let way = (origin(url), proxy.map(|proxy| proxy.to_string()), is_trusted);
        // An idle connection may have been closed by the far end just now: then, and only then, a second try on a new one.
        while let Some(sender) = self.take_idle(&way) {
            match self.send(ask, url, proxy, sender).await {
                Ok((sender, response)) => return Ok(self.answer(url, response, deadline, way, sender)),
                Err(failure) if failure.kind == FailureKind::Unreachable => {}
                Err(failure) => return Err(failure),
            }
        }
        let sender = self.open(url, proxy, is_trusted).await?;
        let (sender, response) = self.send(ask, url, proxy, sender).await?;
        Ok(self.answer(url, response, deadline, way, sender))
    }

    async fn open(&self, url: &Url, proxy: Option<&Url>, is_trusted: bool) -> Result<Sender, Failure> {
        let connecting = connect(&self.tls, url, proxy, is_trusted);
        let stream = timeout(self.patience.connect, connecting)
            .await
            .map_err(|_elapsed| timed_out(format!("no connection to {}", shown(url))))??;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(format!("{}: {error}", shown(url))))?;
        // Ends with the sender or with the stream; what failed is told to whoever waits for an answer.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    async fn send(
        &self,
        ask: &Ask,
        url: &Url,
        proxy: Option<&Url>,
        mut sender: Sender,
    ) -> Result<(Sender, Response<Incoming>), Failure> {
        let request = self.request(ask, url, proxy)?;
        stats::add(&self.counters.upstream_requests, 1);
        let sending = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        let response = timeout(self.patience.answer, sending)
            .await
            .map_err(|_elapsed| timed_out(format!("no answer from {}", shown(url))))?
            .map_err(|error| match error.is_parse() {
                true => garbled(format!("{}: {error}", shown(url))),
                false => unreachable(format!("{}: {error}", shown(url))),
            })?;
        Ok((sender, response))
    }

    fn request(&self, ask: &Ask, url: &Url, proxy: Option<&Url>) -> Result<Request<Empty<Bytes>>, Failure> {
        let is_relayed = proxy.is_some() && url.scheme() == "http";
        let target = if is_relayed { url.as_str() } else { &url[url::Position::BeforePath..] };
        let uri: Uri = target.parse().map_err(|error| garbled(format!("{}: {error}", shown(url))))?;
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        let mut put = |name: HeaderName, value: &str| {
            // A value that cannot be a header is left out: at worst the index answers in full or refuses.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        put(HOST, &url[url::Position::BeforeHost..url::Position::AfterPort]);
        put(USER_AGENT, AGENT);
        put(ACCEPT, ask.accept);
        put(ACCEPT_ENCODING, if ask.may_compress { "gzip" } else { "identity" });
        if let Some(etag) = &ask.etag {
            put(IF_NONE_MATCH, etag);
        }
        if let Some(last_modified) = &ask.last_modified {
            put(IF_MODIFIED_SINCE, last_modified);
        }
        if let Some(authorization) = self.grants.authorization(ask.manager, url) {
            put(AUTHORIZATION, authorization);
        }
        if let Some(authorization) = proxy.filter(|_| is_relayed).and_then(basic) {
            put(PROXY_AUTHORIZATION, &authorization);
        }
        Ok(request)
    }

    fn answer(
        &self,
        url: &Url,
        response: Response<Incoming>,
        deadline: time::Instant,
        way: Way,
        sender: Sender,
    ) -> Answer {
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            url: url.clone(),
            body,
            deadline,
            silence: self.patience.silence,
            counters: Arc::clone(&self.counters),
            connection: Some((way, sender)),
        }
    }

    fn take_idle(&self, way: &Way) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|one| one.since.elapsed() < IDLE_FOR && !one.sender.is_closed());
        let found = idle.iter().position(|one| one.way == *way)?;
        Some(idle.swap_remove(found).sender)
    }

    /// Takes an answer that was read to its end; its connection can be used again.
    pub(crate) fn done(&self, answer: Answer) {
        let Some((way, sender)) = answer.connection else { return };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|one| one.since.elapsed() < IDLE_FOR && !one.sender.is_closed());
        if idle.len() < MAX_IDLE && !sender.is_closed() {
            idle.push(Idle { way, sender, since: Instant::now() });
        }
    }
}

impl Answer {
    pub(crate) fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The next piece of the body.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let until = self.deadline.min(time::Instant::now() + self.silence);
            let frame = time::timeout_at(until, self.body.frame())
                .await
                .map_err(|_elapsed| timed_out(format!("{} stopped in the middle", shown(&self.url))))?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(unreachable(format!("{} broke off: {error}", shown(&self.url))));
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        stats::add(&self.counters.bytes_fetched, data.len() as u64);
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

fn origin(url: &Url) -> String {
    url[..url::Position::BeforePath].to_owned()
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
