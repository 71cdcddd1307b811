//! Signed links: each lets its holder use one thing of a sandbox for a while: read a file or an output of a cell, reach
//! a port, or do everything inside.
//!
//! A link is bound to the sandbox's id (not its name, which another may have tomorrow), to the path, to its end, and to
//! the key that requested it: it never outlives that key, and never shows what that key may not see. It contains the
//! key's id, not the key itself. A link of a caller without a key, other than the daemon's owner, ends with the daemon.

use std::{
    fmt,
    fs::OpenOptions,
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _, digest::Key};
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, ExecId, KeyId, Namespace, Result, SandboxId, path_from};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::{
    Access, Engine, Principal, Quota, SandboxRef, Scope, clock::later, core::Core, files::checked, names,
};

/// Longest life of a link: a week. For longer use, copy the file.
pub const MAX_LINK_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Longest life of a link to everything inside, which programs keep and do not renew: a year. It ends with the sandbox.
const MAX_INSIDE_TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Longest media type in a link.
const MAX_MIME_BYTES: usize = 128;

/// In the data directory, readable by its owner only.
const SECRET_FILE: &str = "links.secret";
const SECRET_BYTES: usize = 32;
const VERSION: u8 = 1;
/// 128 bits: they cannot be guessed, and the link stays short.
const MAC_BYTES: usize = 16;
const ID_CHARACTERS: usize = 13;
/// Prefix of the signed data, so that the secret can never sign something of another kind by accident.
const DOMAIN: &[u8] = b"warren link\0";
const FILE: u8 = b'f';
const OUTPUT: u8 = b'o';
const PORT: u8 = b'p';
const INSIDE: u8 = b'i';
const BY_KEY: u8 = b'k';
const BY_NO_KEY: u8 = b'-';

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkTarget {
    File {
        path: String,
    },
    Output {
        exec: ExecId,
        number: u32,
        mime: String,
    },
    /// Connections to a TCP port inside.
    Port {
        port: u16,
    },
    /// Commands, files and ports inside: all that the asker may do there.
    Inside,
}

impl LinkTarget {
    fn max_ttl(&self) -> Duration {
        match self {
            Self::Inside => MAX_INSIDE_TTL,
            Self::File { .. } | Self::Output { .. } | Self::Port { .. } => MAX_LINK_TTL,
        }
    }
}

/// A new link: its token is part of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedLink {
    pub token: String,
    pub expires_at: Timestamp,
}

/// A valid link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLink {
    /// Limited to the sandbox, and to reading where the target is something to read; ends with the key that made the
    /// link.
    pub who: Principal,
    pub sandbox: SandboxId,
    pub target: LinkTarget,
    pub lasts: LinkLasts,
}

/// How long a link lasts, apart from its sandbox and the key that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLasts {
    Until(Timestamp),
    /// As long as its port is public.
    WhilePublic,
    /// As long as the key that the asker itself showed.
    WithItsKey,
}

/// Why a link is refused.
#[derive(Debug)]
pub enum LinkRefused {
    /// It was not made here.
    Forged(Error),
    /// It was valid once.
    Ended(Error),
    /// It would be valid if its sandbox still existed.
    Gone { sandbox: SandboxId, error: Error },
}

/// The secret that signs all links.
pub(crate) struct LinkSecret([u8; SECRET_BYTES]);

impl fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkSecret")
    }
}

