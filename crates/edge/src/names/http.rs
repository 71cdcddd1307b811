//! HTTP without TLS, request by request: each must be for a name that is allowed.
//!
//! hyper reads what the client says and says it anew to the server, so there is one reading of where a request ends:
//! a length beside `chunked` is dropped, different lengths are refused. Of upgrades only WebSocket passes, since HTTP/2
//! would carry further requests that nobody checks.

use std::{
    convert::Infallible,
    io,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    Method, Request, Response, StatusCode, Uri, Version,
    body::Incoming,
    client::conn::http1::SendRequest,
    header::{self, HeaderMap, HeaderName, HeaderValue},
    http::request::Parts,
    service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use sandbox::network::{DnsName, Flow, NetworkEventKind, Protocol};

use super::side::{Side, Which};
use crate::tcp::connection::{Pair, Story};

/// How long a client may take for the head of a request, from the first byte of the connection or the last answer.
const HEAD_TIME: Duration = Duration::from_secs(60);
/// Largest head of a request or an answer.
pub(crate) const MAX_HEAD: usize = 64 * 1024;
/// Most header lines of a request.
const MAX_HEADERS: usize = 128;
/// Headers that concern one connection, not the request.
const OF_ONE_CONNECTION: [&str; 8] = [
    "connection",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "upgrade",
];

type Body = Either<Incoming, Full<Bytes>>;

/// Why a request is not sent on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unclear {
    #[error("CONNECT is not allowed in plain HTTP")]
    Connect,
    #[error("the request must name its host, once")]
    Hosts,
    #[error("{0:?} is not a host name")]
    NotAName(String),
    #[error("the request names two hosts: {0} and {1}")]
    Differ(DnsName, DnsName),
}

struct Proxy {
    story: Story,
    names: Vec<DnsName>,
    server: tokio::sync::Mutex<SendRequest<Incoming>>,
    /// Both ends of a connection that stops being HTTP.
    upgrade: Mutex<Option<(OnUpgrade, OnUpgrade)>>,
}

/// How requests of a client inside are read, with our limits.
pub(crate) fn reader() -> hyper::server::conn::http1::Builder {
    let mut reader = hyper::server::conn::http1::Builder::new();
    reader
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .half_close(true)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .preserve_header_case(true);
    reader
}

/// Serves a connection until it ends. `said`: what was read of it before.
pub(crate) async fn serve(story: Story, pair: Pair, said: Vec<u8>, names: Vec<DnsName>) -> io::Result<()> {
    let pair = Arc::new(pair);
    let host = story.made(None);
    let side = |which, said| {
        let (sandbox, host) = (Arc::clone(&story.sandbox), Arc::clone(&host));
        TokioIo::new(Side::new(sandbox, host, Arc::clone(&pair), which, said))
    };
    let (server, to_server) = hyper::client::conn::http1::Builder::new()
        .preserve_header_case(true)
        .max_buf_size(MAX_HEAD)
        .handshake(side(Which::Outside, Vec::new()))
        .await
        .map_err(io::Error::other)?;
    let inside = side(Which::Inside, said);
    let proxy =
        Arc::new(Proxy { story, names, server: tokio::sync::Mutex::new(server), upgrade: Mutex::default() });
    let answering = Arc::clone(&proxy);
    let service = service_fn(move |request| {
        let proxy = Arc::clone(&answering);
        async move { Ok::<_, Infallible>(proxy.answer(request).await) }
    });
    let from_client = reader().serve_connection(inside, service).with_upgrades();
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
        tokio::io::copy_bidirectional(&mut TokioIo::new(inside), &mut TokioIo::new(outside)).await?;
    }
    if ended.is_ok() {
        pair.is_done();
    }
    Ok(())
}

impl Proxy {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let name = match authority(&parts) {
            Ok(name) => name,
            Err(unclear) => {
                self.story.tell(NetworkEventKind::Denied, None, format!("denied: {unclear}"));
                let status =
                    if unclear == Unclear::Connect { StatusCode::FORBIDDEN } else { StatusCode::BAD_REQUEST };
                return page(status, format!("Refused by the sandbox's network: {unclear}.\n"));
            }
        };
        if !self.names.contains(&name) {
            let why = format!("no rule allows {name} at this address");
            self.story.tell(NetworkEventKind::Denied, Some(&name), format!("denied: {why}"));
            return page(StatusCode::FORBIDDEN, self.denial(&name));
        }
        self.story.tell(NetworkEventKind::Allowed, Some(&name), self.story.rule.clone());
        match self.forward(Request::from_parts(parts, body)).await {
            Ok(response) => response.map(Either::Left),
            Err(error) => {
                tracing::debug!(%name, %error, "a request was not answered");
                page(StatusCode::BAD_GATEWAY, format!("{name} closed the connection without an answer.\n"))
            }
        }
    }

    async fn forward(&self, mut request: Request<Incoming>) -> hyper::Result<Response<Incoming>> {
        let wants_websocket = is_websocket(request.headers());
        let inside = wants_websocket.then(|| hyper::upgrade::on(&mut request));
        prepare_request(&mut request, wants_websocket);
        let mut server = self.server.lock().await;
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

    /// Writes the page that the client reads instead of an answer.
    fn denial(&self, name: &DnsName) -> String {
        let (sandbox, destination) = (&self.story.sandbox, self.story.opening.destination);
        let names = [name.clone()];
        let flow = Flow {
            protocol: Protocol::Tcp,
            address: destination.ip(),
            port: destination.port(),
            names: &names,
        };
        let (plan, around) = (sandbox.plan(), sandbox.around());
        let verdict = plan.decide(&flow, &around);
        let why = match verdict.is_denied() {
            true => plan.describe(verdict.by()),
            false => "denied: the name did not lead to this address when this sandbox asked".to_owned(),
        };
        let port = destination.port();
        let mut text = format!(
            "The network policy of this sandbox does not allow requests to {name} (port {port}).\nIt was {why}.\n"
        );
        if verdict.is_denied()
            && let Some(rule) = plan.rule_that_allows(&flow, &around)
        {
            let (rule, id) = (rule.text(), &sandbox.id);
            text += &format!(
                "An agent can ask for it with the tool sandbox_network_request, rules: [\"{rule}\"].\n\
                 Whoever owns the sandbox can allow it: warren network {id} --allow {rule}\n"
            );
        }
        text
    }
}

