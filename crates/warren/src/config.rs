//! The daemon's configuration file: which package indexes sandboxes reach, where images come from, how many snapshots
//! may exist. Optional; without it the host's own settings apply.

mod backends;
mod defaults;
mod events;
mod images;
mod mcp_sandbox;
mod metrics;
mod network;
mod pool;
mod ports;
mod snapshots;
mod ssh;
mod volumes;

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use ::backends::namespace::PoolConfig;
use clap::ValueEnum as _;
use gateway::Url;
use rustix::fs::{Mode, OFlags};
use sandbox::{ByteSize, Error, ErrorKind, Result};
use toml::{Table, Value};

pub(crate) use self::{
    backends::{BackendsConfig, ProgramChoice},
    defaults::DefaultsConfig,
    events::{EventsConfig, Webhook},
    images::ImagesConfig,
    mcp_sandbox::McpSandboxConfig,
    metrics::MetricsConfig,
    network::NetworkConfig,
    ports::PortsConfig,
    snapshots::SnapshotsConfig,
    ssh::SshConfig,
    volumes::VolumesConfig,
};
use crate::{
    daemon::{AlsoListen, LogFormat},
    env, output,
};

const SYSTEM_FILE: &str = "/etc/warren/config.toml";
/// Largest file that is read. Most files have a few lines.
const MAX_BYTES: u64 = 1024 * 1024;
/// How similar an unknown key must be to a known one to be suggested.
const LIKENESS: f64 = 0.6;

/// Every known key.
const KEYS: &[&str] = &[
    "serve.also_listen",
    "pip.index_url",
    "npm.registry",
    "apt.proxy",
    "apt.sources",
    "packages.enabled",
    "packages.max_cache",
    "packages.also_reach",
    "images.max_disk",
    "images.mirrors",
    "images.insecure",
    "images.registries",
    "images.ca_files",
    "snapshots.max_count",
    "snapshots.max_count_per_key",
    "snapshots.max_archive",
    "volumes.max_count",
    "volumes.max_count_per_key",
    "volumes.max_size_per_key",
    "backends.oci",
    "backends.gvisor",
    "backends.process",
    "network.ceiling",
    "network.ceiling_rules",
    "network.proxy",
    "pool.size",
    "pool.from_rate",
    "ports.domain",
    "ports.publish_on",
    "ssh.listen",
    "ssh.trusted_user_ca",
    "ssh.accept_env",
    "ssh.new",
    "ssh.new_image",
    "defaults.idle",
    "metrics.listen",
    "log.format",
    "events.webhook",
    "events.secret_file",
    "events.secret_env",
    "events.kinds",
];

/// The sections that a file may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Own,
    /// Those of mcp-sandbox too.
    McpSandbox,
}

/// The contents of the file.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Config {
    /// The file, if there is one.
    pub(crate) path: Option<PathBuf>,
    /// Further listeners on TCP.
    pub(crate) also_listen: Vec<AlsoListen>,
    pub(crate) pip_index: Option<Url>,
    pub(crate) npm_registry: Option<Url>,
    pub(crate) apt_proxy: Option<Url>,
    /// Lines of a `sources.list`.
    pub(crate) apt_sources: Option<Vec<String>>,
    pub(crate) packages_disabled: bool,
    pub(crate) max_cache: Option<ByteSize>,
    /// Hosts that package indexes may name although their addresses are private.
    pub(crate) also_reach: Vec<String>,
    pub(crate) images: ImagesConfig,
    pub(crate) snapshots: SnapshotsConfig,
    pub(crate) volumes: VolumesConfig,
    pub(crate) backends: BackendsConfig,
    pub(crate) network: NetworkConfig,
    pub(crate) pool: PoolConfig,
    pub(crate) ports: PortsConfig,
    pub(crate) ssh: SshConfig,
    pub(crate) defaults: DefaultsConfig,
    pub(crate) metrics: MetricsConfig,
    pub(crate) events: EventsConfig,
    pub(crate) log_format: Option<LogFormat>,
    /// Only where the file may be one of mcp-sandbox.
    pub(crate) mcp_sandbox: McpSandboxConfig,
}