impl LinkSecret {
    /// Reads it, or makes it if there is none. If it can be neither read nor stored, links live as long as the daemon.
    pub(crate) fn load(home: &Path) -> Self {
        let path = home.join(SECRET_FILE);
        let loaded = read(&path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => make(&path),
            _ => Err(error),
        });
        Self(loaded.unwrap_or_else(|error| {
            tracing::warn!(
                "the secret of links cannot be stored in {}: {error}; links end with this daemon",
                path.display()
            );
            random().unwrap_or_else(|error| {
                // This value signs and opens nothing.
                tracing::error!("{error}: there are no links");
                [0; SECRET_BYTES]
            })
        }))
    }

    /// A secret that is not stored: what it signs is valid until this daemon ends.
    pub(crate) fn of_this_run() -> Self {
        Self(random().unwrap_or_else(|error| {
            // This value signs and opens nothing.
            tracing::error!("{error}: there are no links for those without a key");
            [0; SECRET_BYTES]
        }))
    }

    fn is_usable(&self) -> bool {
        self.0 != [0; SECRET_BYTES]
    }

    fn mac(&self, domain: &[u8], signed: &[u8]) -> [u8; MAC_BYTES] {
        let whole = hmac(&self.0).chain_update(domain).chain_update(signed).finalize().into_bytes();
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&whole[..MAC_BYTES]);
        mac
    }

    /// A token that carries `claims` in the open. `domain` separates sorts of tokens: none is taken for another.
    pub(crate) fn sign(&self, domain: &[u8], claims: &[u8]) -> Result<String> {
        if !self.is_usable() {
            return Err(Error::new(ErrorKind::Unavailable, "this daemon cannot sign links"));
        }
        let mut token = self.mac(domain, claims).to_vec();
        token.extend_from_slice(claims);
        Ok(URL_SAFE_NO_PAD.encode(token))
    }

    /// The claims of a token that was signed here, in that domain.
    pub(crate) fn open(&self, domain: &[u8], token: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (mac, claims) = bytes.split_first_chunk::<MAC_BYTES>()?;
        let is_ours = bool::from(self.mac(domain, claims).ct_eq(mac));
        (is_ours && self.is_usable()).then(|| claims.to_vec())
    }
}

/// A secret shorter than a block is padded with zeros, per the standard.
fn hmac(secret: &[u8; SECRET_BYTES]) -> Hmac<Sha256> {
    let mut block = Key::<Hmac<Sha256>>::default();
    block[..SECRET_BYTES].copy_from_slice(secret);
    Hmac::new(&block)
}

fn read(path: &Path) -> io::Result<[u8; SECRET_BYTES]> {
    let mut secret = [0; SECRET_BYTES];
    std::fs::File::open(path)?.read_exact(&mut secret)?;
    Ok(secret)
}

fn random() -> io::Result<[u8; SECRET_BYTES]> {
    names::random_bytes().map_err(io::Error::other)
}

/// Written to a temporary file and renamed: a crash leaves the old one, or none, never half of one.
fn make(path: &Path) -> io::Result<[u8; SECRET_BYTES]> {
    let secret = random()?;
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&secret)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    Ok(secret)
}

impl Core {
    /// The secret that signs this caller's links. Those of callers without a key (`--dev`) must not outlast the daemon.
    fn link_signer(&self, who: &Principal) -> &LinkSecret {
        if who.key.is_none() && !who.is_owner { &self.passing_link_secret } else { &self.link_secret }
    }

    fn open_claims(&self, token: &str) -> Option<Claims> {
        let lasting = self.link_secret.open(DOMAIN, token);
        let claims = lasting.or_else(|| self.passing_link_secret.open(DOMAIN, token))?;
        Claims::from_bytes(&claims)
    }
}

impl Engine {
    /// Makes a link for a caller who may see the sandbox. The target's existence is checked when it is opened.
    pub fn sign_link(
        &self,
        who: &Principal,
        sandbox: &SandboxId,
        target: &LinkTarget,
        ttl: Duration,
    ) -> Result<SignedLink> {
        who.may_pass_on()?;
        let core = self.core();
        let found = core.find(who, &SandboxRef::from(sandbox))?;
        let target = &match target {
            LinkTarget::File { path } => {
                LinkTarget::File { path: path_from(&found.status.borrow().record.plan.cwd, path) }
            }
            other => other.clone(),
        };
        check_target(target)?;
        let expires_at = later(core.clock.now(), ttl.clamp(Duration::from_secs(1), target.max_ttl()));
        let claims =
            Claims { sandbox: sandbox.clone(), key: who.key.clone(), expires_at, target: target.clone() };
        let token = core.link_signer(who).sign(DOMAIN, &claims.to_bytes())?;
        Ok(SignedLink { token, expires_at: claims.expires_at })
    }

