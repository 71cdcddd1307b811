//! `warren exec`

use std::process::ExitCode;

use sandbox::{ExecSpec, RequestId};

use super::Context;
use crate::{
    arguments::{self, AttachArgs},
    error::CommandResult,
    output,
    session::{self, Attachment},
};

const DEFAULT_SHELL: &str = "sh";

/// Run a command in a running sandbox
///
/// The exit code is that of the command; 126 or 127 if it could not start, 128+n if signal n killed it, 124 if it timed
/// out, 125 if Warren failed. In a terminal, Ctrl-P Ctrl-Q detaches and leaves it running.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren exec dev ls -l /
  warren exec -it dev
  warren exec -e DEBUG=1 -w /srv dev -- make test")]
pub(crate) struct Args {
    #[command(flatten)]
    attach: AttachArgs,
    /// Environment variable
    #[arg(long, short = 'e', value_name = "KEY=VALUE", value_parser = arguments::variable)]
    env: Vec<(String, String)>,
    /// File of environment variables, one NAME=value on each line; --env wins over it
    #[arg(long = "env-file", value_name = "FILE", value_parser = arguments::env_file::read)]
    env_files: Vec<arguments::env_file::Variables>,
    /// Working directory
    #[arg(long = "cwd", short = 'w', value_name = "DIR", visible_alias = "workdir")]
    cwd: Option<String>,
    /// User: name, uid or uid:gid
    #[arg(long, short = 'u')]
    user: Option<String>,
    /// Idempotency key: the same id returns the first exec again
    #[arg(long, value_name = "ID", visible_alias = "requestId")]
    request_id: Option<RequestId>,
    /// Name or id
    sandbox: String,
    /// Program and arguments [default: the sandbox's shell]
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let how = Attachment::checked(&args.attach, context.json)?;
    let mut spec = spec(&args, how)?;
    let client = context.client().await?;
    if spec.command.is_empty() {
        let shell = client.inspect(&args.sandbox).await?.shell;
        spec.command = vec![shell.unwrap_or_else(|| DEFAULT_SHELL.to_owned())];
    }
    spec.check()?;
    if args.attach.detach {
        let exec = client.exec(&args.sandbox, &spec).await?;
        if context.json {
            output::json(&exec)?;
        } else {
            output::line(exec.id.as_str())?;
        }
        return Ok(exec.exit_code.map_or(ExitCode::SUCCESS, ExitCode::from));
    }
    if context.json {
        let result = client.exec_and_wait(&args.sandbox, &spec).await?;
        output::json(&result)?;
        return Ok(ExitCode::from(result.exec.exit_code.unwrap_or_default()));
    }
    let exec = client.exec(&args.sandbox, &spec).await?;
    Ok(session::attend(&client, &exec, how).await?.exit_code())
}

fn spec(args: &Args, how: Attachment) -> CommandResult<ExecSpec> {
    let mut spec = match args.command.is_empty() {
        true => ExecSpec::default(),
        false => ExecSpec::argv(arguments::command(&args.command)?),
    };
    spec.env = arguments::environment(&args.env_files, &args.env);
    if how.terminal
        && let Some(term) = crate::env::text("TERM")
    {
        spec.env.entry("TERM".to_owned()).or_insert(term);
    }
    spec.cwd = args.cwd.clone();
    spec.user = args.user.clone();
    spec.stdin = how.stdin;
    spec.terminal = how.terminal_size();
    spec.timeout = args.attach.timeout;
    spec.request_id = args.request_id.clone();
    Ok(spec)
}
