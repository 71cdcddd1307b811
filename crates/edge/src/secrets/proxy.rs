//! HTTP between a client inside and a server with secrets, request by request.

use std::{
    convert::Infallible,
    io,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, Response, StatusCode, Uri, Version,
    body::{Body as _, Incoming},
    client::conn::{http1, http2},
    header::{self, HeaderMap, HeaderValue},
    http::request::Parts,
    service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use sandbox::network::{DnsName, NetworkEventKind};

use super::{
    MAX_BODY, Secrets,
    intercept::{Inside, Outside},
    put_in::{Filler, Refusal},
    scrubbed::{Scrubbed, carry},
    tasks::Tasks,
};
use crate::{
    names::http::{MAX_HEAD, is_websocket, name_in, page, reader, strip},
    tcp::connection::Story,
};

/// Requests of one HTTP/2 connection at the same time.
const MAX_STREAMS: u32 = 100;
/// The bytes that a peer may send ahead of its reader, in one stream and in a connection.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// The bytes that may wait for a slow reader of one stream.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// Largest headers of HTTP/2, as they count there.
const MAX_HEADER_LIST: u32 = 64 * 1024;

type RequestBody = Either<Incoming, Full<Bytes>>;
type ResponseBody = Either<Scrubbed, Full<Bytes>>;

/// A connection that is about to be served.
pub(crate) struct Connection {
    pub(crate) story: Story,
    pub(crate) host: DnsName,
    pub(crate) secrets: Arc<Secrets>,
}

/// The server's end.
enum Server {
    Http1(tokio::sync::Mutex<http1::SendRequest<RequestBody>>),
    Http2(http2::SendRequest<RequestBody>),
}

struct Proxy {
    story: Story,
    host: DnsName,
    secrets: Arc<Secrets>,
    server: Server,
    /// Which secrets were put in, and told so.
    told: Vec<AtomicBool>,
    /// Both ends of a connection that stops being HTTP.
    upgrade: Mutex<Option<(OnUpgrade, OnUpgrade)>>,
}

/// A request that is answered here. Without words for the log it is no decision, only bad luck.
struct Refused {
    status: StatusCode,
    words: String,
    denied: Option<String>,
}

impl Connection {
    pub(crate) async fn serve_http1(self, inside: Inside, outside: Outside) -> io::Result<()> {
        let (server, to_server) = http1::Builder::new()
            .preserve_header_case(true)
            .max_buf_size(MAX_HEAD)
            .handshake(TokioIo::new(outside))
            .await
            .map_err(io::Error::other)?;
        let proxy = self.proxy(Server::Http1(tokio::sync::Mutex::new(server)));
        let answering = Arc::clone(&proxy);
        let service = service_fn(move |request| Arc::clone(&answering).answer(request));
        let from_client = reader().serve_connection(TokioIo::new(inside), service).with_upgrades();
        let (mut from_client, mut to_server) = (pin!(from_client), pin!(to_server.with_upgrades()));
        let mut has_server = true;
        let ended = loop {
            tokio::select! {
                ended = &mut from_client => break ended,
                _ended = &mut to_server, if has_server => {
                    has_server = false;
                    from_client.as_mut().graceful_shutdown();
                }
            }
        };
        let upgrade = proxy.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((inside, outside)) = upgrade {
            if has_server {
                to_server.await.map_err(io::Error::other)?;
            }
            let (inside, outside) = tokio::try_join!(inside, outside).map_err(io::Error::other)?;
            let patterns = Arc::clone(&proxy.secrets.patterns);
            return carry(TokioIo::new(inside), TokioIo::new(outside), patterns).await;
        }
        ended.map_err(io::Error::other)
    }

    pub(crate) async fn serve_http2(self, inside: Inside, outside: Outside) -> io::Result<()> {
        let (tasks, _end) = Tasks::new();
        let (server, to_server) = http2::Builder::new(tasks.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADER_LIST)
            .max_send_buf_size(MAX_SEND_BUFFER)
            .handshake(TokioIo::new(outside))
            .await
            .map_err(io::Error::other)?;
        let proxy = self.proxy(Server::Http2(server));
        let service = service_fn(move |request| Arc::clone(&proxy).answer(request));
        let from_client = hyper::server::conn::http2::Builder::new(tasks)
            .auto_date_header(false)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_LIST)
            .max_send_buf_size(MAX_SEND_BUFFER)
            .serve_connection(TokioIo::new(inside), service);
        let (mut from_client, mut to_server) = (pin!(from_client), pin!(to_server));
        let mut has_server = true;
        loop {
            tokio::select! {
                ended = &mut from_client => return ended.map_err(io::Error::other),
                _ended = &mut to_server, if has_server => {
                    has_server = false;
                    from_client.as_mut().graceful_shutdown();
                }
            }
        }
    }

    fn proxy(self, server: Server) -> Arc<Proxy> {
        let Self { story, host, secrets } = self;
        let told = secrets.held.secrets.iter().map(|_| AtomicBool::new(false)).collect();
        Arc::new(Proxy { story, host, secrets, server, told, upgrade: Mutex::default() })
    }
}