    /// Opens a link if it is valid: made here, not expired, its key not ended, its sandbox there.
    pub fn open_link(&self, token: &str) -> Result<OpenLink, LinkRefused> {
        let core = self.core();
        let forged = || LinkRefused::Forged(no_such_link());
        let Claims { sandbox, key, expires_at, target } = core.open_claims(token).ok_or_else(forged)?;
        if core.clock.now() >= expires_at {
            return Err(LinkRefused::Ended(
                Error::not_found("this link has expired").with_hint("Ask for a new one."),
            ));
        }
        let asker = match &key {
            None => Some(Principal::developer("a link")),
            Some(id) => core.keys.principal(id, core.clock.now()),
        };
        let ended = || LinkRefused::Ended(no_such_link());
        let asker = asker.ok_or_else(ended)?;
        let Ok(found) = core.find(&asker, &SandboxRef::from(&sandbox)) else {
            return Err(LinkRefused::Gone { sandbox, error: no_such_link() });
        };
        let who = holder(asker, found.subject.namespace.clone(), &sandbox, &target);
        Ok(OpenLink { who, sandbox, target, lasts: LinkLasts::Until(expires_at) })
    }

    /// Returns when a link ends by itself. Its key's end is [`Engine::principal_ended`].
    #[crate::boxed]
    pub async fn link_ended(&self, link: &OpenLink) {
        match (link.lasts, &link.target) {
            (LinkLasts::Until(at), _) => self.core().clock.sleep_until(at).await,
            (LinkLasts::WhilePublic, LinkTarget::Port { port }) => {
                self.public_port_ended(&link.sandbox, *port).await;
            }
            (LinkLasts::WhilePublic | LinkLasts::WithItsKey, _) => std::future::pending().await,
        }
    }
}

/// The holder of a link sees its sandbox only, and never does what the asker could not.
fn holder(asker: Principal, namespace: Namespace, id: &SandboxId, target: &LinkTarget) -> Principal {
    let access = match target {
        LinkTarget::File { .. } | LinkTarget::Output { .. } => Access::ReadOnly,
        LinkTarget::Port { .. } | LinkTarget::Inside => asker.access,
    };
    let name = match &asker.key {
        Some(_) => format!("a link of {}", asker.name),
        None => asker.name,
    };
    Principal {
        name,
        scope: Scope::Sandbox { namespace, id: id.clone() },
        key: asker.key,
        access,
        quota: Quota::default(),
        network: asker.network,
        is_owner: false,
        session: None,
        share: None,
    }
}

fn check_target(target: &LinkTarget) -> Result<()> {
    match target {
        LinkTarget::File { path } => checked(path).map(drop),
        LinkTarget::Output { mime, .. } if mime.len() > MAX_MIME_BYTES => {
            Err(Error::invalid(format!("a media type of {} bytes", mime.len())))
        }
        LinkTarget::Port { port: 0 } => Err(Error::invalid("0 is not a port")),
        LinkTarget::Output { .. } | LinkTarget::Port { .. } | LinkTarget::Inside => Ok(()),
    }
}

/// The same words for a link that was never made, is gone, or whose key has ended.
fn no_such_link() -> Error {
    Error::not_found("no such link").with_hint(
        "A link ends when it expires, or with its sandbox or the key that created it. Ask for a new one.",
    )
}

/// The content of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claims {
    sandbox: SandboxId,
    key: Option<KeyId>,
    expires_at: Timestamp,
    target: LinkTarget,
}

impl Claims {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.expires_at.as_second().to_be_bytes());
        match &self.key {
            Some(key) => {
                bytes.push(BY_KEY);
                bytes.extend_from_slice(tail(key.as_str(), KeyId::PREFIX));
            }
            None => bytes.push(BY_NO_KEY),
        }
        bytes.extend_from_slice(tail(self.sandbox.as_str(), SandboxId::PREFIX));
        match &self.target {
            LinkTarget::File { path } => {
                bytes.push(FILE);
                bytes.extend_from_slice(path.as_bytes());
            }
            LinkTarget::Output { exec, number, mime } => {
                bytes.push(OUTPUT);
                bytes.extend_from_slice(tail(exec.as_str(), ExecId::PREFIX));
                bytes.extend_from_slice(&number.to_be_bytes());
                bytes.extend_from_slice(mime.as_bytes());
            }
            LinkTarget::Port { port } => {
                bytes.push(PORT);
                bytes.extend_from_slice(&port.to_be_bytes());
            }
            LinkTarget::Inside => bytes.push(INSIDE),
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        if rest.take::<1>()? != [VERSION] {
            return None;
        }
        let expires_at = Timestamp::from_second(i64::from_be_bytes(rest.take()?)).ok()?;
        let key = match rest.take::<1>()? {
            [BY_KEY] => Some(rest.id(KeyId::PREFIX)?.parse().ok()?),
            [BY_NO_KEY] => None,
            _ => return None,
        };
        let sandbox = rest.id(SandboxId::PREFIX)?.parse().ok()?;
        let target = match rest.take::<1>()? {
            [FILE] => LinkTarget::File { path: rest.text()? },
            [OUTPUT] => LinkTarget::Output {
                exec: rest.id(ExecId::PREFIX)?.parse().ok()?,
                number: u32::from_be_bytes(rest.take()?),
                mime: rest.text()?,
            },
            [PORT] => LinkTarget::Port { port: u16::from_be_bytes(rest.take()?) },
            [INSIDE] => LinkTarget::Inside,
            _ => return None,
        };
        Some(Self { sandbox, key, expires_at, target })
    }
}