// Written by hand because addresses may hold passwords.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Config {
    /// Reads the file given by flag or variable; else the one at the default path, if it exists.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self> {
        Self::load_form(named, Form::Own)
    }

    /// The same; the file may be one of mcp-sandbox.
    pub(crate) fn load_mcp_sandbox(named: Option<&Path>) -> Result<Self> {
        Self::load_form(named, Form::McpSandbox)
    }

    fn load_form(named: Option<&Path>, form: Form) -> Result<Self> {
        let named = named.map(Path::to_owned).or_else(|| env::path(env::CONFIG));
        let (path, is_named) = match named {
            Some(path) => (path, true),
            None => match usual_place() {
                Some(path) => (path, false),
                None => return Ok(Self::default()),
            },
        };
        match read(&path) {
            Ok((text, is_public)) => {
                let config = Self::parse(&text, &path, form)?;
                if let Some(warning) = config.mcp_sandbox.warning(&path) {
                    output::warn(&warning);
                }
                if is_public && config.has_credentials() {
                    output::warn(&format!(
                        "{} holds a password and is readable by other users; run `chmod 600` on it",
                        path.display()
                    ));
                }
                Ok(config)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_named => Ok(Self::default()),
            Err(error) => {
                let message = format!("could not read the configuration file {}: {error}", path.display());
                Err(Error::new(ErrorKind::Unavailable, message)
                    .with_hint("Correct the file, or name another with --config or WARREN_CONFIG."))
            }
        }
    }

    /// Whether an address has a name or a password in it.
    fn has_credentials(&self) -> bool {
        let has = |url: &Url| url.password().is_some() || !url.username().is_empty();
        let own =
            [&self.pip_index, &self.npm_registry, &self.apt_proxy, &self.network.proxy, &self.events.webhook];
        let mut words = self.apt_sources.iter().flatten().flat_map(|line| line.split_whitespace());
        own.into_iter().flatten().chain(self.images.addresses()).any(has)
            || words.any(|word| Url::parse(word).is_ok_and(|url| has(&url)))
    }

    fn parse(text: &str, path: &Path, form: Form) -> Result<Self> {
        let place = path.display();
        let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
            // The parser's own message would quote the line, which may hold a password.
            let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or_default();
            let line = before.lines().count().max(1);
            Error::invalid(format!("{place}, line {line}: {}", error.message())).with_hint(
                "Correct the file; docs/packages.md, docs/images.md, docs/snapshots.md, \
                 docs/volumes.md, docs/backends.md, docs/network.md, docs/ports.md, docs/ssh.md and docs/observability.md show examples.",
            )
        })?;
        let mut config = Self { path: Some(path.to_owned()), ..Self::default() };
        if form == Form::McpSandbox {
            config.mcp_sandbox = McpSandboxConfig::take_from(&mut table, path)?;
            config.pip_index = config.mcp_sandbox.pip_index.clone();
        }
        for (section, value) in &table {
            let Value::Table(keys) = value else { return Err(unknown(path, section)) };
            if !KEYS.iter().any(|key| key.split('.').next() == Some(section.as_str())) {
                return Err(unknown(path, section));
            }
            for (key, value) in keys {
                config.set(&format!("{section}.{key}"), value, path)?;
            }
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &Value, path: &Path) -> Result<()> {
        let wrong = |wanted: &str| {
            // The value is not shown: it may be an address with a password.
            Err(Error::invalid(format!("{}: {key} is not {wanted}", path.display()))
                .with_hint(format!("Set {key} to {wanted}, or remove it.")))
        };
        let url = || value.as_str().and_then(|text| Url::parse(text).ok()).filter(is_http);
        match key {
            "serve.also_listen" => {
                let texts = value.as_array().map(|all| all.iter().map(Value::as_str));
                let texts = texts.and_then(Iterator::collect::<Option<Vec<_>>>);
                let Some(texts) = texts else {
                    return wrong("a list such as [\"127.0.0.1:8181=mcp-sandbox\"]");
                };
                self.also_listen =
                    texts.into_iter().map(str::parse).collect::<Result<_>>().map_err(|error: Error| {
                        error.reworded(|words| format!("{}: {key}: {words}", path.display()))
                    })?;
            }
            "pip.index_url" | "npm.registry" | "apt.proxy" => {
                let Some(url) = url() else { return wrong("an http or https address") };
                match key {
                    "pip.index_url" => self.pip_index = Some(url),
                    "npm.registry" => self.npm_registry = Some(url),
                    _ => self.apt_proxy = Some(url),
                }
            }
            "apt.sources" => {
                let lines = value.as_array().map(|lines| lines.iter().map(Value::as_str));
                let Some(Some(lines)) = lines.map(Iterator::collect::<Option<Vec<_>>>) else {
                    return wrong("a list of lines such as \"deb http://deb.debian.org/debian stable main\"");
                };
                self.apt_sources = Some(lines.into_iter().map(str::to_owned).collect());
            }
            "packages.enabled" => match value.as_bool() {
                Some(enabled) => self.packages_disabled = !enabled,
                None => return wrong("true or false"),
            },
            "packages.max_cache" => match size(value) {
                Some(size) => self.max_cache = Some(size),
                None => return wrong("a size such as \"10g\""),
            },
            "packages.also_reach" => {
                let hosts = value.as_array().map(|hosts| hosts.iter().map(Value::as_str));
                let Some(Some(hosts)) = hosts.map(Iterator::collect::<Option<Vec<_>>>) else {
                    return wrong("a list of hosts such as [\"files.example\"]");
                };
                self.also_reach = hosts.into_iter().map(str::to_owned).collect();
            }
            _ if key.starts_with("images.") && KEYS.contains(&key) => {
                if let Err(wanted) = self.images.set(key, value) {
                    return wrong(wanted);
                }
            }
            _ if key.starts_with("snapshots.") && KEYS.contains(&key) => {
                if let Err(wanted) = self.snapshots.set(key, value) {
                    return wrong(wanted);
                }
            }
            _ if key.starts_with("volumes.") && KEYS.contains(&key) => {
                if let Err(wanted) = self.volumes.set(key, value) {
                    return wrong(wanted);
                }
            }
            _ if key.starts_with("backends.") && KEYS.contains(&key) => {
                if let Err(wanted) = self.backends.set(key, value) {
                    return wrong(wanted);
                }
            }
            _ if key.starts_with("network.") && KEYS.contains(&key) => {
                if let Err(wanted) = self.network.set(key, value) {
                    return wrong(wanted);
                }
            }
            _ if key.starts_with("ports.") && KEYS.contains(&key) => {
                if let Err(wanted) = self.ports.set(key, value) {
                    return wrong(wanted);
                }
            }
            _ if key.starts_with("ssh.") && KEYS.contains(&key) => {
                if let Err(wanted) = self.ssh.set(key, value) {
                    return wrong(wanted);
                }
            }
            "pool.size" | "pool.from_rate" => {
                if let Err(wanted) = pool::set(&mut self.pool, key, value) {
                    return wrong(wanted);
                }
            }
            "defaults.idle" => {
                if let Err(wanted) = self.defaults.set(value) {
                    return wrong(wanted);
                }
            }
            _ if key.starts_with("events.") && KEYS.contains(&key) => {
                if let Err(wanted) = self.events.set(key, value) {
                    return wrong(wanted);
                }
            }
            "log.format" => {
                let format = value.as_str().and_then(|text| LogFormat::from_str(text, false).ok());
                if format.is_none() {
                    return wrong("\"text\", \"json\" or \"journald\"");
                }
                self.log_format = format;
            }
            "metrics.listen" => {
                if let Err(wanted) = self.metrics.set(value) {
                    return wrong(wanted);
                }
            }
            _ => return Err(unknown(path, key)),
        }
        Ok(())
    }
}

