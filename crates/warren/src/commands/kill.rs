//! `warren kill`

use std::time::Duration;

use sandbox::{BaseConfig, Error, ErrorKind, ExecState};

use super::{Context, targets};
use crate::{error::CommandResult, interrupt::SIGKILL};

/// Stop sandboxes at once, or send a signal to their commands
///
/// Without --signal, every process is killed and the sandbox is stopped; its files are kept. With another signal than
/// KILL, each running command gets it and the sandbox keeps running.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren kill dev
  warren kill -s HUP web")]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// Signal: a name such as HUP or SIGHUP, or a number
    #[arg(long, short, default_value = "KILL", value_parser = signal)]
    signal: i32,
}

fn signal(text: &str) -> Result<i32, String> {
    // Read as images write their stop signal.
    let named = BaseConfig { stop_signal: Some(text.to_owned()), ..BaseConfig::default() };
    let not_one = || format!("{text:?} is not a signal: use a name such as HUP, or a number");
    named.stop_signal_number().ok_or_else(not_one)
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = &context.client().await?;
    let signal = args.signal;
    targets::each(context, &args.sandboxes, |sandbox| async move {
        if signal == SIGKILL {
            return client.act_with_grace(sandbox, "stop", Some(Duration::ZERO)).await;
        }
        let running = client.execs(sandbox).await?;
        let running: Vec<_> = running.iter().filter(|exec| exec.state != ExecState::Done).collect();
        if running.is_empty() {
            return Err(Error::new(ErrorKind::WrongState, format!("no command runs in sandbox {sandbox}"))
                .with_hint("`warren kill` without --signal stops the sandbox.")
                .into());
        }
        for exec in running {
            client.signal(sandbox, exec.id.as_str(), signal).await?;
        }
        client.inspect(sandbox).await
    })
    .await
}
