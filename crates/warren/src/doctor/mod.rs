//! Checks this machine: each requirement alone, then all of them together in a real sandbox.

pub(crate) mod attack;
mod cage;
mod host;
mod packages;
mod records;
mod ssh;
mod trial;

use serde::Serialize;

pub(crate) use self::{
    cage::read_cage, host::check_host, packages::check_packages, records::check_records, ssh::check_ssh,
    trial::try_sandbox,
};
use crate::directories::Directories;

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Status {
    Works,
    /// Missing; without it, sandboxes are weaker or some features do not work.
    Weak,
    /// Missing; without it, nothing works.
    Missing,
}

/// One requirement or recommendation for the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) status: Status,
    /// The finding.
    pub(crate) detail: String,
    /// The command that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mend: Option<String>,
}

impl Check {
    pub(crate) fn works(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Works, detail: detail.into(), mend: None }
    }

    pub(crate) fn weak(name: &'static str, detail: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name, status: Status::Weak, detail: detail.into(), mend: Some(mend.into()) }
    }

    pub(crate) fn missing(name: &'static str, detail: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name, status: Status::Missing, detail: detail.into(), mend: Some(mend.into()) }
    }
}

/// Temporary directories below the real ones, removed at the end: tests must not touch real sandboxes.
struct Scratch {
    directories: Directories,
}

impl Scratch {
    fn new(directories: &Directories, purpose: &str) -> Self {
        let part = format!("{purpose}-{}", std::process::id());
        let directories = Directories::at(directories.home.join(&part), directories.run.join(&part));
        Self { directories }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed is recognizable by its name.
        std::fs::remove_dir_all(&self.directories.run).ok();
        std::fs::remove_dir_all(&self.directories.home).ok();
    }
}
