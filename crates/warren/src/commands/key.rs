//! `warren key`

use std::{fs, io::Read as _, path::PathBuf, process::ExitCode, time::Duration};

use clap::Subcommand;
use frontends::rest::v1;
use jiff::Timestamp;
use sandbox::{
    ByteSize, Error, KeyFormat, Policy, Preset,
    network::{Rule, RuleAction},
};
use serde::Serialize;

use super::Context;
use crate::{arguments, error::CommandResult, output};

/// Create, list and revoke keys
///
/// TCP clients authenticate with a key: `Authorization: Bearer KEY`, or `?api_key=KEY` for programs that cannot send
/// the header. The daemon's Unix socket needs no key.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:
  warren key create --label ci --namespace ci --expires 30d --max-sandboxes 10
  warren key list
  warren key revoke ci
  warren key add-ssh ana ~/.ssh/id_ed25519.pub"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Create(CreateArgs),
    #[command(visible_alias = "ls")]
    List(ListArgs),
    Revoke(RevokeArgs),
    AddSsh(AddSshArgs),
}

/// Create a key and print it, once
///
/// Only a hash is stored, so the key cannot be shown again. Only the key goes to stdout: KEY=$(warren key create …).
/// It has access to one namespace: the one given by --namespace, or `default`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren key create --label laptop
  warren key create --label ci --namespace ci --expires 30d --max-sandboxes 10 --max-memory 8g
  warren key create --label agents --network public --deny '*.corp.example'
  warren key create --label dashboard --all-namespaces --read-only
  warren key create --label sdk --format msb")]
struct CreateArgs {
    /// Unique label, shown in lists and the audit, and accepted by `warren key revoke`
    #[arg(long, short = 'l')]
    label: Option<String>,
    /// Give access to every namespace
    #[arg(long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Expire after this long, such as 12h or 30d [default: never]
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    expires: Option<Duration>,
    /// Maximum number of sandboxes at the same time, including stopped ones
    #[arg(long, value_name = "N", value_parser = arguments::number::<u32>)]
    max_sandboxes: Option<u32>,
    /// Maximum total of its sandboxes' memory limits, such as 2g
    #[arg(long, value_name = "SIZE")]
    max_memory: Option<ByteSize>,
    /// Allow reading only
    #[arg(long)]
    read_only: bool,
    /// What its sandboxes reach at most: none, packages, public, public+private or all [default: as configured]
    #[arg(long, value_name = "PRESET")]
    network: Option<Preset>,
    /// Let its sandboxes reach this too, within the configured ceiling; with a preset of `packages` unless one is given
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// Never let its sandboxes reach this
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// How the key looks: wrn_…, or msb_… (a JSON Web Token) for clients of microsandbox
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Format {
    #[default]
    Warren,
    Msb,
}

impl From<Format> for KeyFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Warren => Self::Warren,
            Format::Msb => Self::Msb,
        }
    }
}

/// List keys, without their secrets
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren key list
  warren key list --all --json")]
struct ListArgs {
    /// Include revoked and expired keys
    #[arg(long, short)]
    all: bool,
}

/// Revoke a key at once, and close its connections
///
/// Its sandboxes are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren key revoke ci
  warren key revoke key-0123456789abc")]
struct RevokeArgs {
    /// Id or label
    key: String,
}

/// Let a public key of SSH log in as a key
///
/// It has the key's rights and ends with it. `warren ssh-key` lists and removes public keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren key add-ssh ana ~/.ssh/id_ed25519.pub
  ssh-add -L | warren key add-ssh ana -")]
struct AddSshArgs {
    /// Id or label
    key: String,
    /// File with one public key; - for stdin
    file: PathBuf,
}

#[derive(Serialize)]
struct Listed {
    keys: Vec<v1::Key>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    match args.verb {
        Verb::Create(args) => create(context, args).await,
        Verb::List(args) => list(context, &args).await,
        Verb::Revoke(args) => revoke(context, &args).await,
        Verb::AddSsh(args) => add_ssh(context, &args).await,
    }
}

impl CreateArgs {
    fn network(&self) -> CommandResult<Option<Policy>> {
        if self.network.is_none() && self.allow.is_empty() && self.deny.is_empty() {
            return Ok(None);
        }
        let denied = self.deny.iter().map(|text| Rule::new(RuleAction::Deny, text));
        let allowed = self.allow.iter().map(|text| Rule::new(RuleAction::Allow, text));
        let rules = denied.chain(allowed).collect::<Result<_, _>>()?;
        Ok(Some(Policy { preset: self.network.unwrap_or_default(), rules }))
    }
}

