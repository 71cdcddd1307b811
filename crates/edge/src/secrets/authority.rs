//! The authority of one sandbox, which vouches for the hosts of its secrets and for no others.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, Ipv6Addr},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256,
    date_time_ymd,
};
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::NoServerSessionStorage,
};
use sandbox::{Authority, SecretKey, network::DnsName};

/// How people see the authority in a list of certificates. Certificates name it, and so do those that it signs: it must
/// stay as it is, or authorities that exist already vouch for nothing any more.
const COMMON_NAME: &str = "Warren sandbox authority";
/// Years of everything that is signed. The clock of a sandbox may be wrong, and a key that leaks opens nothing: it
/// vouches to one sandbox, for names that the sandbox reaches through the edge only.
const FIRST_YEAR: i32 = 2020;
const LAST_YEAR: i32 = 2049;

/// The only provider of cryptography here.
pub(crate) static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(ring::default_provider()));

/// Makes an authority for a sandbox, which can vouch for these hosts, and names beneath them, only.
pub fn make_authority(hosts: &[DnsName]) -> io::Result<Authority> {
    if hosts.is_empty() {
        // Without a single one the certificate would be without limits.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an authority needs a host to vouch for"));
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(io::Error::other)?;
    let mut params = authority_params();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: hosts
            .iter()
            .map(|host| GeneralSubtree::DnsName(host.as_str().to_owned()))
            .collect(),
        // A list of names says nothing about addresses.
        excluded_subtrees: vec![
            GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix(Ipv4Addr::UNSPECIFIED.octets(), 0)),
            GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(Ipv6Addr::UNSPECIFIED.octets(), 0)),
        ],
    });
    let certificate = params.self_signed(&key).map_err(io::Error::other)?;
    Ok(Authority { certificate: certificate.pem(), key: SecretKey(key.serialize_pem()) })
}

/// The parameters that the authority's certificate and those that it signs must agree on.
fn authority_params() -> CertificateParams {
    let mut params = dated_params();
    params.distinguished_name.push(DnType::CommonName, COMMON_NAME);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn dated_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(FIRST_YEAR, 1, 1);
    params.not_after = date_time_ymd(LAST_YEAR, 12, 31);
    params.distinguished_name = DistinguishedName::new();
    params
}

/// Signs certificates of hosts. Each is made once.
pub(crate) struct Signer {
    issuer: Issuer<'static, KeyPair>,
    configs: Mutex<HashMap<DnsName, Arc<ServerConfig>>>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(…)")
    }
}

impl Signer {
    pub(crate) fn new(authority: &Authority) -> io::Result<Self> {
        let key = KeyPair::from_pem(&authority.key.0).map_err(io::Error::other)?;
        Ok(Self { issuer: Issuer::new(authority_params(), key), configs: Mutex::default() })
    }

    /// How a host is served inside. Only for hosts of secrets, whose number is limited.
    pub(crate) fn config(&self, host: &DnsName) -> io::Result<Arc<ServerConfig>> {
        let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = configs.get(host) {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.make_config(host)?);
        configs.insert(host.clone(), Arc::clone(&config));
        Ok(config)
    }

    fn make_config(&self, host: &DnsName) -> io::Result<ServerConfig> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(io::Error::other)?;
        let certificate = host_params(host)
            .and_then(|params| params.signed_by(&key, &self.issuer))
            .map_err(io::Error::other)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key)
            })
            .map_err(io::Error::other)?;
        // Resumption would need memory for each connection, and saves little over loopback.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn host_params(host: &DnsName) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![host.as_str().to_owned()])?;
    let dated = dated_params();
    (params.not_before, params.not_after) = (dated.not_before, dated.not_after);
    // Nobody reads it, and a common name longer than 64 characters is not valid.
    params.distinguished_name = dated.distinguished_name;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

#[cfg(test)]
mod tests {
    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, ServerConnection, pki_types::pem::PemObject,
    };

    use super::*;

    fn name(text: &str) -> DnsName {
        text.parse().unwrap()
    }

    /// Makes a connection in memory.
    fn connect(authority: &Authority, server: Arc<ServerConfig>, host: &str) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        let der = rustls::pki_types::CertificateDer::from_pem_slice(authority.certificate.as_bytes());
        roots.add(der.unwrap())?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut client = ClientConnection::new(Arc::new(client), host.to_owned().try_into().unwrap())?;
        let mut server = ServerConnection::new(server)?;
        while client.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &bytes[..]).unwrap();
            server.process_new_packets()?;
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut &bytes[..]).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn it_vouches_for_its_hosts_only() {
        let authority = make_authority(&[name("api.example"), name("other.example")]).unwrap();
        let signer = Signer::new(&authority).unwrap();
        for host in ["api.example", "other.example"] {
            connect(&authority, signer.config(&name(host)).unwrap(), host).unwrap();
        }
        // It would sign that, and nobody would believe it.
        let stranger = signer.config(&name("bank.example")).unwrap();
        let refused = connect(&authority, stranger, "bank.example").unwrap_err();
        assert!(format!("{refused:?}").contains("NameConstraintViolation"), "{refused:?}");
        // Another sandbox's authority is a stranger.
        let other = make_authority(&[name("api.example")]).unwrap();
        connect(&other, signer.config(&name("api.example")).unwrap(), "api.example").unwrap_err();
    }

    #[test]
    fn it_needs_a_host() {
        assert_eq!(make_authority(&[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
