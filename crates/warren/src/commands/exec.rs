//! `warren exec`

use std::process::ExitCode;

use frontends::rest::v1;
use sandbox::{ExecSpec, RequestId};

use super::{Context, lacks, missing};
use crate::{
    arguments::{self, AttachArgs},
    error::CommandResult,
    interrupt::Signals,
    output,
    session::{self, Attachment, Ended},
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
    /// Environment variable; KEY alone takes its value from here, if it is set
    #[arg(long, short = 'e', value_name = "KEY=VALUE", value_parser = arguments::variable)]
    env: Vec<arguments::Variables>,
    /// File of environment variables: on each line NAME=value, or NAME for its value here; --env wins over it
    #[arg(long = "env-file", value_name = "FILE", value_parser = arguments::env_file::read)]
    env_files: Vec<arguments::Variables>,
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
    // Before the command begins, so that a signal which comes meanwhile reaches it.
    let mut signals = Signals::new()?;
    let pass_on = async |exec: v1::Exec, signal| {
        client.signal(exec.sandbox.as_str(), exec.id.as_str(), signal).await.ok();
    };
    let exec = signals.unless_unmade(client.exec(&args.sandbox, &spec), None, pass_on).await?;
    let ended = session::attend(&client, &exec, how, &mut signals).await?;
    let code = ended.exit_code();
    lacks::tell(&client, &exec, &ended, lacks::Of::Named(&args.sandbox)).await;
    if matches!(ended, Ended::Detached) {
        output::note(&session::left_running(&args.sandbox));
    }
    if ended.is_not_found()
        && let Some(hint) =
            missing::of(&client, &args.command, &missing::own_line(), missing::Has::Programs).await
    {
        output::hint(&hint);
    }
    Ok(code)
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