/// An id without the prefix of its kind.
fn tail<'a>(id: &'a str, prefix: &str) -> &'a [u8] {
    id.strip_prefix(prefix).unwrap_or(id).as_bytes()
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn id(&mut self, prefix: &str) -> Option<String> {
        let tail = self.take::<ID_CHARACTERS>()?;
        Some(format!("{prefix}{}", std::str::from_utf8(&tail).ok()?))
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(std::mem::take(&mut self.0).to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::events::Subject;

    #[test]
    fn the_mac_is_that_of_the_standard() {
        // RFC 4231, test case 2.
        let mut secret = [0; SECRET_BYTES];
        secret[..4].copy_from_slice(b"Jefe");
        let mac = hmac(&secret).chain_update(b"what do ya want for nothing?").finalize().into_bytes();
        let hex: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn claims_read_back_as_themselves() {
        let sandbox = SandboxId::from_random([7; 8]);
        let expires_at = Timestamp::from_second(1_800_000_000).unwrap();
        for key in [None, Some(KeyId::from_random([3; 8]))] {
            for target in [
                LinkTarget::File { path: "/a/ü \n\"x".to_owned() },
                LinkTarget::Output {
                    exec: ExecId::from_random([9; 8]),
                    number: 4,
                    mime: "image/png".to_owned(),
                },
                LinkTarget::Port { port: 8000 },
                LinkTarget::Inside,
            ] {
                let claims = Claims { sandbox: sandbox.clone(), key: key.clone(), expires_at, target };
                let bytes = claims.to_bytes();
                assert_eq!(Claims::from_bytes(&bytes), Some(claims));
                let shortest = bytes.len().min(9 + 1 + 13 + 1);
                (0..shortest).for_each(|n| assert_eq!(Claims::from_bytes(&bytes[..n]), None, "{n} bytes"));
            }
        }
    }

    #[test]
    fn the_holder_of_a_link_sees_one_sandbox_and_does_no_more_than_its_asker() {
        let namespace = Namespace::default();
        let subject =
            |byte| Subject { id: SandboxId::from_random([byte; 8]), namespace: Namespace::default() };
        let (own, other) = (subject(1), subject(2));
        let asker = Principal::developer("dev");
        let reader = Principal { access: Access::ReadOnly, ..asker.clone() };
        for (target, access) in [
            (LinkTarget::File { path: "/a".to_owned() }, Access::ReadOnly),
            (LinkTarget::Port { port: 80 }, Access::ReadWrite),
            (LinkTarget::Inside, Access::ReadWrite),
        ] {
            let who = holder(asker.clone(), namespace.clone(), &own.id, &target);
            assert!(who.sees_sandbox(&own, None) && !who.sees_sandbox(&other, None));
            assert!(!who.sees(&namespace) && who.may_create_in(&namespace).is_err() && !who.is_owner);
            assert_eq!(who.access, access);
            assert_eq!(holder(reader.clone(), namespace.clone(), &own.id, &target).access, Access::ReadOnly);
        }
    }

    #[test]
    fn the_secret_is_made_once_and_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let first = LinkSecret::load(home.path());
        assert_eq!(LinkSecret::load(home.path()).0, first.0);
        let mode = std::fs::metadata(home.path().join(SECRET_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(format!("{first:?}"), "LinkSecret");
        // Half a secret, after the disk was full.
        std::fs::write(home.path().join(SECRET_FILE), "short").unwrap();
        let second = LinkSecret::load(home.path());
        assert!(second.0 != first.0 && LinkSecret::load(home.path()).0 == second.0);
        // Nowhere to store it.
        let nowhere = LinkSecret::load(&home.path().join("missing"));
        assert!(nowhere.is_usable() && nowhere.0 != second.0);
    }
}