impl Proxy {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        Ok(match self.try_answer(request).await {
            Ok(response) => response,
            Err(Refused { status, words, denied }) => {
                if let Some(why) = denied {
                    self.story.tell(NetworkEventKind::Denied, Some(&self.host), format!("denied: {why}"));
                }
                page(status, words)
            }
        })
    }

    async fn try_answer(&self, request: Request<Incoming>) -> Result<Response<ResponseBody>, Refused> {
        let (mut head, body) = request.into_parts();
        check_target(&head, &self.host)?;
        let filler = Filler { secrets: &self.secrets.held.secrets, host: &self.host };
        let mut used = filler.fill_head(&mut head).map_err(|refusal| self.uncovered(filler, &refusal))?;
        // Until the request is sent.
        let mut _turn = None;
        let body = if !body.is_end_stream() && filler.fills_body(&head) {
            _turn = self.story.sandbox.bodies.acquire().await.ok();
            let (filled, also) = fill_body(filler, &mut head, body).await?;
            used.extend(also);
            Either::Right(filled)
        } else {
            Either::Left(body)
        };
        self.tell(&used);
        let method = head.method.clone();
        let response = self.forward(Request::from_parts(head, body)).await?;
        self.scrubbed(&method, response)
    }

    fn uncovered(&self, filler: Filler<'_>, refusal: &Refusal) -> Refused {
        let words = filler.in_words(refusal);
        match refusal {
            Refusal::TooLong => {
                Refused { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, words, denied: None }
            }
            Refusal::Uncovered { secret, place } => {
                let name = self.secrets.held.secrets.get(*secret).map(|secret| secret.name.as_str());
                let denied = format!("secret {} must not be put into {place}", name.unwrap_or_default());
                Refused { status: StatusCode::FORBIDDEN, words, denied: Some(denied) }
            }
        }
    }

    /// Tells once for each connection which secrets were put in.
    fn tell(&self, used: &[usize]) {
        for at in used {
            let (Some(secret), Some(told)) = (self.secrets.held.secrets.get(*at), self.told.get(*at)) else {
                continue;
            };
            if !told.swap(true, Ordering::Relaxed) {
                let rule = format!("secret {} was put in", secret.name);
                self.story.tell(NetworkEventKind::Allowed, Some(&self.host), rule);
            }
        }
    }

    async fn forward(&self, mut request: Request<RequestBody>) -> Result<Response<Incoming>, Refused> {
        let sent = match &self.server {
            Server::Http1(server) => self.forward_http1(server, request).await,
            Server::Http2(server) => {
                prepare(request.headers_mut());
                request.headers_mut().remove(header::HOST);
                *request.uri_mut() = address(request.uri(), &self.host).ok_or_else(unclear)?;
                let mut server = server.clone();
                match server.ready().await {
                    Ok(()) => server.send_request(request).await,
                    Err(error) => Err(error),
                }
            }
        };
        sent.map_err(|error| {
            tracing::debug!(host = %self.host, %error, "a request was not answered");
            let words = format!("{} closed the connection without an answer.\n", self.host);
            Refused { status: StatusCode::BAD_GATEWAY, words, denied: None }
        })
    }

    async fn forward_http1(
        &self,
        server: &tokio::sync::Mutex<http1::SendRequest<RequestBody>>,
        mut request: Request<RequestBody>,
    ) -> hyper::Result<Response<Incoming>> {
        let inside = is_websocket(request.headers()).then(|| hyper::upgrade::on(&mut request));
        prepare(request.headers_mut());
        strip(request.headers_mut());
        if inside.is_some() {
            request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            request.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        if request.uri().authority().is_some() {
            let path = request.uri().path_and_query().cloned();
            *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
        }
        *request.version_mut() = Version::HTTP_11;
        let mut server = server.lock().await;
        server.ready().await?;
        let mut response = server.send_request(request).await?;
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if let (Some(inside), true) = (inside, is_upgrade) {
            let outside = hyper::upgrade::on(&mut response);
            *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some((inside, outside));
        } else {
            strip(response.headers_mut());
        }
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }

    /// The server's answer without values.
    fn scrubbed(
        &self,
        method: &Method,
        response: Response<Incoming>,
    ) -> Result<Response<ResponseBody>, Refused> {
        let (mut head, body) = response.into_parts();
        let has_body = *method != Method::HEAD && !body.is_end_stream();
        if has_body && is_encoded(&head.headers) {
            let words = format!(
                "{} sent a compressed answer though it was asked not to. Values of secrets cannot be found in it, so \
                 it is not passed on.\n",
                self.host
            );
            return Err(Refused { status: StatusCode::BAD_GATEWAY, words, denied: None });
        }
        // Words of the status line, and names of headers as they were written.
        head.extensions.clear();
        // It leads to HTTP/3, which does not come by here.
        head.headers.remove(header::ALT_SVC);
        self.secrets.patterns.scrub_headers(&mut head.headers);
        let body = Scrubbed::new(body, Arc::clone(&self.secrets.patterns));
        Ok(Response::from_parts(head, Either::Left(body)))
    }
}

