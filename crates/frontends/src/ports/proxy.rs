//! One request to a server inside, and its answer.
//!
//! Bodies stream both ways as they come. The server inside is hostile: its head is bounded in bytes and lines, and has
//! to begin within a time; its body is passed on as it is framed, never gathered.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Version,
        header::{CONNECTION, UPGRADE},
    },
    response::Response,
};
use bytes::Bytes;
use engine::{Engine, Principal, SandboxRef, Target};
use hyper::{
    body::{Frame, Incoming, SizeHint},
    client::conn::http1::{self, SendRequest},
};
use sandbox::{Error, ErrorKind, Thing};
use tokio_util::sync::CancellationToken;

use super::{
    headers::{self, Way},
    page,
    pool::{Pool, Route},
    tie::{self, Tie},
};
use crate::{
    http::{Activity, Peer, Refusal, StreamLease, http_status},
    links::BaseUrl,
};

/// Most bytes of a head that a server inside may send, and as much of its body as is held at a time.
const MAX_BUFFER_BYTES: usize = 128 * 1024;
/// Most headers in an answer.
const MAX_HEADERS: usize = 200;
/// How long a server may be silent after the last byte of a request, before its answer begins. Long, because some work
/// for minutes before they answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);

/// Forwards requests to servers inside. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    engine: Engine,
    activity: Activity,
    stop: CancellationToken,
    pool: Pool,
    answer_within: Duration,
}

impl Proxy {
    /// `stop` ends what is open, so that a daemon can leave; `activity` counts streams that outlive their request.
    pub(crate) fn new(engine: Engine, activity: Activity, stop: CancellationToken) -> Self {
        Self { engine, activity, stop, pool: Pool::default(), answer_within: ANSWER_WITHIN }
    }

    /// Forwards a request to a port inside. Its URI is what the server there shall see. `prefix` is the path below
    /// which the server appears outside, and empty where it has a host name of its own.
    ///
    /// Answers below a prefix are shown in our own origin, so nothing in them may run: they get a policy that says so,
    /// and cookies pass in neither direction.
    pub(crate) async fn forward(
        &self,
        who: &Principal,
        sandbox: &SandboxRef,
        port: u16,
        prefix: &str,
        mut request: Request,
    ) -> Result<Response, Refusal> {
        let is_page = page::wants_page(request.headers());
        if request.method() == Method::CONNECT {
            return Err(Error::invalid("CONNECT is not forwarded")
                .with_hint("Open a byte stream with POST /v1/sandboxes/{sandbox}/connect.")
                .into());
        }
        if who.session.is_some() && !prefix.is_empty() {
            return Err(below_our_origin().into());
        }
        let lease = request.extensions().get::<StreamLease>().cloned();
        let base = request.extensions().get::<BaseUrl>();
        let is_tls = base.is_some_and(BaseUrl::is_tls);
        let way = Way { peer: peer_of(&request), is_tls, prefix, port };
        let upgrade = asked_upgrade(request.headers());
        let place = match (&upgrade, &lease) {
            (Some(_), Some(lease)) => lease.take()?,
            _ => None,
        };
        let outside = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let (request, sent) = prepared(request, &way, upgrade.as_ref());
        let server = ServerInside { who, sandbox, port, lease: lease.as_ref() };
        let answered = match &upgrade {
            // A connection that becomes something else is not kept.
            Some(_) => self.send_fresh(&server, request, &sent).await.map(|(response, _)| response),
            None => self.send(&server, request, &sent).await,
        };
        let response = match answered {
            Ok(response) => response,
            Err(Fault::NotReached(error)) if error.is_about(Thing::Port) => {
                return Ok(page::failure(StatusCode::BAD_GATEWAY, error, is_page));
            }
            Err(Fault::NotReached(error)) if is_page => {
                return Ok(page::failure(http_status(error.kind()), error, true));
            }
            Err(Fault::NotReached(error)) => return Err(error.into()),
            Err(Fault::NoAnswer(error)) => {
                return Ok(page::failure(StatusCode::BAD_GATEWAY, no_answer(port, sandbox, &error), is_page));
            }
            Err(Fault::Silent) => {
                return Ok(page::failure(StatusCode::GATEWAY_TIMEOUT, too_slow(port, sandbox), is_page));
            }
        };
        match (response.status(), outside) {
            (StatusCode::SWITCHING_PROTOCOLS, Some(outside)) => {
                let tie = Tie::stream(&self.stop, lease.as_ref(), self.activity.enter(), place);
                Ok(switched(response, outside, &way, tie))
            }
            (StatusCode::SWITCHING_PROTOCOLS, None) => {
                let error = bad_answer(port, sandbox, "it switched protocols, which nobody asked for");
                Ok(page::failure(StatusCode::BAD_GATEWAY, error, is_page))
            }
            _ => {
                let (mut parts, body) = response.into_parts();
                headers::outward(&mut parts.headers, &way);
                parts.headers.remove(UPGRADE);
                parts.version = Version::HTTP_11;
                Ok(Response::from_parts(parts, Body::new(body)))
            }
        }
    }

