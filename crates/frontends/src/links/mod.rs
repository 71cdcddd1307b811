//! Links to what is in a sandbox, for whoever has none of our keys: a browser, a chat client, a person.
//!
//! The engine signs them and says what one opens; here is how they look, and how what they lead to is served so that
//! nothing of it ever runs with the rights of our own pages.

mod answer;
mod changed;
mod media;
mod media_type;
mod name;
mod range;
mod uri;

use std::{str::FromStr, sync::Arc, time::Duration};

use engine::{Engine, LinkTarget, Principal, SandboxView, SignedLink};
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, ExecId, Next, Result, SandboxId};

use crate::{
    code::Searches,
    ports::{self, PortDomain},
};

pub(crate) use self::{
    answer::answer,
    changed::ChangedFiles,
    media_type::media_type,
    name::disposition,
    range::{Part as FilePart, Version},
    uri::{file_uri, output_uri, sandbox_uri},
};

/// The prefix of links.
pub(crate) const PATH: &str = "/v1/links/";
/// How long a link holds when nobody says otherwise: long enough to be read, short enough for a log to forget.
pub const DEFAULT_LINK_TTL: Duration = Duration::from_secs(60 * 60);

/// The operator's settings for links.
#[derive(Debug, Clone)]
pub struct LinkSettings {
    pub ttl: Duration,
    /// The address at which clients reach the daemon, when that is not where they happen to ask.
    pub public: Option<BaseUrl>,
    /// The daemon's address on TCP, for those who ask by other ways.
    pub listener: Option<BaseUrl>,
    /// The domain below which servers inside have their host names, beside `localhost`.
    pub port_domain: Option<PortDomain>,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self { ttl: DEFAULT_LINK_TTL, public: None, listener: None, port_domain: None }
    }
}

/// The part of an address that all links begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    /// Returns the base of a request whose host was found to be one of ours.
    pub(crate) fn of_host(is_tls: bool, host: &str) -> Self {
        Self(format!("{}://{host}", if is_tls { "https" } else { "http" }))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl FromStr for BaseUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!("{:?} is not a server URL", text.chars().take(128).collect::<String>()))
                .with_hint("Give scheme and host, with a port or a path if needed: https://warren.example.")
        };
        let base = text.trim_end_matches('/');
        let rest =
            base.strip_prefix("https://").or_else(|| base.strip_prefix("http://")).ok_or_else(wrong)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]%".contains(&byte);
        if rest.is_empty() || rest.starts_with('/') || !rest.bytes().all(is_plain) {
            return Err(wrong());
        }
        Ok(Self(base.to_owned()))
    }
}

/// Makes links. Clones are the same.
#[derive(Debug, Clone)]
pub struct Links {
    engine: Engine,
    settings: Arc<LinkSettings>,
    searches: Searches,
}

impl Links {
    pub fn new(engine: Engine, settings: LinkSettings) -> Self {
        Self { engine, settings: Arc::new(settings), searches: Searches::default() }
    }

    /// The engine, and the searches for outputs that links lead to.
    pub(crate) fn outputs(&self) -> (&Engine, &Searches) {
        (&self.engine, &self.searches)
    }

    /// Links for one asker. `base`: where it asked, on TCP.
    pub(crate) fn of(&self, who: &Principal, base: Option<&BaseUrl>) -> AskersLinks {
        let LinkSettings { public, listener, .. } = &*self.settings;
        let base = public.as_ref().or(base).or(listener.as_ref()).cloned();
        AskersLinks { links: self.clone(), who: who.clone(), base }
    }
}

/// Links that are bound to whoever asked for them.
#[derive(Debug, Clone)]
pub(crate) struct AskersLinks {
    links: Links,
    who: Principal,
    /// Absent where no browser reaches the daemon.
    base: Option<BaseUrl>,
}

/// Links of one asker to what is in one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct SandboxLinks {
    links: AskersLinks,
    sandbox: SandboxId,
}

impl SandboxLinks {
    pub(crate) fn url_for_file(&self, path: &str) -> Option<String> {
        self.links.url_for_file(&self.sandbox, path)
    }

    pub(crate) fn url_for_output(&self, exec: &ExecId, number: u32, mime: &str) -> Option<String> {
        self.links.url_for_output(&self.sandbox, exec, number, mime)
    }
}

impl AskersLinks {
    /// Returns the host at which the asker reaches the daemon, without the scheme.
    pub(crate) fn host(&self) -> Result<&str> {
        let base = self.base()?;
        Ok(base.split_once("://").map_or(base, |(_, host)| host))
    }

    /// The address of the dashboard, with what its page is told after the `#`: no server and no log sees that.
    pub(crate) fn page(&self, told: &str) -> Result<String> {
        Ok(format!("{}/#{told}", self.base()?))
    }

    /// Returns the links to what is in one sandbox.
    pub(crate) fn to(self, sandbox: &SandboxId) -> SandboxLinks {
        SandboxLinks { links: self, sandbox: sandbox.clone() }
    }

