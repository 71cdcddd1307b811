//! The host's own settings for its packages, so that its mirrors, proxies and credentials work for sandboxes without
//! being told twice.
//!
//! Everything is read from texts by pure functions; only [`HostPackages::read`] looks at the real host. What is wrong
//! or not supported is left aside with a note, never an error: a strange line in a file of the host must not stop a
//! daemon.

mod apt;
mod apt_conf;
mod netrc;
mod npm;
mod pip;
mod proxies;

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
};

use url::Url;

pub use self::apt::{AptSource, SignedBy};
use crate::config::{Credential, GatewayConfig, Proxies, shown};

/// Largest file of settings that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The host's own settings. A field is empty if the host does not set it.
#[derive(Clone, Default)]
pub struct HostPackages {
    /// May hold credentials.
    pub pip_index: Option<Url>,
    /// May hold credentials.
    pub npm_registry: Option<Url>,
    /// In the order of the host's files.
    pub apt_sources: Vec<AptSource>,
    pub apt_proxy: Option<Url>,
    pub credentials: Vec<Credential>,
    pub proxies: Proxies,
    /// Full sentences for the operator about what was left aside, and why.
    pub notes: Vec<String>,
}

// By hand, since `Url` shows passwords.
impl fmt::Debug for HostPackages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPackages")
            .field("pip_index", &self.pip_index.as_ref().map(shown))
            .field("npm_registry", &self.npm_registry.as_ref().map(shown))
            .field("apt_sources", &self.apt_sources)
            .field("apt_proxy", &self.apt_proxy.as_ref().map(shown))
            .field("credentials", &self.credentials)
            .field("proxies", &self.proxies)
            .field("notes", &self.notes)
            .finish()
    }
}

impl HostPackages {
    pub fn read() -> Self {
        let home = env::home_dir().unwrap_or_default();
        Self::gather(&Host { env: &|name| env::var(name).ok(), text: &read_text, names: &read_names, home })
    }

    fn gather(host: &Host<'_>) -> Self {
        let mut found = Self { proxies: proxies::read(host), ..Self::default() };
        pip::read(host, &mut found);
        npm::read(host, &mut found);
        apt::read(host, &mut found);
        apt_conf::read(host, &mut found);
        netrc::read(host, &mut found);
        found
    }

    /// The base addresses of [`Self::apt_sources`], each once; [`AptSource::number`] counts in this order.
    pub fn apt_bases(&self) -> Vec<Url> {
        let mut bases: Vec<Url> = Vec::new();
        for source in &self.apt_sources {
            if !bases.contains(&source.uri) {
                bases.push(source.uri.clone());
            }
        }
        bases
    }
}

impl GatewayConfig {
    /// The public indexes, or whatever the host uses in their place.
    pub fn for_host(cache: impl Into<PathBuf>, host: &HostPackages) -> Self {
        let public = Self::new(cache);
        Self {
            pip_index: host.pip_index.clone().unwrap_or(public.pip_index),
            npm_registry: host.npm_registry.clone().unwrap_or(public.npm_registry),
            apt_proxy: host.apt_proxy.clone(),
            apt_sources: host.apt_bases(),
            credentials: host.credentials.clone(),
            proxies: host.proxies.clone(),
            ..public
        }
    }
}

/// A host, real or made up by a test.
struct Host<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    text: &'a dyn Fn(&Path) -> Option<String>,
    /// The names in a directory, sorted.
    names: &'a dyn Fn(&Path) -> Vec<String>,
    home: PathBuf,
}

impl Host<'_> {
    /// The first of these variables that is set and not empty.
    fn env(&self, names: &[&str]) -> Option<String> {
        names
            .iter()
            .filter_map(|name| (self.env)(name))
            .map(|value| value.trim().to_owned())
            .find(|value| !value.is_empty())
    }

    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        (self.text)(path.as_ref())
    }
}

impl HostPackages {
    /// An address on http, or a note.
    fn address(&mut self, text: &str, whose: &str) -> Option<Url> {
        match text.trim().parse::<Url>() {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.host_str().is_some() => Some(url),
            _ => {
                // The text is not repeated: it may hold a password.
                self.notes.push(format!("{whose} is not an address on http or https, so it is not used."));
                None
            }
        }
    }
}

fn read_text(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return None;
    }
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

fn read_names(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Returns the settings of a host with these files and variables.
    pub(super) fn gathered(files: &[(&str, &str)], variables: &[(&str, &str)]) -> HostPackages {
        let files: BTreeMap<PathBuf, String> =
            files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        let names = |directory: &Path| {
            files
                .keys()
                .filter(|path| path.parent() == Some(directory))
                .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
                .collect()
        };
        HostPackages::gather(&Host {
            env: &|name| variables.get(name).map(|&value| value.to_owned()),
            text: &|path| files.get(path).cloned(),
            names: &names,
            home: PathBuf::from("/home/me"),
        })
    }

    #[test]
    fn a_host_that_says_nothing_uses_the_public_indexes() {
        let config = GatewayConfig::for_host("/nowhere", &gathered(&[], &[]));
        assert_eq!(format!("{config:?}"), format!("{:?}", GatewayConfig::new("/nowhere")));
    }

    #[test]
    fn the_real_host_can_be_read() {
        // Whatever it says; it must not fail.
        drop(HostPackages::read());
    }
}
