//! The package indexes that sandboxes reach: those in the configuration, else the host's own, else the public ones.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use engine::{GatewayStats, PackageGateway, PackagesCache, PortStream};
use futures_util::future::BoxFuture;
use gateway::{AptSource, ClientId, Gateway, GatewayConfig, HostPackages, Scope, SignedBy, Url};
use sandbox::{Error, ErrorKind, PackageManager, Result, SandboxId};

use crate::config::Config;

/// Directory in the data directory with fetched packages, by content.
const CACHE_DIRECTORY: &str = "packages";

/// The sources of packages.
pub(crate) struct Indexes {
    pub(crate) gateway: GatewayConfig,
    apt: Vec<AptSource>,
    /// Notes about settings of the host that are not used, as sentences.
    pub(crate) notes: Vec<String>,
}

impl Indexes {
    pub(crate) fn find(config: &Config, home: &Path) -> Result<Self> {
        let mut host = HostPackages::read();
        if let Some(lines) = &config.apt_sources {
            host.apt_sources.clear();
            for line in lines {
                let source = apt_source(line, &host.apt_bases()).ok_or_else(|| {
                    // Not repeated: it may hold a password.
                    let number = host.apt_sources.len() + 1;
                    Error::invalid(format!("line {number} of apt.sources is not a valid source"))
                        .with_hint("Write it as \"deb http://deb.debian.org/debian stable main\".")
                })?;
                host.apt_sources.push(source);
            }
        }
        let mut gateway = GatewayConfig::for_host(home.join(CACHE_DIRECTORY), &host);
        let Config { pip_index, npm_registry, apt_proxy, max_cache, also_reach, .. } = config.clone();
        gateway.pip_index = pip_index.unwrap_or(gateway.pip_index);
        gateway.npm_registry = npm_registry.unwrap_or(gateway.npm_registry);
        gateway.apt_proxy = apt_proxy.or(gateway.apt_proxy);
        gateway.also_reach = also_reach;
        gateway.max_cache_bytes = max_cache.map_or(gateway.max_cache_bytes, |size| size.bytes());
        Ok(Self { gateway, apt: host.apt_sources, notes: host.notes })
    }

    /// A summary in one line, without credentials.
    pub(crate) fn describe(&self) -> String {
        let mut hosts: Vec<_> = self.apt.iter().map(|source| shown(&source.uri)).collect();
        hosts.dedup();
        let apt = if hosts.is_empty() { "no source".to_owned() } else { hosts.join(", ") };
        let proxy = self.gateway.apt_proxy.as_ref();
        let proxy = proxy.map(|proxy| format!(" through {}", shown(proxy))).unwrap_or_default();
        let (pip, npm) = (shown(&self.gateway.pip_index), shown(&self.gateway.npm_registry));
        format!("pip from {pip}, npm from {npm}, apt from {apt}{proxy}")
    }
}

/// An address for people: no user, no password, no query.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // These fail only for addresses that cannot have either.
    url.set_username("").ok();
    url.set_password(None).ok();
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// `deb [option=value …] address suite component…`
fn apt_source(line: &str, bases: &[Url]) -> Option<AptSource> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_ascii_whitespace().map(str::to_owned);
    let mut uri = Url::parse(&words.next()?).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    if !uri.path().ends_with('/') {
        uri.set_path(&format!("{}/", uri.path()));
    }
    let number = bases.iter().position(|base| *base == uri).unwrap_or(bases.len());
    let mut source = AptSource {
        number,
        uri,
        suites: vec![words.next()?],
        components: words.collect(),
        architectures: Vec::new(),
        signed_by: None,
        is_trusted: false,
    };
    for option in options.split_ascii_whitespace() {
        let (name, value) = option.split_once('=')?;
        let values = value.split(',').map(str::to_owned).collect();
        match name {
            "arch" => source.architectures = values,
            "signed-by" => source.signed_by = Some(SignedBy::Keys(values)),
            "trusted" => source.is_trusted = value == "yes",
            _ => return None,
        }
    }
    Some(source)
}

/// The gateway of a daemon, opened when packages are first needed: most daemons never need it, and it costs memory.
#[derive(Debug)]
pub(crate) struct HostGateway {
    config: Config,
    home: PathBuf,
    opened: Mutex<Option<Arc<Opened>>>,
}

#[derive(Debug)]
struct Opened {
    gateway: Gateway,
    apt: Vec<AptSource>,
}

