//! Flags for what a new sandbox reaches on the network.

use clap::Args;
use sandbox::{Error, NetworkSpec, Preset, SecretUse};

#[derive(Debug, Args)]
pub(crate) struct NetworkArgs {
    /// What it reaches: none, packages, public, public+private or all [default: packages]
    #[arg(long, value_name = "PRESET", alias = "net", value_parser = preset)]
    network: Option<Preset>,
    /// Allow traffic: a name, *.wildcard, address or range, each with :PORT if wanted; host:3000 is this machine
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// Deny traffic, whatever is allowed
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// Give it a secret: its programs see a placeholder in the variable of that name, or in VARIABLE
    #[arg(long = "secret", value_name = "NAME[=VARIABLE]")]
    pub(super) secrets: Vec<SecretUse>,
}

impl NetworkArgs {
    pub(super) fn spec(&self) -> NetworkSpec {
        NetworkSpec {
            preset: self.network,
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            ..NetworkSpec::default()
        }
    }
}

/// A preset; Docker's words for networks mean the nearest one, or say which to choose.
fn preset(text: &str) -> Result<Preset, String> {
    match text {
        "bridge" | "default" => Ok(Preset::Public),
        "host" => Err("no sandbox shares this machine's network; use --network all to reach everything, or \
             --allow host:PORT to reach a server on this machine"
            .to_owned()),
        _ => text.parse().map_err(|error: Error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_docker_are_understood() {
        assert_eq!(preset("bridge"), Ok(Preset::Public));
        assert_eq!(preset("none"), Ok(Preset::None));
        assert!(preset("host").unwrap_err().contains("--allow host:PORT"));
        assert!(preset("mine").unwrap_err().contains("packages"));
    }
}
