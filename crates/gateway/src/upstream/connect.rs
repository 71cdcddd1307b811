//! A byte stream to an index: looked up, checked, connected, through a proxy where there is one, with TLS where it is asked for.

use std::{io, net::SocketAddr, sync::Arc};

use addresses::is_public;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, lookup_host},
    sync::OnceCell,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};
use url::{Host, Url};

use crate::{
    config::Proxies,
    error::{Failure, FailureKind},
};

/// The longest answer of a proxy to CONNECT that is read, in bytes.
const MAX_PROXY_ANSWER_BYTES: usize = 16 << 10;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Made at the first https address: most daemons never need it, and reading the host's certificates takes milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Tls {
    config: OnceCell<Arc<ClientConfig>>,
}

impl Tls {
    async fn wrap(&self, stream: Box<dyn Stream>, host: &str) -> Result<Box<dyn Stream>, Failure> {
        let config = self.config.get_or_try_init(load).await?;
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name)
            .map_err(|error| unreachable(format!("{host} cannot be a server's name: {error}")))?;
        let stream = TlsConnector::from(Arc::clone(config))
            .connect(name, stream)
            .await
            .map_err(|error| unreachable(format!("TLS with {host}: {error}")))?;
        Ok(Box::new(stream))
    }
}

async fn load() -> Result<Arc<ClientConfig>, Failure> {
    let read = tokio::task::spawn_blocking(|| {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let reason = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
            return Err(unreachable(format!("no certificates that this host trusts: {reason}")));
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unreachable(format!("TLS: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    });
    read.await.map_err(|error| unreachable(format!("reading certificates: {error}")))?
}

/// The proxy for an address, if one is to be used.
pub(crate) fn proxy_for<'a>(proxies: &'a Proxies, url: &Url) -> Option<&'a Url> {
    let proxy = match url.scheme() {
        "https" => proxies.https.as_ref(),
        _ => proxies.http.as_ref(),
    }?;
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    let port = url.port_or_known_default();
    let is_excepted = proxies.except.iter().any(|word| {
        let word = word.trim().to_ascii_lowercase();
        let (name, only) = match word.rsplit_once(':') {
            Some((name, digits)) if digits.parse::<u16>().is_ok() => (name, digits.parse::<u16>().ok()),
            _ => (word.as_str(), None),
        };
        let name = name.trim_start_matches("*.").trim_start_matches('.');
        let is_name =
            name == "*" || host == name || (!name.is_empty() && host.ends_with(&format!(".{name}")));
        is_name && (only.is_none() || only == port)
    });
    (!is_excepted).then_some(proxy)
}

/// `Basic …` for the credentials in an address.
pub(crate) fn basic(url: &Url) -> Option<String> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let user = percent_decode_str(url.username()).decode_utf8_lossy();
    let password = percent_decode_str(url.password().unwrap_or_default()).decode_utf8_lossy();
    Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

/// A stream on which requests to `url` can be sent. `is_trusted`: its address may be anywhere.
pub(crate) async fn connect(
    tls: &Tls,
    url: &Url,
    proxy: Option<&Url>,
    is_trusted: bool,
) -> Result<Box<dyn Stream>, Failure> {
    let host = url.host_str().unwrap_or_default();
    let Some(proxy) = proxy else {
        let stream = connect_tcp(url, is_trusted).await?;
        return if url.scheme() == "https" { tls.wrap(stream, host).await } else { Ok(stream) };
    };
    if !is_trusted {
        refuse_private_name(url).await?;
    }
    let mut stream = connect_tcp(proxy, true).await?;
    if proxy.scheme() == "https" {
        stream = tls.wrap(stream, proxy.host_str().unwrap_or_default()).await?;
    }
    if url.scheme() == "https" {
        tunnel(&mut stream, url, proxy).await?;
        stream = tls.wrap(stream, host).await?;
    }
    Ok(stream)
}

async fn connect_tcp(url: &Url, is_trusted: bool) -> Result<Box<dyn Stream>, Failure> {
    let host = url.host_str().unwrap_or_default();
    let mut last = None;
    let mut is_refused = false;
    for address in addresses(url).await.map_err(|error| unreachable(format!("{host}: {error}")))? {
        // The address that was checked is the address that is connected: a name cannot change its mind between.
        if !is_trusted && !is_public(address.ip()) {
            is_refused = true;
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Requests are small and wait for nothing.
                drop(stream.set_nodelay(true));
                return Ok(Box::new(stream));
            }
            Err(error) => last = Some(error),
        }
    }
    if is_refused && last.is_none() {
        return Err(Failure::new(FailureKind::Forbidden, format!("{host} is not at a public address")));
    }
    let reason = last.map_or_else(|| "the name has no address".to_owned(), |error| error.to_string());
    Err(unreachable(format!("{host}: {reason}")))
}

/// Behind a proxy it is the proxy that looks names up. What our own lookup knows to be private is refused all the same.
async fn refuse_private_name(url: &Url) -> Result<(), Failure> {
    let Ok(found) = addresses(url).await else { return Ok(()) };
    if found.iter().any(|address| !is_public(address.ip())) {
        let host = url.host_str().unwrap_or_default();
        return Err(Failure::new(FailureKind::Forbidden, format!("{host} is not at a public address")));
    }
    Ok(())
}

async fn addresses(url: &Url) -> io::Result<Vec<SocketAddr>> {
    let port = url.port_or_known_default().unwrap_or(80);
    Ok(match url.host() {
        Some(Host::Ipv4(address)) => vec![(address, port).into()],
        Some(Host::Ipv6(address)) => vec![(address, port).into()],
        Some(Host::Domain(name)) => lookup_host((name, port)).await?.collect(),
        None => Vec::new(),
    })
}

async fn tunnel(stream: &mut Box<dyn Stream>, url: &Url, proxy: &Url) -> Result<(), Failure> {
    let target =
        format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(443));
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(authorization) = basic(proxy) {
        request.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
    }
    request.push_str("\r\n");
    let failed = |error: io::Error| unreachable(format!("the proxy, asked for {target}: {error}"));
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        // Byte by byte, since what follows the head belongs to the tunnel.
        answer.push(stream.read_u8().await.map_err(failed)?);
        if answer.len() > MAX_PROXY_ANSWER_BYTES {
            return Err(unreachable("the proxy's answer has no end"));
        }
    }
    let head = String::from_utf8_lossy(&answer);
    let status = head.split_ascii_whitespace().nth(1).unwrap_or_default().to_owned();
    if head.starts_with("HTTP/1.") && status.starts_with('2') {
        return Ok(());
    }
    Err(unreachable(format!("the proxy answered {status:.8} when asked for {target}")))
}

