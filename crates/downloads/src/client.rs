//! The HTTP client: its certificates, and what its errors mean.

use std::{
    error::Error,
    sync::{Arc, LazyLock},
};

use reqwest::{Client, ClientBuilder};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};

/// The system's certificate authorities; `SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured. Read once, since that takes
/// milliseconds. A system without any can still reach hosts that speak plain HTTP.
static SYSTEM_ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        tracing::warn!("this system has no certificate authorities: no TLS server can be verified");
    }
    roots
});

/// A client that trusts the system's certificate authorities and these.
pub fn client_builder(authorities: Vec<CertificateDer<'static>>) -> Result<ClientBuilder, rustls::Error> {
    let mut roots = SYSTEM_ROOTS.clone();
    for authority in authorities {
        roots.add(authority)?;
    }
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Client::builder().tls_backend_preconfigured(tls))
}

/// The first cause of this type.
pub fn cause<E: Error + 'static>(error: &reqwest::Error) -> Option<&E> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// The innermost cause, without the URL, which may hold secrets: the outer ones only say that a request failed.
pub fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let innermost = causes(&error).last().map_or_else(|| error.to_string(), ToString::to_string);
    if error.is_connect() { format!("could not connect: {innermost}") } else { innermost }
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}
