//! `warren attach`

use frontends::rest::v1;
use sandbox::{Error, ErrorKind, ExecId, ExecState};

use super::Context;
use crate::{
    client::Client,
    error::CommandResult,
    interrupt::Signals,
    output,
    session::{self, Attachment, Ended},
    terminal,
};

/// Attach to a command that is running in a sandbox
///
/// Shows its output from now on and passes stdin to it, if it was started with -i. In a terminal, Ctrl-P Ctrl-Q
/// detaches and leaves it running. The exit code is that of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren attach dev
  warren attach --replay dev exc-0123456789abc")]
pub(crate) struct Args {
    /// Do not pass stdin to the command
    #[arg(long)]
    no_stdin: bool,
    /// Show the earlier output too
    #[arg(long)]
    replay: bool,
    /// Name or id
    sandbox: String,
    /// Id of the exec [default: the newest that is running]
    exec: Option<ExecId>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let mut signals = Signals::new()?;
    let client = signals.unless_interrupted(context.client()).await?;
    let exec = match &args.exec {
        Some(exec) => client.exec_view(&args.sandbox, exec.as_str()).await?,
        None => newest(&client, &args.sandbox).await?,
    };
    // A terminal needs both ends: without one of our own, only its output is shown.
    let terminal = exec.terminal && terminal::stdin_is_terminal();
    let how = Attachment { stdin: exec.stdin && !args.no_stdin, terminal };
    if let (true, Some(size)) = (terminal, terminal::size()) {
        client.resize(exec.sandbox.as_str(), exec.id.as_str(), size).await?;
    }
    let from = if args.replay { 1 } else { exec.last_entry + 1 };
    let ended = session::attend_from(&client, &exec, how, from, &mut signals).await?;
    if matches!(ended, Ended::Detached) {
        output::note(&session::left_running(&args.sandbox));
    }
    Ok(ended.exit_code())
}

async fn newest(client: &Client, sandbox: &str) -> CommandResult<v1::Exec> {
    let running = client.execs(sandbox).await?.into_iter().filter(|exec| exec.state != ExecState::Done);
    running.max_by_key(|exec| exec.created_at).ok_or_else(|| {
        Error::new(ErrorKind::WrongState, format!("no command runs in sandbox {sandbox}"))
            .with_hint(format!("Start one with `warren exec -it {sandbox}`."))
            .into()
    })
}
