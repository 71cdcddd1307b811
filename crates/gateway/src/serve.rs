//! One client: its requests, checked before anything is done for them.

use std::{convert::Infallible, sync::Arc, time::Duration};

use hyper::{
    Method, Request, Response, StatusCode, Version,
    body::{Body as _, Incoming},
    ext::ReasonPhrase,
    header::{ALLOW, CONNECTION, HOST},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_io_timeout::TimeoutWriter;

use crate::{
    Inner, Scope, apt,
    clients::Client,
    error::Refusal,
    npm, pip,
    reply::{self, Body},
    route::{Route, route},
};

/// Largest head of a request, in bytes, and most headers in it.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

/// For the whole head of a request, and so for how long a client may be idle. pip builds and npm links between two
/// requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a write may wait for the client. Package managers read at once; a sandbox that is paused comes back and
/// tries again.
const MAX_STALL: Duration = Duration::from_secs(60);

/// Longest name under which a client may know us, in bytes.
const MAX_HOST_BYTES: usize = 255;

pub(crate) async fn serve<S>(inner: &Arc<Inner>, stream: S, scope: Scope, client: &Arc<Client>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| {
        let inner = Arc::clone(inner);
        async move { Ok::<_, Infallible>(answer(&inner, scope, client, request).await) }
    });
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(MAX_STALL));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(Box::pin(stream)), service)
        .await;
    if let Err(error) = served {
        // Clients come and go as they like; what failed towards an index is counted where it failed.
        tracing::trace!(%error, "a client of the package gateway");
    }
}

async fn answer(
    inner: &Inner,
    scope: Scope,
    client: &Arc<Client>,
    request: Request<Incoming>,
) -> Response<Body> {
    inner.counters.count(|stats| stats.requests += 1);
    let mut response = match check(&request) {
        Ok(base) => match dispatch(inner, scope, client, &request, &base).await {
            Ok(response) => response,
            Err(refusal) => {
                let mut response = reply::refusal(&refusal);
                // All that apt shows of an answer.
                if request.uri().authority().is_some()
                    && let Ok(reason) = ReasonPhrase::try_from(refusal.sentence.as_bytes())
                {
                    response.extensions_mut().insert(reason);
                }
                response
            }
        },
        Err(refusal) => {
            // The connection ends after such a request.
            let mut response = reply::refusal(&refusal);
            reply::set(&mut response, CONNECTION, "close");
            if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
                reply::set(&mut response, ALLOW, "GET, HEAD");
            }
            response
        }
    };
    if request.method() == Method::HEAD {
        // The length stays: the head of an answer to HEAD is that of an answer to GET.
        *response.body_mut() = reply::whole("");
    }
    response
}

/// The address under which the client knows us, if the request is one that we answer.
fn check(request: &Request<Incoming>) -> Result<String, Refusal> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "Packages are read here; only GET and HEAD are answered.",
        ));
    }
    if request.version() != Version::HTTP_11 {
        // Older clients could not tell a body that broke off from one that is complete.
        return Err(Refusal::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "Only HTTP/1.1 is spoken here."));
    }
    if !request.body().is_end_stream() {
        return Err(Refusal::bad_request("A request for a package has no body."));
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_host = !host.is_empty()
        && host.len() <= MAX_HOST_BYTES
        && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:[]".contains(c));
    if !is_host || hosts.next().is_some() {
        return Err(Refusal::bad_request("The request needs one Host header with a name or an address."));
    }
    Ok(format!("http://{host}"))
}

async fn dispatch(
    inner: &Inner,
    scope: Scope,
    client: &Arc<Client>,
    request: &Request<Incoming>,
    base: &str,
) -> Result<Response<Body>, Refusal> {
    let uri = request.uri();
    // As a proxy is asked. Only apt is told to, so that sources which an image brings along are found by their own
    // names.
    let route = if uri.authority().is_some() || uri.scheme().is_some() {
        apt::at_address(inner, scope, uri)?
    } else {
        route(uri.path())?
    };
    let (may, manager) = match route {
        Route::PipProject(_) | Route::PipFile { .. } => (scope.pip, "pip"),
        Route::NpmPackage(_) | Route::NpmTarball { .. } => (scope.npm, "npm"),
        Route::Apt { .. } => (scope.apt, "apt"),
    };
    if !may {
        let sentence = format!("This sandbox may not install packages with {manager}.");
        return Err(Refusal::new(StatusCode::FORBIDDEN, sentence));
    }
    let headers = request.headers();
    match route {
        Route::PipProject(project) => pip::project(inner, client, &project, headers).await,
        Route::PipFile { project, file } => pip::file(inner, client, &project, &file, headers).await,
        Route::NpmPackage(package) => npm::package(inner, client, &package, headers, base).await,
        Route::NpmTarball { package, file } => npm::tarball(inner, client, &package, &file, headers).await,
        Route::Apt { source, path } => apt::file(inner, client, source, &path, headers).await,
    }
}
