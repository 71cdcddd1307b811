//! Secrets: placeholders go out of a sandbox, values arrive at the servers they are for.
//!
//! Only connections to a host of one of the sandbox's secrets are opened, on port 443, after the policy allowed them
//! and only at an address that the sandbox resolved for that name. The server's certificate is verified first; then the
//! client inside gets one of the sandbox's own authority. Everything else passes as it is.
//!
//! ```text
//!   ClientHello ─→ serve ─→ TLS outside, verified ─→ TLS inside ─→ proxy ─→ put_in ─→ server ─→ scrub
//! ```

use std::{io, sync::Arc, time::Duration};

use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use sandbox::{HeldSecrets, network::DnsName};

use self::{
    authority::{PROVIDER, Signer},
    scrub::Patterns,
};

mod authority;
mod escapes;
mod intercept;
mod pattern;
mod proxy;
mod put_in;
mod scrub;
mod scrubbed;
mod tasks;

pub use authority::make_authority;
pub(crate) use intercept::serve;
pub use scrub::fuzz_scrub;

/// Opened connections of one sandbox at the same time, each of which takes memory for TLS and HTTP on both sides.
pub(crate) const MAX_OPENED: usize = 128;
/// Bodies of one sandbox's requests that are in memory at the same time; further ones wait.
pub(crate) const MAX_BODIES: usize = 8;
/// Largest body in which placeholders are looked for.
const MAX_BODY: usize = 1024 * 1024;
/// How long each of the two handshakes may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The secrets of one sandbox, ready for use.
#[derive(Debug)]
pub(crate) struct Secrets {
    held: HeldSecrets,
    signer: Signer,
    patterns: Arc<Patterns>,
}

impl Secrets {
    pub(crate) fn new(held: HeldSecrets) -> io::Result<Self> {
        let signer = Signer::new(&held.authority)?;
        let values = held.secrets.iter().map(|secret| secret.value.expose());
        let patterns = Arc::new(Patterns::new(values));
        Ok(Self { held, signer, patterns })
    }

    pub(crate) fn are(&self, held: &HeldSecrets) -> bool {
        self.held == *held
    }

    /// Whether one of them is for a host.
    pub(crate) fn are_for(&self, host: &DnsName) -> bool {
        self.held.secrets.iter().any(|secret| secret.rules.hosts.contains(host))
    }
}

/// How servers are verified: by the certificates that the host trusts.
pub(crate) fn trusting(roots: Vec<Vec<u8>>) -> io::Result<ClientConfig> {
    let mut store = RootCertStore::empty();
    // Hosts have a few that are not well-formed; every program ignores those.
    let (_added, _ignored) = store.add_parsable_certificates(roots.into_iter().map(CertificateDer::from));
    let config = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(config)
}