    /// Sends a request over a connection that was kept, or else over a new one, which is kept for the next.
    async fn send(
        &self,
        server: &ServerInside<'_>,
        mut request: Request,
        sent: &Sent,
    ) -> Result<hyper::Response<Incoming>, Fault> {
        let id = self.engine.may_connect(server.who, server.sandbox).await.map_err(Fault::NotReached)?;
        let route = Route::new(server.who, server.lease, id, server.port);
        if let Some(mut kept) = self.pool.take(&route) {
            let mut spare = again(&request);
            match self.in_time(kept.try_send_request(request), sent).await.ok_or(Fault::Silent)? {
                Ok(response) => {
                    self.pool.keep_when_free(route, kept);
                    return Ok(response);
                }
                // The server closed it meanwhile. What it cannot have acted on is sent again.
                Err(mut error) => match error.take_message().or_else(|| spare.take()) {
                    Some(unsent) => request = unsent,
                    None => return Err(Fault::NoAnswer(error.into_error())),
                },
            }
        }
        let (response, sender) = self.send_fresh(server, request, sent).await?;
        self.pool.keep_when_free(route, sender);
        Ok(response)
    }

    async fn send_fresh(
        &self,
        server: &ServerInside<'_>,
        request: Request,
        sent: &Sent,
    ) -> Result<(hyper::Response<Incoming>, SendRequest<Body>), Fault> {
        let inside = self.engine.connect(server.who, server.sandbox, Target::Tcp(server.port)).await;
        let inside = inside.map_err(Fault::NotReached)?;
        let exchange = async {
            let (mut sender, connection) = http1::Builder::new()
                .max_buf_size(MAX_BUFFER_BYTES)
                .max_headers(MAX_HEADERS)
                .handshake::<_, Body>(tie::io(inside))
                .await?;
            tokio::spawn(Tie::answer(&self.stop, server.lease).drive(connection.with_upgrades()));
            let response = sender.send_request(request).await?;
            Ok((response, sender))
        };
        self.in_time(exchange, sent).await.ok_or(Fault::Silent)?.map_err(Fault::NoAnswer)
    }

    /// Waits for an answer as long as the request is still being sent, and then for a bounded time.
    async fn in_time<T>(&self, exchange: impl Future<Output = T>, sent: &Sent) -> Option<T> {
        tokio::pin!(exchange);
        loop {
            match tokio::time::timeout(self.answer_within, &mut exchange).await {
                Ok(result) => return Some(result),
                Err(_elapsed) if sent.moved() => {}
                Err(_elapsed) => return None,
            }
        }
    }
}

/// Servers inside are hostile, and below a path they answer in our own origin: a browser that is signed in to the
/// dashboard has no business there.
fn below_our_origin() -> Error {
    Error::new(ErrorKind::Denied, "a session of the dashboard opens no port below a path")
        .with_hint("Open the port by its own address, which POST /v1/sandboxes/{sandbox}/ports returns.")
}

