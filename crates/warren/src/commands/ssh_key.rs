//! `warren ssh-key`

use std::process::ExitCode;

use clap::Subcommand;
use frontends::rest::v1;
use serde::Serialize;

use super::Context;
use crate::{error::CommandResult, output};

/// List and remove public keys that may log in over SSH
///
/// `warren key add-ssh` adds one.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:
  warren ssh-key ls
  warren ssh-key rm ssh-0123456789abc"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List public keys
    #[command(visible_alias = "list")]
    Ls,
    /// Remove public keys, and close the connections that were made with them
    #[command(visible_alias = "remove")]
    Rm {
        /// Ids or fingerprints
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    ssh_keys: Vec<v1::SshKey>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    match args.verb {
        Verb::Ls => {
            let ssh_keys = client.ssh_keys().await?;
            if context.json {
                output::json(&Listed { ssh_keys })?;
                return Ok(ExitCode::SUCCESS);
            }
            let rows = ssh_keys.iter().map(|key| {
                let v1::SshKey { id, key, algorithm, fingerprint, comment, .. } = key;
                [id.to_string(), key.to_string(), algorithm.clone(), fingerprint.clone(), comment.clone()]
            });
            output::table(["ID", "KEY", "ALGORITHM", "FINGERPRINT", "COMMENT"], rows)?;
        }
        Verb::Rm { keys } => {
            for key in keys {
                // A fingerprint may hold a slash, so it is looked up here.
                let all = client.ssh_keys().await?;
                let found = all.iter().find(|found| found.fingerprint == key);
                let id = found.map_or(key.as_str(), |found| found.id.as_str());
                client.remove_ssh_key(id).await?;
                output::line(id)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