/// The name that a request is for.
fn authority(request: &Parts) -> Result<DnsName, Unclear> {
    if request.method == Method::CONNECT {
        return Err(Unclear::Connect);
    }
    let mut hosts = request.headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(Unclear::Hosts) };
    let host = name_in(host.to_str().unwrap_or("\u{fffd}"))?;
    match request.uri.authority().map(|authority| name_in(authority.as_str())).transpose()? {
        Some(other) if other != host => Err(Unclear::Differ(host, other)),
        _ => Ok(host),
    }
}

/// The name in `name:port`.
pub(crate) fn name_in(authority: &str) -> Result<DnsName, Unclear> {
    let not_a_name = || Unclear::NotAName(authority.chars().take(80).collect());
    let (name, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    let is_port = !port.is_empty() && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    // Only what is written as names are on the wire: what is canonicalised here may mean something else to a server.
    if !is_port || !name.is_ascii() {
        return Err(not_a_name());
    }
    name.parse().map_err(|_invalid| not_a_name())
}

pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

fn prepare_request(request: &mut Request<Incoming>, wants_websocket: bool) {
    strip(request.headers_mut());
    if wants_websocket {
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    }
    let path = request.uri().path_and_query().cloned();
    if request.uri().authority().is_some() {
        *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    }
    *request.version_mut() = Version::HTTP_11;
}

/// Removes what concerns one connection only, also what `Connection` lists.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // A client must not take these away from the server.
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
        .collect();
    for name in listed {
        headers.remove(name);
    }
    for name in OF_ONE_CONNECTION {
        headers.remove(name);
    }
}

/// Answers in plain words, and closes the connection: what follows on it may belong to the refused request.
pub(crate) fn page<B>(status: StatusCode, text: String) -> Response<Either<B, Full<Bytes>>> {
    let mut response = Response::new(Either::Right(Full::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert("x-warren-denied", HeaderValue::from_static("network-policy"));
    response
}

/// Reads requests from memory as a connection would, and looks up whom each is for.
#[doc(hidden)]
pub async fn fuzz_requests(bytes: Vec<u8>) {
    let service = service_fn(|request: Request<Incoming>| async move {
        let (parts, body) = request.into_parts();
        let found = authority(&parts);
        let mut request = Request::from_parts(parts, body);
        if found.is_ok() {
            let wants_websocket = is_websocket(request.headers());
            prepare_request(&mut request, wants_websocket);
            assert_eq!(request.uri().authority(), None);
            assert_eq!(request.headers().get_all(header::HOST).iter().count(), 1);
        }
        Ok::<_, Infallible>(page::<Incoming>(StatusCode::OK, String::new()))
    });
    let stream = tokio::io::join(io::Cursor::new(bytes), tokio::io::sink());
    let serving = hyper::server::conn::http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    drop(serving.await);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: &str, uri: &str, hosts: &[&str]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header("host", *host);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_request_is_for_one_name() {
        let name = |text: &str| Ok(text.parse().unwrap());
        for (method, uri, hosts, found) in [
            ("GET", "/", &["a.example"][..], name("a.example")),
            ("GET", "/", &["A.Example.:80"], name("a.example")),
            ("GET", "http://a.example/x", &["a.example"], name("a.example")),
            (
                "GET",
                "http://b.example/x",
                &["a.example"],
                Err(Unclear::Differ("a.example".parse().unwrap(), "b.example".parse().unwrap())),
            ),
            ("GET", "/", &["a.example", "a.example"], Err(Unclear::Hosts)),
            ("GET", "/", &[], Err(Unclear::Hosts)),
            ("GET", "/", &["a.example@b.example"], Err(Unclear::NotAName("a.example@b.example".to_owned()))),
            ("GET", "/", &["93.184.216.34"], Err(Unclear::NotAName("93.184.216.34".to_owned()))),
            ("GET", "/", &["a.example:http"], Err(Unclear::NotAName("a.example:http".to_owned()))),
            ("CONNECT", "b.example:443", &["a.example"], Err(Unclear::Connect)),
        ] {
            assert_eq!(authority(&parts(method, uri, hosts)), found, "{method} {uri} {hosts:?}");
        }
    }

    #[test]
    fn what_concerns_one_connection_is_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "x-secret, host, upgrade"),
            ("x-secret", "1"),
            ("host", "a.example"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAA"),
            ("accept", "*/*"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        strip(&mut headers);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["host", "accept"]);
    }
}
