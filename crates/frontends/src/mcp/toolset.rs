//! Toolsets: which tools a client is shown. Every tool can be called by its name whether it is shown or not.

use std::{collections::BTreeSet, fmt, str::FromStr};

use sandbox::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A named group of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Toolset {
    Core,
    Lifecycle,
    Exec,
    Files,
    Code,
    Packages,
    Logs,
    Metrics,
    Volumes,
    Images,
    Snapshots,
    Network,
    Ssh,
    Runtime,
}

impl Toolset {
    pub const ALL: [Self; 14] = [
        Self::Core,
        Self::Lifecycle,
        Self::Exec,
        Self::Files,
        Self::Code,
        Self::Packages,
        Self::Logs,
        Self::Metrics,
        Self::Volumes,
        Self::Images,
        Self::Snapshots,
        Self::Network,
        Self::Ssh,
        Self::Runtime,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Lifecycle => "lifecycle",
            Self::Exec => "exec",
            Self::Files => "files",
            Self::Code => "code",
            Self::Packages => "packages",
            Self::Logs => "logs",
            Self::Metrics => "metrics",
            Self::Volumes => "volumes",
            Self::Images => "images",
            Self::Snapshots => "snapshots",
            Self::Network => "network",
            Self::Ssh => "ssh",
            Self::Runtime => "runtime",
        }
    }

    pub(crate) fn purpose(self) -> &'static str {
        match self {
            Self::Core => "create, run, exec, read and write files: enough for most work",
            Self::Lifecycle => "start, stop, pause, resume, renew, wait, drain, inspect",
            Self::Exec => "sessions: start, poll, stdin, signals, terminal size, list",
            Self::Files => "every file operation: search, edit, tree, copy, host copies",
            Self::Code => {
                "run code with variables kept between calls; contexts: create, list, reset, fork, interrupt"
            }
            Self::Packages => "packages with pip, npm and apt: install, status, list",
            Self::Logs => "output of commands: read and follow",
            Self::Metrics => "CPU, memory and disk usage of sandboxes",
            Self::Volumes => "volumes and their files, without a running sandbox",
            Self::Images => "images: pull, build, list, inspect, load, save, import, tag, remove, prune",
            Self::Snapshots => "snapshots: create, restore, fork, changes, archives",
            Self::Network => "what sandboxes reach: policy, log, requests, secrets; ports inside",
            Self::Ssh => "commands and files as an SSH client has them, by user",
            Self::Runtime => "what this host can do",
        }
    }
}

impl fmt::Display for Toolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Toolset {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|set| set.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|set| set.as_str()).collect();
            let shown: String = text.chars().take(64).collect();
            Error::invalid(format!("{shown:?} is not a toolset"))
                .with_hint(format!("The toolsets are all, {}.", known.join(", ")))
        })
    }
}

/// The toolsets that are shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Toolsets {
    shown: BTreeSet<Toolset>,
    /// Everything there is, with every parameter spelled out.
    all: bool,
}

impl Toolsets {
    pub fn all() -> Self {
        Self { shown: BTreeSet::from(Toolset::ALL), all: true }
    }

    pub fn contains(&self, set: Toolset) -> bool {
        self.shown.contains(&set)
    }

    /// Whether everything was asked for; then schemas are given in full.
    pub fn is_all(&self) -> bool {
        self.all
    }

    #[must_use]
    pub fn with(mut self, more: impl IntoIterator<Item = Toolset>) -> Self {
        self.shown.extend(more);
        self.all |= self.shown.len() == Toolset::ALL.len();
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = Toolset> {
        self.shown.iter().copied()
    }
}

impl Default for Toolsets {
    fn default() -> Self {
        Self { shown: BTreeSet::from([Toolset::Core]), all: false }
    }
}

/// `core,files`, or `all`.
impl FromStr for Toolsets {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut sets = Self { shown: BTreeSet::new(), all: false };
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if word == "all" {
                return Ok(Self::all());
            }
            sets.shown.insert(word.parse()?);
        }
        if sets.shown.is_empty() {
            return Err(Error::invalid("no toolset was given").with_hint("Give some, such as core,files."));
        }
        Ok(sets)
    }
}

impl TryFrom<String> for Toolsets {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Toolsets> for String {
    fn from(sets: Toolsets) -> Self {
        sets.to_string()
    }
}

impl fmt::Display for Toolsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all {
            return f.write_str("all");
        }
        let names: Vec<_> = self.shown.iter().map(|set| set.as_str()).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolsets_are_written_and_read_the_same() {
        for text in ["core", "core,files,logs", "all"] {
            assert_eq!(text.parse::<Toolsets>().unwrap().to_string(), text);
        }
        assert_eq!(" files , core".parse::<Toolsets>().unwrap().to_string(), "core,files");
        assert!(
            crate::mcp::words::hint(&"core,cor".parse::<Toolsets>().unwrap_err()).unwrap().contains("core")
        );
        assert!(",".parse::<Toolsets>().is_err());
    }
}
