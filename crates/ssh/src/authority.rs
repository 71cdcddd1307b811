//! Certificates: who may sign them, and which key a certificate stands for.

use std::{net::IpAddr, str::FromStr};

use engine::{Engine, Principal};
use russh::keys::{Certificate, PublicKey, ssh_key::certificate::CertType};
use sandbox::{Error, ErrorKind, Result};

/// More names in one certificate than anybody needs.
const MAX_NAMES: usize = 64;

/// The public keys of authorities whose certificates log in.
#[derive(Debug, Clone, Default)]
pub struct Authorities(Vec<PublicKey>);

impl FromStr for Authorities {
    type Err = Error;

    /// Reads a file of public keys, one on each line, as OpenSSH's `TrustedUserCAKeys` has them.
    fn from_str(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys = lines.map(|line| {
            PublicKey::from_openssh(line).map_err(|error| {
                let shown: String = line.chars().take(32).collect();
                Error::invalid(format!("{shown:?} is not a public key of SSH: {error}"))
                    .with_hint("Give one public key of an authority on each line.")
            })
        });
        Ok(Self(keys.collect::<Result<_>>()?))
    }
}

/// The permissions that a certificate gives its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permissions {
    pub(crate) terminal: bool,
    pub(crate) forwarding: bool,
}

impl Permissions {
    pub(crate) const ALL: Self = Self { terminal: true, forwarding: true };
}

impl Authorities {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key that a certificate stands for: the first of its names that is the label or id of a living one. Its
    /// signatures and times have been checked.
    pub(crate) async fn principal(
        &self,
        engine: &Engine,
        certificate: &Certificate,
        peer: Option<IpAddr>,
    ) -> Result<(Principal, Permissions)> {
        let permissions = self.check(certificate, peer)?;
        for name in certificate.valid_principals().iter().take(MAX_NAMES) {
            if let Ok(principal) = engine.principal_named(name).await {
                return Ok((principal, permissions));
            }
        }
        Err(refused("it names no key"))
    }

    fn check(&self, certificate: &Certificate, peer: Option<IpAddr>) -> Result<Permissions> {
        if certificate.cert_type() != CertType::User {
            return Err(refused("it is not a user's"));
        }
        if !self.0.iter().any(|key| key.key_data() == certificate.signature_key()) {
            return Err(refused("its authority is not trusted"));
        }
        for (name, value) in certificate.critical_options().iter() {
            match name.as_str() {
                "source-address" if peer.is_some_and(|peer| is_from(value, peer)) => {}
                "source-address" => return Err(refused("it is not valid from this address")),
                // Whoever signed it relied on something that we do not do.
                _ => return Err(refused("it has an option that is not supported")),
            }
        }
        let has = |name: &str| certificate.extensions().iter().any(|(found, _)| found == name);
        Ok(Permissions { terminal: has("permit-pty"), forwarding: has("permit-port-forwarding") })
    }
}

/// Whether an address is in a list of addresses and blocks.
fn is_from(list: &str, peer: IpAddr) -> bool {
    list.split(',').any(|block| contains(block.trim(), peer.to_canonical()).unwrap_or(false))
}

fn contains(block: &str, peer: IpAddr) -> Option<bool> {
    let (address, bits) = block.split_once('/').unwrap_or((block, ""));
    let address: IpAddr = address.parse().ok()?;
    let (one, other, width) = match (address, peer) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u128::from(one.to_bits()), u128::from(other.to_bits()), 32),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
        _ => return Some(false),
    };
    let bits: u32 = if bits.is_empty() { width } else { bits.parse().ok()? };
    let shift = width.checked_sub(bits)?;
    Some(one.checked_shr(shift).unwrap_or(0) == other.checked_shr(shift).unwrap_or(0))
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::Unauthenticated, format!("the certificate is refused: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_held_to_their_blocks() {
        let check = |list: &str, peer: &str, expected: bool| {
            assert_eq!(is_from(list, peer.parse().unwrap()), expected, "{list} {peer}");
        };
        check("10.0.0.0/8", "10.1.2.3", true);
        check("10.0.0.0/8,192.168.1.1", "192.168.1.1", true);
        check("10.0.0.0/8", "11.0.0.1", false);
        check("10.0.0.0/8", "::ffff:10.0.0.1", true);
        check("0.0.0.0/0", "1.2.3.4", true);
        check("::/0", "1.2.3.4", false);
        check("2001:db8::/32", "2001:db8::1", true);
        for list in ["", "x", "10.0.0.0/33", "10.0.0.0/x", "/8"] {
            check(list, "10.0.0.1", false);
        }
    }

    #[test]
    fn a_file_of_authorities_is_read_whole_or_not_at_all() {
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJFWOZgUFJTL3GuZ7Ju8GKB9eDCBOlp+UC9lxz1iBrOB ca";
        assert_eq!(format!("# ours\n\n{key}\n{key}\n").parse::<Authorities>().unwrap().0.len(), 2);
        assert!("".parse::<Authorities>().unwrap().is_empty());
        assert!(format!("{key}\nnonsense").parse::<Authorities>().is_err());
    }
}