async fn create(context: &Context, args: CreateArgs) -> CommandResult {
    let network = args.network()?;
    let request = v1::KeyRequest {
        label: args.label,
        // The variable must not contradict the flag.
        namespace: context.namespace.clone().filter(|_| !args.all_namespaces),
        all_namespaces: args.all_namespaces,
        expires_in_ms: args.expires.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        max_sandboxes: args.max_sandboxes,
        max_memory: args.max_memory,
        read_only: args.read_only,
        network,
        format: args.format.into(),
    };
    let made = context.client().await?.create_key(&request).await?;
    if context.json {
        output::json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::note(&describe(&made.key));
    output::note("save the key now: it is not stored and cannot be shown again");
    output::line(&made.secret)?;
    Ok(ExitCode::SUCCESS)
}

fn describe(key: &v1::Key) -> String {
    let label = key.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
    let expires = key.expires_at.map_or_else(String::new, |at| format!(", expires {}", output::until(at)));
    let network = key.network.as_ref().map_or_else(String::new, |most| format!(", network at most {most}"));
    format!("{}{label}: namespace {}, {}{network}{expires}", key.id, namespace(key), access(key))
}

async fn list(context: &Context, args: &ListArgs) -> CommandResult {
    let mut keys = context.client().await?.keys().await?;
    let now = Timestamp::now();
    keys.retain(|key| args.all || !is_ended(key, now));
    if context.json {
        output::json(&Listed { keys })?;
        return Ok(ExitCode::SUCCESS);
    }
    let heading = ["ID", "LABEL", "NAMESPACE", "ACCESS", "SANDBOXES", "MEMORY", "LAST USED", "ENDS"];
    output::table(heading, keys.iter().map(|key| row(key, now)))?;
    Ok(ExitCode::SUCCESS)
}

fn row(key: &v1::Key, now: Timestamp) -> [String; 8] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        key.id.to_string(),
        or_dash(key.label.as_ref().map(ToString::to_string)),
        namespace(key),
        access(key).to_owned(),
        or_dash(key.max_sandboxes.map(|n| n.to_string())),
        or_dash(key.max_memory.map(|memory| memory.to_string())),
        key.last_used_at.map_or_else(|| "never".to_owned(), output::ago),
        ends(key, now),
    ]
}

fn ends(key: &v1::Key, now: Timestamp) -> String {
    match (key.revoked_at, key.expires_at) {
        (Some(at), _) => format!("revoked {}", output::ago(at)),
        (None, Some(at)) if at <= now => format!("expired {}", output::ago(at)),
        (None, Some(at)) => output::until(at),
        (None, None) => "-".to_owned(),
    }
}

fn is_ended(key: &v1::Key, now: Timestamp) -> bool {
    key.revoked_at.is_some() || key.expires_at.is_some_and(|at| at <= now)
}

fn namespace(key: &v1::Key) -> String {
    key.namespace.as_ref().map_or_else(|| "*".to_owned(), ToString::to_string)
}

fn access(key: &v1::Key) -> &'static str {
    if key.read_only { "read-only" } else { "read-write" }
}

/// Longest file that is read as a public key.
const MAX_PUBLIC_KEY_BYTES: u64 = 64 * 1024;

async fn add_ssh(context: &Context, args: &AddSshArgs) -> CommandResult {
    let mut public_key = String::new();
    let failed = |error: std::io::Error| {
        Error::invalid(format!("could not read a public key from {}: {error}", args.file.display()))
    };
    match args.file.as_os_str() == "-" {
        true => {
            std::io::stdin().take(MAX_PUBLIC_KEY_BYTES).read_to_string(&mut public_key).map_err(failed)?
        }
        false => {
            let file = fs::File::open(&args.file).map_err(failed)?;
            file.take(MAX_PUBLIC_KEY_BYTES).read_to_string(&mut public_key).map_err(failed)?
        }
    };
    let request = v1::SshKeyRequest { key: args.key.clone(), public_key };
    let added = context.client().await?.add_ssh_key(&request).await?;
    if context.json {
        output::json(&added)?;
    } else {
        output::note(&format!("{} logs in as {}", added.fingerprint, args.key));
        output::line(added.id.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(context: &Context, args: &RevokeArgs) -> CommandResult {
    let key = context.client().await?.revoke_key(&args.key).await?;
    if context.json {
        output::json(&key)?;
    } else {
        output::line(key.id.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}
