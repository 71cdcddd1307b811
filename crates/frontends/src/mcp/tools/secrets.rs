//! `sandbox_secrets`: what a new sandbox may ask for by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::select;
use crate::mcp::{Answer, Call, Tool, ToolResult};

pub(super) fn tools() -> Vec<Tool> {
    tools! { Network;
        "sandbox_secrets", "Secrets", READS, secrets:
            "List the secrets that sandbox_create can give a sandbox by name (secrets), without their values.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {}

#[derive(Debug, Serialize, JsonSchema)]
struct Secrets {
    secrets: Vec<Listed>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    name: String,
    /// Hosts it works for, over HTTPS; network.allow must name them too
    hosts: Vec<String>,
    /// Parts of a request in which the placeholder is replaced
    headers: Vec<String>,
}

async fn secrets(call: Call, _arguments: Arguments) -> ToolResult<Secrets> {
    let namespace = select::namespace(&call);
    let found = call.engine().secrets(&call.who, Some(&namespace)).await?;
    let secrets = found.into_iter().map(|secret| Listed {
        name: secret.name.to_string(),
        hosts: secret.rules.hosts.iter().map(ToString::to_string).collect(),
        headers: secret.rules.headers,
    });
    Ok(Answer::new(Secrets { secrets: secrets.collect() }))
}