    pub(crate) fn url_for_file(&self, sandbox: &SandboxId, path: &str) -> Option<String> {
        let target = LinkTarget::File { path: path.to_owned() };
        self.quietly(sandbox, &target)
    }

    pub(crate) fn url_for_output(
        &self,
        sandbox: &SandboxId,
        exec: &ExecId,
        number: u32,
        mime: &str,
    ) -> Option<String> {
        let target = LinkTarget::Output { exec: exec.clone(), number, mime: mime.to_owned() };
        self.quietly(sandbox, &target)
    }

    /// An answer does without a link that cannot be made.
    fn quietly(&self, sandbox: &SandboxId, target: &LinkTarget) -> Option<String> {
        self.base.as_ref()?;
        self.sign(sandbox, target, None).ok().map(|(url, _)| url)
    }

    /// The right to one thing in a sandbox, for as long as links hold unless `ttl` says otherwise.
    pub(crate) fn token(
        &self,
        sandbox: &SandboxId,
        target: &LinkTarget,
        ttl: Option<Duration>,
    ) -> Result<SignedLink> {
        let Links { engine, settings, .. } = &self.links;
        engine.sign_link(&self.who, sandbox, target, ttl.unwrap_or(settings.ttl))
    }

    fn base(&self) -> Result<&str> {
        self.base.as_ref().map(|BaseUrl(base)| base.as_str()).ok_or_else(|| {
            Error::new(
                ErrorKind::WrongState,
                "this daemon does not listen on TCP, so links to it cannot work",
            )
            .with_next(Next::Listen)
        })
    }

    /// The address, and how long it holds.
    pub(crate) fn sign(
        &self,
        sandbox: &SandboxId,
        target: &LinkTarget,
        ttl: Option<Duration>,
    ) -> Result<(String, Timestamp)> {
        let base = self.base()?;
        let signed = self.token(sandbox, target, ttl)?;
        let name = match target {
            LinkTarget::File { path } => name::encode(name::of_path(path)),
            LinkTarget::Output { number, mime, .. } => name::of_output(*number, mime),
            LinkTarget::Port { .. } | LinkTarget::Inside => {
                return Err(Error::invalid("only files and outputs have an address here"));
            }
        };
        Ok((format!("{base}{PATH}{}/{name}", signed.token), signed.expires_at))
    }
}

/// The address of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortAddress {
    /// With the token, where there is one.
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) expires_at: Option<Timestamp>,
}

impl AskersLinks {
    /// The address of a port: on a host of its own where the daemon has such names, else below a path.
    pub(crate) fn for_port(
        &self,
        sandbox: &SandboxView,
        port: u16,
        ttl: Option<Duration>,
        is_public: bool,
    ) -> Result<PortAddress> {
        let base = self.base()?;
        let own_host =
            ports::url(&ports::label(&sandbox.id, port), base, self.links.settings.port_domain.as_ref());
        let bare =
            own_host.clone().unwrap_or_else(|| format!("{base}/v1/sandboxes/{}/ports/{port}/", sandbox.id));
        if is_public && own_host.is_some() {
            return Ok(PortAddress { url: bare, token: None, expires_at: None });
        }
        let signed = self.token(&sandbox.id, &LinkTarget::Port { port }, ttl)?;
        // Below a path the token is sent in a header only: an address in our own origin must not carry a right.
        let url = match own_host {
            Some(_) => format!("{bare}?{}={}", ports::TOKEN_PARAMETER, signed.token),
            None => bare,
        };
        Ok(PortAddress { url, token: Some(signed.token), expires_at: Some(signed.expires_at) })
    }
}

/// A request's path as it may stand in a log, a message or the audit: without the token, which is a right.
pub(crate) fn shown_path(path: &str) -> &str {
    if path.starts_with(PATH) { "/v1/links/…" } else { path }
}

/// The token in a path, if it is a link's.
pub(crate) fn token_of(path: &str) -> Option<&str> {
    path.strip_prefix(PATH).map(|rest| rest.split('/').next().unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_are_servers() {
        for (text, base) in [
            ("https://warren.example", "https://warren.example"),
            ("http://[::1]:5555/", "http://[::1]:5555"),
            ("https://a.example/warren/", "https://a.example/warren"),
        ] {
            assert_eq!(text.parse::<BaseUrl>().unwrap().0, base);
        }
        for text in ["", "warren.example", "ftp://a", "https://", "https:///x", "http://a?b", "http://a b"] {
            assert!(text.parse::<BaseUrl>().unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn tokens_are_found_and_never_shown() {
        assert_eq!(token_of("/v1/links/abc/x.png"), Some("abc"));
        assert_eq!(token_of("/v1/links/abc"), Some("abc"));
        assert_eq!(token_of("/v1/sandboxes"), None);
        assert_eq!(shown_path("/v1/links/abc/x.png"), "/v1/links/…");
        assert_eq!(shown_path("/v1/links"), "/v1/links");
    }
}
