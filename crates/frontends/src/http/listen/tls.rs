//! TLS from a certificate and a key in PEM files.

use std::{fmt, io, path::Path, sync::Arc};

use sandbox::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
    },
    server::TlsStream,
};

/// The only protocol that our connections speak.
const ALPN_HTTP_1_1: &[u8] = b"http/1.1";

/// The TLS configuration of a TCP listener.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the certificate (with its chain, the server's own first) and the key. What is wrong names the file.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self> {
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unreadable("certificate", certificate, error))?;
        if chain.is_empty() {
            return Err(unreadable("certificate", certificate, pem::Error::NoItemsFound));
        }
        let secret =
            PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("private key", key, error))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
            .map_err(|error| unusable(certificate, key, error))?;
        config.alpn_protocols = vec![ALPN_HTTP_1_1.to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    pub(super) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.acceptor.accept(stream).await
    }
}

fn unreadable(what: &str, file: &Path, error: pem::Error) -> Error {
    let why = match &error {
        pem::Error::NoItemsFound => format!("it contains no {what}"),
        other => other.to_string(),
    };
    Error::invalid(format!("cannot use the {what} {}: {why}", file.display()))
        .with_source(error)
        .with_hint("Use PEM files for --tls-cert and --tls-key that the daemon's user can read.")
}

fn unusable(certificate: &Path, key: &Path, error: rustls::Error) -> Error {
    let (certificate, key) = (certificate.display(), key.display());
    let message = match &error {
        rustls::Error::InconsistentKeys(_) => {
            format!("the private key {key} does not belong to the certificate {certificate}")
        }
        other => format!("cannot use the certificate {certificate} with the private key {key}: {other}"),
    };
    Error::invalid(message).with_source(error).with_hint(
        "The certificate file must start with the server's own certificate, and the key must match it.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_names_the_file() {
        let place = tempfile::tempdir().unwrap();
        let (certificate, key) = (place.path().join("cert.pem"), place.path().join("key.pem"));
        let complaint = || Tls::from_files(&certificate, &key).unwrap_err().to_string();
        assert!(complaint().contains("cert.pem"), "{}", complaint());
        std::fs::write(&certificate, "hello\n").unwrap();
        assert!(
            complaint().contains("cert.pem") && complaint().contains("no certificate"),
            "{}",
            complaint()
        );
        std::fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            .unwrap();
        assert!(complaint().contains("key.pem"), "{}", complaint());
        std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
        assert!(complaint().contains("cert.pem") && complaint().contains("key.pem"), "{}", complaint());
    }
}
