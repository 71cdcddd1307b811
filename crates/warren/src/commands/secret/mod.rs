//! `warren secret`

mod value;

use std::process::ExitCode;

use clap::Subcommand;
use frontends::rest::v1;
use sandbox::{DnsName, SecretName, SecretRules};

use self::value::ValueArgs;
pub(super) use self::value::typed;
use super::Context;
use crate::{error::CommandResult, output};

/// Manage secrets: values that sandboxes use and never see
///
/// A sandbox asks for a secret by name. Its programs see a placeholder, which is replaced by the value outside the
/// sandbox, only in requests to the hosts of the secret. Nothing shows a value again.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:
  warren secret set GITHUB_TOKEN --host api.github.com --from-command 'gh auth token'
  warren run --secret GITHUB_TOKEN --allow api.github.com -- \\
    sh -c 'curl -H \"Authorization: Bearer $GITHUB_TOKEN\" https://api.github.com/user'
  warren secret ls
  warren secret rm GITHUB_TOKEN"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Set(Box<SetArgs>),
    #[command(visible_alias = "list")]
    Ls(LsArgs),
    Show(ShowArgs),
    Rm(RmArgs),
}

/// Set a secret, or give it another value and other rules
///
/// The value is read from stdin if no other source is given; a terminal asks for it and does not show it. One line
/// break at its end is removed. Running sandboxes that have the secret use the new value at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren secret set GITHUB_TOKEN --host api.github.com
  warren secret set GITHUB_TOKEN --host api.github.com --from-command 'gh auth token'
  warren secret set OPENAI_API_KEY --host api.openai.com --from-env OPENAI_API_KEY
  warren secret set NPM_TOKEN --host registry.npmjs.org --method GET --from-file ~/.npm-token
  warren secret set MAPS_KEY --host maps.example.org --query --path /v2 < key.txt")]
struct SetArgs {
    /// Letters, digits and _; also the name of the variable inside
    name: SecretName,
    /// Host that may get the value, over HTTPS
    #[arg(long = "host", value_name = "HOST", required = true)]
    hosts: Vec<DnsName>,
    /// Header in which the placeholder is replaced [default: authorization]
    #[arg(long = "header", value_name = "NAME")]
    headers: Vec<String>,
    /// Replace it in the query of the address too
    #[arg(long)]
    query: bool,
    /// Replace it in the body too
    #[arg(long)]
    body: bool,
    /// Only in requests with this method
    #[arg(long = "method", value_name = "METHOD")]
    methods: Vec<String>,
    /// Only in requests for this path and what is below it
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    value: ValueArgs,
}

/// List secrets, without their values
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren secret ls
  warren secret ls --json")]
struct LsArgs {}

/// Show the rules of a secret and which sandboxes have it; never its value
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren secret show GITHUB_TOKEN")]
struct ShowArgs {
    name: SecretName,
}

/// Remove secrets
///
/// Refused while sandboxes have one, running or not.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren secret rm GITHUB_TOKEN
  warren secret rm --force GITHUB_TOKEN")]
struct RmArgs {
    #[arg(required = true, value_name = "NAME")]
    names: Vec<SecretName>,
    /// Remove it from sandboxes too: running ones lose it at once, and stopped ones do not start without it
    #[arg(long, short)]
    force: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    match args.verb {
        Verb::Set(args) => set(context, *args).await,
        Verb::Ls(_) => list(context).await,
        Verb::Show(args) => show(context, &args).await,
        Verb::Rm(args) => remove(context, &args).await,
    }
}

async fn set(context: &Context, args: SetArgs) -> CommandResult {
    let SetArgs { name, hosts, headers, query, body, methods, paths, value } = args;
    let rules = SecretRules { hosts, headers, query, body, methods, paths };
    // Before anyone is asked for a value.
    let rules = rules.checked()?;
    let value = value.read(&name).await?;
    let request = v1::SecretRequest { rules, value };
    let set = context.client().await?.set_secret(name.as_str(), &request).await?;
    if context.json {
        output::json(&set)?;
    } else {
        output::line(set.name.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(context: &Context) -> CommandResult {
    let found = context.client().await?.secrets().await?;
    if context.json {
        output::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let heading = ["NAME", "NAMESPACE", "HOSTS", "PLACES", "LAST USED", "USED BY"];
    output::table(heading, found.secrets.iter().map(row))?;
    Ok(ExitCode::SUCCESS)
}

fn row(secret: &v1::Secret) -> [String; 6] {
    [
        secret.name.to_string(),
        secret.namespace.to_string(),
        joined(&secret.rules.hosts),
        places(&secret.rules),
        secret.last_used_at.map_or_else(|| "never".to_owned(), output::ago),
        joined(&secret.used_by),
    ]
}

fn joined<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the parts of a request in which the placeholder is replaced.
fn places(rules: &SecretRules) -> String {
    let others = [("query", rules.query), ("body", rules.body)];
    let others = others.into_iter().filter(|(_, is_set)| *is_set).map(|(place, _)| place);
    let headers = rules.headers.iter().map(String::as_str);
    headers.chain(others).collect::<Vec<_>>().join(",")
}

async fn show(context: &Context, args: &ShowArgs) -> CommandResult {
    let found = context.client().await?.secret(args.name.as_str()).await?;
    if context.json {
        output::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let or_all = |items: &[String]| if items.is_empty() { "all".to_owned() } else { joined(items) };
    let facts = [
        ("name", found.name.to_string()),
        ("namespace", found.namespace.to_string()),
        ("hosts", joined(&found.rules.hosts)),
        ("places", places(&found.rules)),
        ("methods", or_all(&found.rules.methods)),
        ("paths", or_all(&found.rules.paths)),
        ("set", output::ago(found.updated_at)),
        ("last used", found.last_used_at.map_or_else(|| "never".to_owned(), output::ago)),
        ("used by", joined(&found.used_by)),
    ];
    for (fact, value) in facts {
        output::line(&format!("{fact}: {value}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(context: &Context, args: &RmArgs) -> CommandResult {
    let client = context.client().await?;
    for name in &args.names {
        client.remove_secret(name.as_str(), args.force).await?;
        if !context.json {
            output::line(name.as_str())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