fn count(value: &Value) -> Result<usize, &'static str> {
    let count = value.as_integer().and_then(|count| usize::try_from(count).ok());
    count.ok_or("a number that is not negative")
}

fn size(value: &Value) -> Option<ByteSize> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Integer(bytes) => u64::try_from(*bytes).ok().map(ByteSize),
        _ => None,
    }
}

fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host()
}

fn unknown(path: &Path, key: &str) -> Error {
    let shown: String = key.chars().filter(|c| !c.is_control()).take(64).collect();
    let likeness = |known: &&&str| strsim::normalized_damerau_levenshtein(key, known);
    let section = |known: &str| known.split('.').next().unwrap_or_default().to_owned();
    let nearest = KEYS.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    let nearest = nearest.filter(|known| likeness(known) >= LIKENESS).map(|known| (*known).to_owned());
    let nearest = nearest.or_else(|| {
        let like = |known: &&&str| strsim::normalized_damerau_levenshtein(key, &section(known)) >= LIKENESS;
        KEYS.iter().find(like).map(|known| section(known))
    });
    let hint = match nearest {
        Some(nearest) => format!("Did you mean {nearest}?"),
        None => format!("The keys are {}.", KEYS.join(", ")),
    };
    Error::invalid(format!("{}: unknown key {shown}", path.display())).with_hint(hint)
}

fn usual_place() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(SYSTEM_FILE));
    }
    let directory = env::xdg("XDG_CONFIG_HOME").or_else(|| Some(env::path("HOME")?.join(".config")))?;
    Some(directory.join("warren/config.toml"))
}

/// The file's text, and whether other users can read it.
fn read(path: &Path) -> io::Result<(String, bool)> {
    // Opening a pipe must not block until a writer comes.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let us = rustix::process::geteuid().as_raw();
    if !is_trusted(found.uid(), us) {
        let owner = found.uid();
        return Err(io::Error::other(format!("it belongs to user {owner}, not to root or user {us}")));
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is longer than {MAX_BYTES} bytes")));
    }
    Ok((text, found.mode() & 0o044 != 0))
}