fn unclear() -> Refused {
    let words = "The request cannot be read.\n".to_owned();
    Refused { status: StatusCode::BAD_REQUEST, words, denied: None }
}

/// A request must be for the host that the connection was made for.
fn check_target(head: &Parts, host: &DnsName) -> Result<(), Refused> {
    if [Method::CONNECT, Method::TRACE].contains(&head.method) {
        let why = format!("{} is not allowed to hosts with secrets", head.method);
        let words = format!("{why}.\n");
        return Err(Refused { status: StatusCode::METHOD_NOT_ALLOWED, words, denied: Some(why) });
    }
    let said: Vec<_> = head.headers.get_all(header::HOST).iter().map(|host| host.to_str().ok()).collect();
    let is_named_once = said.len() == 1 || (said.is_empty() && head.version == Version::HTTP_2);
    let said = said.into_iter().chain(head.uri.authority().map(|authority| Some(authority.as_str())));
    let mut names = said.peekable();
    if is_named_once && names.peek().is_some() && names.all(|name| name.is_some_and(|name| is(name, host))) {
        return Ok(());
    }
    let why = format!("this connection is for {host}, and the request is not");
    let words = format!("Refused by the sandbox's network: {why}. Use a separate connection.\n");
    Err(Refused { status: StatusCode::MISDIRECTED_REQUEST, words, denied: Some(why) })
}

/// Whether `name` or `name:443` is the host.
fn is(authority: &str, host: &DnsName) -> bool {
    let port = authority.rsplit_once(':').map_or("443", |(_, port)| port);
    port == "443" && name_in(authority).is_ok_and(|name| name == *host)
}

/// Answers must come in a form in which values can be found: not compressed, and whole.
fn prepare(headers: &mut HeaderMap) {
    for name in [header::RANGE, header::IF_RANGE, header::SEC_WEBSOCKET_EXTENSIONS] {
        headers.remove(name);
    }
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

fn is_encoded(headers: &HeaderMap) -> bool {
    let is_other = |name, plain: &str| {
        headers.get_all(name).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(plain.as_bytes()))
    };
    is_other(header::CONTENT_ENCODING, "identity") || is_other(header::TRANSFER_ENCODING, "chunked")
}

/// The address of a request in HTTP/2.
fn address(uri: &Uri, host: &DnsName) -> Option<Uri> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Uri::builder().scheme("https").authority(host.as_str()).path_and_query(path).build().ok()
}

/// Reads a body whole and puts values in.
async fn fill_body(
    filler: Filler<'_>,
    head: &mut Parts,
    body: Incoming,
) -> Result<(Full<Bytes>, Vec<usize>), Refused> {
    let too_long = || Refused {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        words: format!(
            "A secret may be put into the body of this request, and such bodies have at most {MAX_BODY} bytes.\n"
        ),
        denied: None,
    };
    let limit = u64::try_from(MAX_BODY).unwrap_or(u64::MAX);
    if body.size_hint().lower() > limit {
        return Err(too_long());
    }
    let body = Limited::new(body, MAX_BODY)
        .collect()
        .await
        .map_err(|error| if error.is::<LengthLimitError>() { too_long() } else { unclear() })?;
    let (filled, used) = filler.fill_body(head, &body.to_bytes(), MAX_BODY).ok_or_else(too_long)?;
    // Its length is known now, and may be another.
    head.headers.remove(header::TRANSFER_ENCODING);
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(filled.len()));
    Ok((Full::from(filled), used))
}
