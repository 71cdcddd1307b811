//! `warren context`

use std::process::ExitCode;

use clap::Subcommand;
use engine::{ContextState, ContextView};
use frontends::rest::v1;
use sandbox::ContextName;

use super::Context;
use crate::{arguments, error::CommandResult, output};

/// Manage contexts: interpreters that keep variables between pieces of code
///
/// Every sandbox has one context per language, created when code first runs. Create more to keep variables apart, or
/// fork one to start from the same variables (python only).
#[derive(Debug, clap::Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:
  warren context ls dev
  warren context create dev python --name clean
  warren context fork dev python --into attempt
  warren context reset dev python"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(alias = "list")]
    Ls(LsArgs),
    Create(CreateArgs),
    Reset(OneArgs),
    Rm(RmArgs),
    Fork(ForkArgs),
}

/// List the contexts of a sandbox
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren context ls dev
  warren context ls dev --json")]
struct LsArgs {
    /// Name or id
    sandbox: String,
}

/// Start an interpreter and print the name of its context
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren context create dev python
  warren context create dev node --name server -e PORT=8000 --cwd /srv")]
struct CreateArgs {
    /// Name or id
    sandbox: String,
    /// python, javascript (node) or bash
    language: String,
    /// Name of the context [default: generated]
    #[arg(long)]
    name: Option<ContextName>,
    /// Environment variable
    #[arg(long, short = 'e', value_name = "KEY=VALUE", value_parser = arguments::variable)]
    env: Vec<arguments::Variables>,
    /// Working directory
    #[arg(long = "cwd", short = 'w', value_name = "DIR")]
    cwd: Option<String>,
    /// User: name, uid or uid:gid
    #[arg(long, short = 'u')]
    user: Option<String>,
}

/// Forget a context's variables and kill code running in it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren context reset dev python")]
struct OneArgs {
    /// Name or id
    sandbox: String,
    /// Name of the context
    context: ContextName,
}

/// Remove contexts and kill code running in them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren context rm dev attempt")]
struct RmArgs {
    /// Name or id
    sandbox: String,
    /// Names of contexts
    #[arg(required = true)]
    contexts: Vec<ContextName>,
}

/// Fork a context: the copy starts with the same variables
///
/// Refused if the context has threads, connections or open files that both would share.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren context fork dev python --into attempt
  warren code python -s dev --context attempt -c 'x'")]
struct ForkArgs {
    /// Name or id
    sandbox: String,
    /// Name of the context
    context: ContextName,
    /// Name of the fork [default: generated]
    #[arg(long, value_name = "NAME")]
    into: Option<ContextName>,
    /// Fork anyway, and print a warning instead
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    match args.verb {
        Verb::Ls(args) => {
            let contexts = client.contexts(&args.sandbox).await?;
            if context.json { output::json(&contexts)? } else { table(&contexts)? }
        }
        Verb::Create(args) => {
            let request = v1::ContextRequest {
                name: args.name,
                language: Some(args.language),
                env: arguments::environment(&[], &args.env),
                cwd: args.cwd,
                user: args.user,
            };
            tell(context, &client.create_context(&args.sandbox, &request).await?)?;
        }
        Verb::Reset(args) => tell(context, &client.reset_context(&args.sandbox, &args.context).await?)?,
        Verb::Rm(args) => {
            for name in &args.contexts {
                client.remove_context(&args.sandbox, name).await?;
                if !context.json {
                    output::line(name.as_str())?;
                }
            }
        }
        Verb::Fork(args) => {
            let request = v1::ForkRequest { into: args.into, force: args.force };
            tell(context, &client.fork_context(&args.sandbox, &args.context, &request).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(context: &Context, made: &v1::ContextMade) -> CommandResult<()> {
    if context.json {
        return output::json(made);
    }
    made.warnings.iter().for_each(|warning| output::warn(warning));
    output::line(&made.context.name)
}

pub(crate) fn table(contexts: &[ContextView]) -> CommandResult<()> {
    let rows = contexts.iter().map(|context| {
        [
            context.name.clone(),
            context.language.clone(),
            state(context.state).to_owned(),
            context.cells.to_string(),
            context.queued.to_string(),
            output::bytes(context.memory_bytes),
            context.parent.clone().unwrap_or_default(),
        ]
    });
    output::table(["NAME", "LANGUAGE", "STATE", "RUN", "WAITING", "MEMORY", "FORKED FROM"], rows)
}

fn state(state: ContextState) -> &'static str {
    match state {
        ContextState::Starting => "starting",
        ContextState::Idle => "idle",
        ContextState::Busy => "busy",
        ContextState::Lost => "lost",
    }
}