/// The target of a request, and its asker.
struct ServerInside<'a> {
    who: &'a Principal,
    sandbox: &'a SandboxRef,
    port: u16,
    lease: Option<&'a StreamLease>,
}

/// Why there is no answer.
enum Fault {
    NotReached(Error),
    NoAnswer(hyper::Error),
    Silent,
}

/// The same request once more, where it changes nothing and has no body.
fn again(request: &Request) -> Option<Request> {
    let is_repeatable = request.method().is_safe() && request.body().size_hint().exact() == Some(0);
    is_repeatable.then(|| {
        let mut same = Request::new(Body::empty());
        *same.method_mut() = request.method().clone();
        *same.uri_mut() = request.uri().clone();
        *same.headers_mut() = request.headers().clone();
        same
    })
}

/// The protocol that the caller wants to switch to.
fn asked_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let is_asked =
        values.flat_map(|text| text.split(',')).any(|name| name.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| is_asked).cloned()
}

fn peer_of(request: &Request) -> Option<IpAddr> {
    match request.extensions().get::<Peer>() {
        Some(Peer::Tcp(address)) => Some(address.ip().to_canonical()),
        Some(Peer::Unix { .. }) | None => None,
    }
}

/// The request as the server inside gets it.
fn prepared(request: Request, way: &Way<'_>, upgrade: Option<&HeaderValue>) -> (Request, Sent) {
    let (parts, body) = request.into_parts();
    let sent = Sent::default();
    let watched = Body::new(WatchedBody { inner: body, sent: sent.clone() });
    let mut inside = Request::new(watched);
    *inside.method_mut() = parts.method;
    *inside.uri_mut() = headers::target_inside(&parts.uri);
    *inside.headers_mut() = parts.headers;
    headers::inward(inside.headers_mut(), way, upgrade);
    (inside, sent)
}

/// Both sides agreed to another protocol: from here on, bytes.
fn switched(
    mut response: hyper::Response<Incoming>,
    outside: hyper::upgrade::OnUpgrade,
    way: &Way<'_>,
    tie: Tie,
) -> Response {
    let inside = hyper::upgrade::on(&mut response);
    tokio::spawn(tie::join_upgraded(outside, inside, tie));
    let (mut parts, _no_body) = response.into_parts();
    headers::outward(&mut parts.headers, way);
    parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = parts.headers;
    answer
}

fn no_answer(port: u16, sandbox: &SandboxRef, error: &hyper::Error) -> Error {
    let why = match error {
        error if error.is_parse_too_large() => "its head is too long",
        error if error.is_parse() => "what it sent is not HTTP",
        error if error.is_incomplete_message() => "it closed the connection before it answered",
        _ => "the connection broke",
    };
    tracing::debug!("a server inside did not answer: {error:?}");
    bad_answer(port, sandbox, why)
}

fn bad_answer(port: u16, sandbox: &SandboxRef, why: &str) -> Error {
    let message = format!("the server on port {port} in sandbox {sandbox} gave no valid answer: {why}");
    Error::new(ErrorKind::WrongState, message)
        .about(Thing::Port, port.to_string())
        .with_hint("Check that it speaks plain HTTP/1.1, and look at its own output.")
}

fn too_slow(port: u16, sandbox: &SandboxRef) -> Error {
    let message = format!(
        "the server on port {port} in sandbox {sandbox} did not answer within {} seconds",
        ANSWER_WITHIN.as_secs()
    );
    Error::new(ErrorKind::TimedOut, message)
        .about(Thing::Port, port.to_string())
        .with_hint("Look at its own output, and restart it if it hangs.")
}

/// Whether any byte of a request moved since the last look.
#[derive(Debug, Clone, Default)]
struct Sent(Arc<AtomicBool>);

impl Sent {
    fn moved(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A request's body that notes its progress.
struct WatchedBody {
    inner: Body,
    sent: Sent,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if polled.is_ready() {
            self.sent.0.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
