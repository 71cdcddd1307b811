use std::sync::Arc;

use frontends::http::{Hosts, Tls};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use crate::support::{Client, Server, Setup, fixture};

/// A client that trusts the certificate of the tests and nothing else.
async fn connect(server: &Server, name: &'static str) -> std::io::Result<Client<TlsStream<TcpStream>>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(fixture("tls-cert.pem")).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(server.address).await?;
    let name = ServerName::try_from(name).unwrap();
    Ok(Client(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
}

async fn server() -> Server {
    let tls = Some(Tls::from_files(&fixture("tls-cert.pem"), &fixture("tls-key.pem")).unwrap());
    let hosts = Hosts { is_tls: true, ..Hosts::default() };
    Server::start(Setup { tls, hosts, ..Setup::default() }).await
}

#[tokio::test]
async fn requests_travel_encrypted() {
    let server = server().await;
    let mut client = connect(&server, "localhost").await.unwrap();
    assert_eq!(client.0.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    client.send(&["GET /v1/sandboxes HTTP/1.1", "host: localhost", "origin: https://localhost"]).await;
    client.answer().await.expect(200);
    client.send(&["GET /v1/sandboxes HTTP/1.1", "host: localhost", "origin: http://localhost"]).await;
    client.answer().await.expect_error(403, "denied");
    assert!(connect(&server, "other.example").await.is_err(), "the certificate is for localhost");
    server.end().await;
}

#[tokio::test]
async fn who_sends_everything_before_it_reads_is_told_why_it_was_refused() {
    let server = server().await;
    let client = connect(&server, "localhost").await.unwrap();
    client.refused_upload(16 << 20).await.expect_error(400, "invalid_request");
    server.end().await;
}

#[tokio::test]
async fn who_speaks_plainly_gets_nothing() {
    let server = server().await;
    let mut plain = server.connect().await;
    plain.send(&["GET /v1/sandboxes HTTP/1.1", "host: localhost"]).await;
    let said = plain.rest().await;
    assert!(!said.starts_with(b"HTTP"), "{:?}", String::from_utf8_lossy(&said));
    connect(&server, "localhost").await.unwrap();
    server.end().await;
}

/// The clock of this test jumps as soon as nothing else happens, so no time passes.
#[tokio::test(start_paused = true)]
async fn a_handshake_that_never_comes_is_not_waited_for() {
    let server = server().await;
    let mut silent = server.connect().await;
    silent.rest().await;
    server.end().await;
}

#[test]
fn a_key_of_another_certificate_is_noticed() {
    let error = Tls::from_files(&fixture("tls-cert.pem"), &fixture("other-key.pem")).unwrap_err();
    assert!(
        error.to_string().contains("other-key.pem") && error.to_string().contains("does not belong"),
        "{error}"
    );
}
