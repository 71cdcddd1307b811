//! Flags for what a new sandbox reaches on the network.

use clap::Args;
use sandbox::{NetworkSpec, Preset, SecretUse};

#[derive(Debug, Args)]
pub(crate) struct NetworkArgs {
    /// What it reaches: none, packages, public, public+private or all [default: packages]
    #[arg(long, value_name = "PRESET")]
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