fn unreachable(detail: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Unreachable, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_have_exceptions() {
        let proxies = Proxies {
            http: Some("http://plain.example:3128".parse().unwrap()),
            https: Some("http://secure.example:3128".parse().unwrap()),
            except: ["corp.example", ".inner.example", "10.0.0.1", "port.example:8080"]
                .map(str::to_owned)
                .into(),
        };
        let used = |url: &str| {
            proxy_for(&proxies, &url.parse().unwrap()).map(|proxy| proxy.host_str().unwrap().to_owned())
        };
        assert_eq!(used("http://index.example/").as_deref(), Some("plain.example"));
        assert_eq!(used("https://index.example/").as_deref(), Some("secure.example"));
        assert_eq!(used("https://corp.example/"), None);
        assert_eq!(used("https://a.corp.example/"), None);
        assert_eq!(used("https://notcorp.example/").as_deref(), Some("secure.example"));
        assert_eq!(used("https://b.inner.example/"), None);
        assert_eq!(used("http://10.0.0.1/"), None);
        assert_eq!(used("http://port.example:8080/"), None);
        assert_eq!(used("http://port.example/").as_deref(), Some("plain.example"));
    }

    #[test]
    fn credentials_of_an_address_become_a_header() {
        let url = "https://me%40corp:a%3Ab@index.example/".parse().unwrap();
        assert_eq!(basic(&url).unwrap(), format!("Basic {}", STANDARD.encode("me@corp:a:b")));
        assert_eq!(basic(&"https://index.example/".parse().unwrap()), None);
    }
}
