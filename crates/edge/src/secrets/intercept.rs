//! One connection to a host with secrets: TLS on both sides, the outside first.

use std::{io, sync::Arc};

use rustls::{CertificateError, pki_types::ServerName, server::Acceptor};
use sandbox::network::{DnsName, NetworkEventKind};
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, TlsConnector, client, server};

use super::{HANDSHAKE, MAX_OPENED, Secrets, proxy};
use crate::{
    hosts::HostCounting,
    names::{
        self,
        side::{Side, Which},
        tls::ACCESS_DENIED,
    },
    tcp::connection::{Pair, Story},
};

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";
/// Fatal alerts: what is wrong is the server's certificate, or something else about the server.
const BAD_CERTIFICATE: &[u8] = &[0x15, 0x03, 0x03, 0, 2, 2, 42];
const HANDSHAKE_FAILURE: &[u8] = &[0x15, 0x03, 0x03, 0, 2, 2, 40];

/// The client's end, before its handshake is answered.
type Waiting = tokio_rustls::StartHandshake<Side>;
pub(crate) type Inside = server::TlsStream<Side>;
pub(crate) type Outside = client::TlsStream<Side>;

/// Serves a connection that began TLS for a host with secrets. `said`: its whole ClientHello, and what followed.
pub(crate) async fn serve(
    story: &Story,
    pair: Pair,
    said: Vec<u8>,
    host: DnsName,
    secrets: Arc<Secrets>,
) -> io::Result<()> {
    let sandbox = Arc::clone(&story.sandbox);
    let refusal = if !story.opening.names.contains(&host) {
        Some(format!("{host} has secrets, and the sandbox did not resolve it to this address"))
    } else if sandbox.opened.available_permits() == 0 {
        Some(format!("the sandbox has {MAX_OPENED} connections to hosts with secrets, which is its limit"))
    } else {
        None
    };
    if let Some(why) = refusal {
        story.tell(NetworkEventKind::Denied, Some(&host), format!("denied: {why}"));
        return names::part(&pair, ACCESS_DENIED).await;
    }
    let _one = sandbox.opened.acquire().await;
    let counting = story.allowed(Some(&host));
    let mut changes = sandbox.secrets.subscribe();
    let are_others = |now: &Option<Arc<Secrets>>| !now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &secrets));
    let opened = Opened { story, host, counting, secrets: &secrets };
    tokio::select! {
        ended = opened.run(Arc::new(pair), said) => ended,
        _ended = changes.wait_for(are_others) => Ok(()),
    }
}

struct Opened<'a> {
    story: &'a Story,
    host: DnsName,
    counting: Arc<HostCounting>,
    secrets: &'a Arc<Secrets>,
}

impl Opened<'_> {
    async fn run(self, pair: Arc<Pair>, said: Vec<u8>) -> io::Result<()> {
        let side = |which, said| {
            let (sandbox, counting) = (Arc::clone(&self.story.sandbox), Arc::clone(&self.counting));
            Side::new(sandbox, counting, Arc::clone(&pair), which, said)
        };
        let inside = LazyConfigAcceptor::new(Acceptor::default(), side(Which::Inside, said)).await?;
        let Some(offered) = common(&inside) else {
            self.failed("the client offers neither HTTP/1.1 nor HTTP/2");
            return names::part(&pair, HANDSHAKE_FAILURE).await;
        };
        let outside = match self.connect(side(Which::Outside, Vec::new()), offered).await {
            Ok(outside) => outside,
            Err(error) => {
                let (alert, why) = in_words(&error);
                self.failed(&why);
                return names::part(&pair, alert).await;
            }
        };
        let chosen = outside.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        let is_http2 = chosen.as_deref() == Some(HTTP2);
        let inside = match self.accept(inside, chosen).await {
            Ok(inside) => inside,
            Err(error) => {
                self.failed(
                    "the client ended the TLS handshake: it may not trust the sandbox's own authority",
                );
                return Err(error);
            }
        };
        let Self { story, host, secrets, .. } = self;
        let proxied = proxy::Connection { story: story.clone(), host, secrets: Arc::clone(secrets) };
        if is_http2 {
            proxied.serve_http2(inside, outside).await?;
        } else {
            proxied.serve_http1(inside, outside).await?;
        }
        pair.is_done();
        Ok(())
    }

    /// Makes the connection to the server, which must prove that it is the host.
    async fn connect(&self, side: Side, offered: Vec<Vec<u8>>) -> io::Result<Outside> {
        let trusting = self.story.sandbox.shared.trusting();
        let trusting =
            trusting.ok_or_else(|| io::Error::other("no root certificates are known to the edge"))?;
        let mut config = (*trusting).clone();
        config.alpn_protocols = offered;
        let name = ServerName::try_from(self.host.as_str().to_owned()).map_err(io::Error::other)?;
        timeout(HANDSHAKE, TlsConnector::from(Arc::new(config)).connect(name, side)).await?
    }

    /// Answers the client's handshake as the host.
    async fn accept(&self, inside: Waiting, chosen: Option<Vec<u8>>) -> io::Result<Inside> {
        let mut config = (*self.secrets.signer.config(&self.host)?).clone();
        config.alpn_protocols = chosen.into_iter().collect();
        timeout(HANDSHAKE, inside.into_stream(Arc::new(config))).await?
    }

    fn failed(&self, why: &str) {
        self.story.tell(NetworkEventKind::Failed, Some(&self.host), format!("{}; {why}", self.story.rule));
    }
}

/// The protocols that the client offers and we speak, in its order; empty if it offers none at all, which means
/// HTTP/1.1. `None` if it offers only others.
fn common(inside: &Waiting) -> Option<Vec<Vec<u8>>> {
    let hello = inside.client_hello();
    let Some(offered) = hello.alpn() else { return Some(Vec::new()) };
    let common: Vec<_> =
        offered.filter(|protocol| [HTTP1, HTTP2].contains(protocol)).map(<[u8]>::to_vec).collect();
    (!common.is_empty()).then_some(common)
}

/// Says what went wrong with the server.
fn in_words(error: &io::Error) -> (&'static [u8], String) {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(cause)) = cause else {
        let why = match error.kind() {
            io::ErrorKind::TimedOut => "the server did not finish the TLS handshake in time".to_owned(),
            _ => format!("the TLS handshake with the server failed: {error}"),
        };
        return (HANDSHAKE_FAILURE, why);
    };
    let why = match cause {
        CertificateError::UnknownIssuer => "no authority that this host trusts vouches for it".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".to_owned()
        }
        other => format!("{other:?}").chars().take(200).collect(),
    };
    (BAD_CERTIFICATE, format!("the server's certificate is not accepted: {why}"))
}