impl HostGateway {
    pub(crate) fn new(config: Config, home: &Path) -> Self {
        Self { config, home: home.to_owned(), opened: Mutex::default() }
    }

    fn opened(&self) -> Result<Arc<Opened>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(Arc::clone(opened));
        }
        let Indexes { gateway, apt, .. } = Indexes::find(&self.config, &self.home)?;
        let gateway = Gateway::open(gateway).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot fetch packages: {error}"))
                .with_hint("`warren doctor` shows which indexes are used.")
                .with_source(error)
        })?;
        Ok(Arc::clone(opened.insert(Arc::new(Opened { gateway, apt }))))
    }
}

impl PackageGateway for HostGateway {
    fn open(&self) -> Result<()> {
        self.opened().map(drop)
    }

    fn serve(
        &self,
        client: PortStream,
        manager: Option<PackageManager>,
        sandbox: &SandboxId,
    ) -> BoxFuture<'static, ()> {
        let id = ClientId::new(sandbox.to_string());
        let opened = self.opened();
        let may = |wanted| manager.is_none_or(|manager| manager == wanted);
        let scope = Scope {
            pip: may(PackageManager::Pip),
            npm: may(PackageManager::Npm),
            apt: may(PackageManager::Apt),
        };
        Box::pin(async move {
            match opened {
                Ok(opened) => opened.gateway.serve(client, scope, id).await,
                Err(error) => tracing::warn!(%error, "refused a client of the package gateway"),
            }
        })
    }

    fn cache(&self) -> Option<PackagesCache> {
        let mut found = PackagesCache { files: 0, bytes: 0 };
        count(&self.home.join(CACHE_DIRECTORY), &mut found).ok()?;
        Some(found)
    }

    fn stats(&self) -> Option<GatewayStats> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let stats = opened.gateway.stats();
        Some(GatewayStats {
            requests: stats.requests,
            hits: stats.hits,
            misses: stats.misses,
            stale: stats.stale,
            mismatches: stats.mismatches,
            errors: stats.errors,
            bytes_fetched: stats.bytes_fetched,
            bytes_served: stats.bytes_served,
        })
    }

    fn apt_sources(&self, gateway: &str) -> Result<String> {
        let opened = self.opened()?;
        if opened.apt.is_empty() {
            return Err(Error::new(ErrorKind::Unsupported, "no apt source is configured")
                .with_hint("Set apt.sources in the daemon's configuration."));
        }
        let stanzas: Vec<_> = opened.apt.iter().map(|source| source.stanza(gateway)).collect();
        Ok(stanzas.join("\n"))
    }
}

/// Counts the files beneath a directory of the daemon's own. Files may go meanwhile.
fn count(directory: &Path, found: &mut PackagesCache) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(about) if about.is_dir() => count(&entry.path(), found).unwrap_or_default(),
            Ok(about) => {
                found.files += 1;
                found.bytes += about.len();
            }
            Err(_gone) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_apt_writes_them() {
        let bases = [Url::parse("http://a.example/debian/").unwrap()];
        let source =
            apt_source("deb [trusted=yes arch=amd64] http://a.example/debian stable main", &bases).unwrap();
        assert_eq!((source.number, source.is_trusted), (0, true));
        assert_eq!((source.suites.join(" "), source.components.join(" ")), ("stable".into(), "main".into()));
        assert_eq!(apt_source("deb http://b.example ./", &bases).unwrap().number, 1);
        for wrong in
            ["", "deb", "deb http://x", "deb-src http://x y z", "deb ftp://x y", "deb [x=y] http://x y"]
        {
            assert!(apt_source(wrong, &bases).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_used_is_told_without_credentials() {
        let home = tempfile::tempdir().unwrap();
        let secret = |text: &str| Some(Url::parse(text).unwrap());
        let config = Config {
            pip_index: secret("https://me:secret@index.example/simple?token=secret"),
            apt_proxy: secret("http://me:secret@proxy.example/"),
            apt_sources: Some(vec!["deb http://me:secret@deb.example/debian stable main".to_owned()]),
            ..Config::default()
        };
        let told = Indexes::find(&config, home.path()).unwrap().describe();
        assert!(told.contains("https://index.example/simple") && told.contains("deb.example"), "{told}");
        assert!(told.contains("through http://proxy.example/") && !told.contains("secret"), "{told}");
    }
}
