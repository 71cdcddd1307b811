//! The configuration of a new sandbox, as microsandbox's clients write it.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sandbox::{Language, PortSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::stand_in::stand_in;
use crate::mcp::{
    Failure,
    create::{CreateFields, Init, Mount, Network, Port, Process},
};

/// The label by which a later start finds out whether it asks for the same.
pub(super) const LABEL: &str = "microsandbox.config";
const DEFAULT_SHELL: &str = "/bin/sh";
/// The script that runs with the sandbox where `exec` says nothing else.
const START_SCRIPT: &str = "start";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Config {
    /// microsandbox/python, microsandbox/node, host (the programs of this machine; the default) or an OCI reference
    pub(super) image: Option<String>,
    /// MiB
    #[schemars(range(min = 16))]
    pub(super) memory: Option<u64>,
    #[schemars(range(min = 1, max = 4096))]
    pub(super) cpus: Option<u32>,
    /// "host:guest": paths of the host, as far as its operator allows them
    pub(super) volumes: Option<Vec<String>>,
    /// "host:guest": TCP ports of the host's loopback address
    pub(super) ports: Option<Vec<String>>,
    /// "NAME=value"
    pub(super) envs: Option<Vec<String>>,
    /// Sandboxes of the same namespace that are started first
    pub(super) depends_on: Option<Vec<String>>,
    pub(super) workdir: Option<String>,
    pub(super) shell: Option<String>,
    /// Programs for /usr/local/bin: name and text; one called `start` runs with the sandbox
    pub(super) scripts: Option<BTreeMap<String, String>>,
    /// A shell command that runs with the sandbox, in place of the script `start`
    pub(super) exec: Option<String>,
}

impl Config {
    /// Says nothing about the sandbox.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same for the same configuration, another for another.
    pub(super) fn fingerprint(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        format!("v1.{}", BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(text)))
    }

    /// The language that the image stands for, if it is one of microsandbox's own.
    pub(super) fn stands_for(&self) -> Option<Language> {
        stand_in(self.image.as_deref()?)
    }

    pub(super) fn fields(&self, name: &str) -> Result<CreateFields, Failure> {
        let ports = self.ports.iter().flatten().map(|text| port(text)).collect::<Result<Vec<_>, _>>()?;
        let mounts = self.volumes.iter().flatten().map(|text| mount(text)).collect::<Result<_, _>>()?;
        let env = self.envs.iter().flatten().map(|text| variable(text)).collect::<Result<_, _>>()?;
        let image = match self.stands_for() {
            Some(_) => None,
            None => self.image.clone(),
        };
        Ok(CreateFields {
            name: Some(name.to_owned()),
            image,
            cpus: self.cpus.map(f64::from),
            memory_mib: self.memory,
            volumes: Some(mounts),
            network: (!ports.is_empty()).then(|| Network { ports: Some(ports), ..Network::default() }),
            labels: Some(BTreeMap::from([(LABEL.to_owned(), self.fingerprint())])),
            process: Some(Process {
                workdir: self.workdir.clone(),
                shell: self.shell.clone(),
                env: Some(env),
                scripts: self.scripts.clone(),
                init: self.init(),
                ..Process::default()
            }),
            ..CreateFields::default()
        })
    }

    fn init(&self) -> Option<Init> {
        let has_start = self.scripts.as_ref().is_some_and(|scripts| scripts.contains_key(START_SCRIPT));
        let line = self.exec.clone().or_else(|| has_start.then(|| START_SCRIPT.to_owned()))?;
        let path = self.shell.clone().unwrap_or_else(|| DEFAULT_SHELL.to_owned());
        Some(Init { path, args: Some(vec!["-c".to_owned(), line]), env: None })
    }
}

fn mount(text: &str) -> Result<Mount, Failure> {
    match text.split_once(':') {
        Some((host, guest)) if !host.is_empty() && guest.starts_with('/') && !guest.contains(':') => {
            Ok(Mount::bind(host.to_owned(), guest.to_owned()))
        }
        _ => {
            Err(Failure::invalid(format!("volume {text:?} is not \"host:guest\", with a guest path from /")))
        }
    }
}

fn port(text: &str) -> Result<Port, Failure> {
    let spec: PortSpec = text.parse()?;
    Ok(Port::published(&spec))
}

fn variable(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Failure::invalid(format!("variable {text:?} is not \"NAME=value\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: &Config) -> String {
        let failure = config.fields("box").unwrap_err();
        format!("{}: {}", failure.error().kind(), failure.error())
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_own_words() {
        let one = |text: &str| Some(vec![text.to_owned()]);
        for volume in ["/srv", ":/srv", "/srv:", "/srv:data", "/a:/b:ro"] {
            let told = refused(&Config { volumes: one(volume), ..Config::default() });
            assert!(told.starts_with("invalid_request") && told.contains(volume), "{told}");
        }
        for variable in ["", "=x", "PATH"] {
            let told = refused(&Config { envs: one(variable), ..Config::default() });
            assert!(told.starts_with("invalid_request: variable"), "{told}");
        }
        for port in ["", "x", "8080:0", "8080:80/sctp"] {
            let told = refused(&Config { ports: one(port), ..Config::default() });
            assert!(told.starts_with("invalid_request"), "{told}");
        }
        for port in ["8080:80", "5353:53/udp"] {
            assert!(Config { ports: one(port), ..Config::default() }.fields("box").is_ok());
        }
        assert!(Config { ports: Some(Vec::new()), ..Config::default() }.fields("box").is_ok());
    }

    #[test]
    fn another_configuration_has_another_fingerprint() {
        let config = Config { memory: Some(512), ..Config::default() };
        assert_eq!(config.fingerprint(), config.clone().fingerprint());
        assert_ne!(config.fingerprint(), Config::default().fingerprint());
    }
}
