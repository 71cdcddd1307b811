//! HTTPS servers of the world, by rustls and hyper. They remember every byte of every request, and say it all again.

use std::{
    collections::VecDeque,
    convert::Infallible,
    net::TcpListener,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    thread,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    body::{Body, Frame, Incoming},
    header::{HeaderName, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

/// An authority of the world.
pub(crate) struct WorldAuthority {
    pub(crate) der: Vec<u8>,
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl WorldAuthority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let (der, pem) = (certificate.der().to_vec(), certificate.pem());
        Self { der, pem, issuer: Issuer::new(params, key) }
    }

    /// Serves HTTPS for a name.
    pub(crate) fn serve(&self, at: &str, name: &str) -> Https {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let server = Https::default();
        let listener = TcpListener::bind(at).unwrap();
        listener.set_nonblocking(true).unwrap();
        let heard = server.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(heard.accept(listener, TlsAcceptor::from(Arc::new(config))));
        });
        server
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Https {
    heard: Arc<Mutex<Vec<String>>>,
}

impl Https {
    /// Every request since the start: its first line, its headers and its body.
    pub(crate) fn heard(&self) -> String {
        self.heard.lock().unwrap().join("\n")
    }

    async fn accept(self, listener: TcpListener, acceptor: TlsAcceptor) {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (server, acceptor) = (self.clone(), acceptor.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let service = service_fn(move |request| server.clone().answer(request));
                let stream = TokioIo::new(stream);
                let executor = hyper_util::rt::TokioExecutor::new();
                if is_http2 {
                    let _ended = hyper::server::conn::http2::Builder::new(executor)
                        .serve_connection(stream, service)
                        .await;
                } else {
                    let serving =
                        hyper::server::conn::http1::Builder::new().serve_connection(stream, service);
                    let _ended = serving.with_upgrades().await;
                }
            });
        }
    }

    async fn answer(self, mut request: Request<Incoming>) -> Result<Response<Pieces>, Infallible> {
        let mut all = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
        for (name, value) in request.headers() {
            all += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
        }
        let path = request.uri().path().to_owned();
        if path == "/ws" {
            self.heard.lock().unwrap().push(all.clone());
            tokio::spawn(talk(hyper::upgrade::on(&mut request), all));
            let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
            return Ok(response(StatusCode::SWITCHING_PROTOCOLS, &upgrade, Pieces::default()));
        }
        let sent = request.headers().get("authorization").cloned();
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        all += &String::from_utf8_lossy(&body);
        self.heard.lock().unwrap().push(all.clone());
        let mut answer = match path.as_str() {
            "/gzip" => response(StatusCode::OK, &[("content-encoding", "gzip")], Pieces::of(&all, 100)),
            "/big" => response(StatusCode::OK, &[], Pieces { left: BIG, ..Pieces::default() }),
            "/forever" => {
                response(StatusCode::OK, &[], Pieces { is_endless: true, ..Pieces::of("begun\n", 9) })
            }
            "/length" => {
                let length = all.len().to_string();
                response(StatusCode::OK, &[("content-length", &length)], Pieces::of(&all, 7))
            }
            _ => response(StatusCode::OK, &[], Pieces::of(&all, 7)),
        };
        if let Some(sent) = sent {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-trailer", sent.clone());
            answer.headers_mut().insert("x-said", sent);
            answer.headers_mut().insert("trailer", HeaderValue::from_static("x-trailer"));
            answer.headers_mut().insert("alt-svc", HeaderValue::from_static("h3=\":443\""));
            answer.body_mut().trailers = Some(trailers);
        }
        Ok(answer)
    }
}

/// Says what it was told in the head, then what comes.
async fn talk(upgrade: hyper::upgrade::OnUpgrade, all: String) {
    let mut stream = TokioIo::new(upgrade.await.unwrap());
    stream.write_all(all.as_bytes()).await.unwrap();
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        stream.write_all(&buffer[..read]).await.unwrap();
    }
}

/// Bytes of `/big`.
pub(crate) const BIG: usize = 48 * 1024 * 1024;

/// A body that comes in pieces.
#[derive(Debug, Default)]
struct Pieces {
    pieces: VecDeque<Bytes>,
    left: usize,
    is_endless: bool,
    trailers: Option<HeaderMap>,
}

impl Pieces {
    fn of(text: &str, length: usize) -> Self {
        let pieces = text.as_bytes().chunks(length).map(Bytes::copy_from_slice).collect();
        Self { pieces, ..Self::default() }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(piece) = self.pieces.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if self.left > 0 {
            let length = self.left.min(64 * 1024);
            self.left -= length;
            return Poll::Ready(Some(Ok(Frame::data(vec![b's'; length].into()))));
        }
        if self.is_endless {
            return Poll::Pending;
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

fn response(status: StatusCode, headers: &[(&'static str, &str)], body: Pieces) -> Response<Pieces> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in headers {
        response.headers_mut().insert(HeaderName::from_static(name), value.parse().unwrap());
    }
    response
}