/// Returns whether a file's owner is trusted: whoever can write the file decides where packages come from.
fn is_trusted(owner: u32, us: u32) -> bool {
    owner == 0 || owner == us
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::parse(text, Path::new("/c.toml"), Form::Own)
    }

    #[test]
    fn every_key_is_read() {
        let config = parse(
            "[serve]\nalso_listen = ['127.0.0.1:8181=mcp-sandbox']\n\
             [pip]\nindex_url = 'https://me:word@index.example/simple'\n[npm]\nregistry = 'http://r.example'\n\
             [apt]\nproxy = 'http://p.example:3142'\nsources = ['deb http://a.example/debian stable main']\n\
             [packages]\nenabled = false\nmax_cache = '2g'\nalso_reach = ['files.example:8443']\n\
             [images]\nmax_disk = '9g'\n[snapshots]\nmax_count = 3\n[volumes]\nmax_count = 4\n\
             [backends]\noci = true\n",
        )
        .unwrap();
        assert_eq!(config.also_listen, ["127.0.0.1:8181=mcp-sandbox".parse().unwrap()]);
        assert_eq!(config.pip_index.as_ref().unwrap().password(), Some("word"));
        assert_eq!(config.npm_registry.as_ref().unwrap().as_str(), "http://r.example/");
        assert!(config.apt_proxy.is_some() && config.packages_disabled);
        assert_eq!(config.apt_sources.as_ref().unwrap().len(), 1);
        assert_eq!(config.max_cache, Some(ByteSize(2 << 30)));
        assert_eq!(config.also_reach, ["files.example:8443"]);
        let nothing = Config::default();
        assert_ne!(config.images, nothing.images);
        assert_ne!(config.snapshots, nothing.snapshots);
        assert_ne!(config.volumes, nothing.volumes);
        assert_ne!(config.backends, nothing.backends);
        assert!(!format!("{config:?}").contains("word"));
        assert!(parse("").unwrap().pip_index.is_none());
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        for (text, hint) in [
            ("[pip]\nindex-url = 'http://x'", "pip.index_url"),
            ("[pip]\nindexurl = 'http://x'", "pip.index_url"),
            ("[npn]\nregistry = 'http://x'", "npm"),
            ("[packages]\nmax_cash = 1", "packages.max_cache"),
            ("[cargo]\nx = 1", "The keys are"),
            ("pip = 1", "pip"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.to_string().starts_with("/c.toml: "), "{error}");
            assert!(
                crate::error::hint(&error).unwrap().contains(hint),
                "{text}: {:?}",
                crate::error::hint(&error)
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_never_shown() {
        for text in [
            "[pip]\nindex_url = 'ftp://me:secret@x/'",
            "[pip]\nindex_url = 'me:secret@x'",
            "[pip]\nindex_url = 'https://me:secret@x/\n",
            "[apt]\nsources = 'deb https://me:secret@x/ y z'",
            "[packages]\nenabled = 'secret'",
            "[packages]\nmax_cache = -1",
            "[packages]\nalso_reach = 'secret.example'",
            "[serve]\nalso_listen = '127.0.0.1:8181=mcp-sandbox'",
            "[serve]\nalso_listen = ['127.0.0.1:8181']",
        ] {
            let error = parse(text).unwrap_err();
            let told = format!("{error:?} {error}");
            assert!(!told.contains("secret") && error.to_string().contains("/c.toml"), "{told}");
        }
    }

    #[test]
    fn only_a_file_of_ours_is_read() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe.toml");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        for path in [pipe.as_path(), place.path()] {
            let error = Config::load(Some(path)).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
        assert!(is_trusted(0, 1000) && is_trusted(1000, 1000) && !is_trusted(1001, 1000));
        assert!(!is_trusted(1000, 0));
        let long = place.path().join("long.toml");
        fs::write(&long, "#".repeat(1024 * 1024 + 1)).unwrap();
        assert!(Config::load(Some(&long)).unwrap_err().to_string().contains("bytes"));
    }

    #[test]
    fn passwords_in_a_file_that_others_may_read_are_noticed() {
        for (text, expected) in [
            ("[pip]\nindex_url = 'https://me:word@index.example/simple'", true),
            ("[npm]\nregistry = 'https://token@r.example'", true),
            ("[apt]\nsources = ['deb https://me:word@a.example/debian stable main']", true),
            ("[apt]\nsources = ['deb https://a.example/debian stable main']", false),
        ] {
            assert_eq!(parse(text).unwrap().has_credentials(), expected, "{text}");
        }
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("config.toml");
        fs::write(&file, "").unwrap();
        for (mode, expected) in [(0o644, true), (0o640, true), (0o600, false)] {
            fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(read(&file).unwrap().1, expected, "{mode:o}");
        }
    }

    #[test]
    fn a_file_that_was_named_must_be_there() {
        let place = tempfile::tempdir().unwrap();
        let error = Config::load(Some(&place.path().join("none.toml"))).unwrap_err();
        assert!(error.to_string().contains("none.toml"), "{error}");
    }
}
