//! How a gateway is configured.

use std::{fmt, path::PathBuf, time::Duration};

use url::Url;

use crate::error::GatewayError;

const PUBLIC_PIP_INDEX: &str = "https://pypi.org/simple/";
const PUBLIC_NPM_REGISTRY: &str = "https://registry.npmjs.org/";

/// 10 GiB: some hundred of the largest wheels, or everything that ordinary agents install in months.
const DEFAULT_MAX_CACHE_BYTES: u64 = 10 << 30;

/// As long as PyPI itself lets caches keep its pages.
const DEFAULT_FRESH_FOR: Duration = Duration::from_secs(600);

/// Everything that a gateway may reach, and how. Credentials may stand in the addresses; they stay on the host and are
/// sent to that index only.
#[derive(Clone)]
pub struct GatewayConfig {
    /// A directory of its own; made when it does not exist.
    pub cache: PathBuf,
    pub max_cache_bytes: u64,
    /// The "simple" index, with or without a slash at its end.
    pub pip_index: Url,
    pub npm_registry: Url,
    /// Only for apt's sources, as apt's own setting is.
    pub apt_proxy: Option<Url>,
    /// Base addresses that sandboxes may reach as `/apt/<n>/`, in order.
    pub apt_sources: Vec<Url>,
    /// How long pages are used without asking whether they changed.
    pub fresh_for: Duration,
    /// Besides those in the addresses themselves.
    pub credentials: Vec<Credential>,
    /// Hosts (`name`, or `name:port`) that pages may name although their addresses are private. The indexes themselves
    /// need no mention.
    pub also_reach: Vec<String>,
    pub proxies: Proxies,
    pub patience: Patience,
}

impl GatewayConfig {
    /// The public indexes, no apt source, no proxy.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self {
            cache: cache.into(),
            max_cache_bytes: DEFAULT_MAX_CACHE_BYTES,
            pip_index: known(PUBLIC_PIP_INDEX),
            npm_registry: known(PUBLIC_NPM_REGISTRY),
            apt_proxy: None,
            apt_sources: Vec::new(),
            fresh_for: DEFAULT_FRESH_FOR,
            credentials: Vec::new(),
            also_reach: Vec::new(),
            proxies: Proxies::default(),
            patience: Patience::default(),
        }
    }
}

#[expect(clippy::unwrap_used, reason = "called with the constants above only, which a test parses")]
fn known(address: &str) -> Url {
    Url::parse(address).unwrap()
}

// By hand, since `Url` shows passwords.
impl fmt::Debug for GatewayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let apt_sources: Vec<_> = self.apt_sources.iter().map(shown).collect();
        f.debug_struct("GatewayConfig")
            .field("cache", &self.cache)
            .field("max_cache_bytes", &self.max_cache_bytes)
            .field("pip_index", &shown(&self.pip_index))
            .field("npm_registry", &shown(&self.npm_registry))
            .field("apt_proxy", &self.apt_proxy.as_ref().map(shown))
            .field("apt_sources", &apt_sources)
            .field("fresh_for", &self.fresh_for)
            .field("also_reach", &self.also_reach)
            .finish_non_exhaustive()
    }
}

/// The package manager of an index. A host that is configured for one manager is not trusted for another, nor sent its
/// credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    Pip,
    Npm,
    Apt,
}

impl Manager {
    pub(crate) const ALL: [Self; 3] = [Self::Pip, Self::Npm, Self::Apt];
}

/// Credentials for the configured indexes on one host.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// `None`: for every manager that has its index there.
    pub manager: Option<Manager>,
    pub host: String,
    /// `None`: on any port.
    pub port: Option<u16>,
    /// The value of the `Authorization` header.
    pub authorization: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("manager", &self.manager)
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Proxies of the daemon itself.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    pub http: Option<Url>,
    pub https: Option<Url>,
    /// The words of `NO_PROXY`: host names, domains with or without a leading dot, addresses, `*`.
    pub except: Vec<String>,
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxies")
            .field("http", &self.http.as_ref().map(shown))
            .field("https", &self.https.as_ref().map(shown))
            .field("except", &self.except)
            .finish()
    }
}

/// How long to wait for an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For a connection, including TLS and a proxy's answer.
    pub connect: Duration,
    /// From the request to the head of the answer.
    pub answer: Duration,
    /// Between two pieces of a body.
    pub silence: Duration,
    /// For the whole of a page.
    pub page: Duration,
    /// For the whole of a file.
    pub file: Duration,
    /// How long an index that was away is not asked again, if the cache has an older copy.
    pub away: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            silence: Duration::from_secs(30),
            page: Duration::from_secs(90),
            file: Duration::from_secs(3600),
            away: Duration::from_secs(15),
        }
    }
}

/// An address for messages: no user, no password, no query (signed links carry secrets there).
pub(crate) fn shown(url: &Url) -> String {
    let mut url = bare(url);
    url.set_query(None);
    url.into()
}

/// Without user, password and fragment.
pub(crate) fn bare(url: &Url) -> Url {
    let mut url = url.clone();
    // These fail only for addresses that can have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    url
}

/// An address to which names can be joined: http or https, a slash at its end, no credentials.
pub(crate) fn base(url: &Url) -> Result<Url, GatewayError> {
    let refused = |reason| GatewayError::Address { address: shown(url), reason };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("it is neither http nor https"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(refused("it names no host"));
    }
    let mut base = bare(url);
    base.set_query(None);
    if !base.path().ends_with('/') {
        base.set_path(&format!("{}/", base.path()));
    }
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_indexes_are_addresses() {
        let config = GatewayConfig::new("/nowhere");
        assert_eq!(base(&config.pip_index).unwrap().as_str(), "https://pypi.org/simple/");
        assert_eq!(base(&config.npm_registry).unwrap().as_str(), "https://registry.npmjs.org/");
    }

    #[test]
    fn credentials_are_not_shown() {
        let mut config = GatewayConfig::new("/nowhere");
        config.pip_index = "https://me:secret@index.example/simple?token=hidden".parse().unwrap();
        config.proxies.https = Some("http://me:secret@proxy.example".parse().unwrap());
        config.credentials.push(Credential {
            manager: None,
            host: "index.example".to_owned(),
            port: None,
            authorization: "Bearer secret".to_owned(),
        });
        let told =
            format!("{config:?} {:?} {:?} {}", config.proxies, config.credentials, shown(&config.pip_index));
        assert!(!told.contains("secret") && !told.contains("hidden"), "{told}");
    }

    #[test]
    fn only_addresses_on_http_are_bases() {
        for wrong in ["file:///srv/index/", "ftp://index.example/", "data:text/plain,x"] {
            assert!(base(&wrong.parse().unwrap()).is_err(), "{wrong}");
        }
        let url = "http://index.example/simple#here".parse().unwrap();
        assert_eq!(base(&url).unwrap().as_str(), "http://index.example/simple/");
    }
}
