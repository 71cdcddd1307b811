//! `warren execs`

use std::{cmp::Reverse, process::ExitCode, time::Duration};

use frontends::rest::v1;
use jiff::Timestamp;
use sandbox::{ErrorKind, ExecState};
use serde::Serialize;

use super::Context;
use crate::{client::Client, error::CommandResult, output};

/// Execs that are listed unless more are asked for.
const DEFAULT_LISTED: usize = 20;

/// List the commands that ran in a sandbox, the newest first
///
/// Without a sandbox, lists those of all running sandboxes. `warren logs SANDBOX EXEC` shows what one printed,
/// `warren attach SANDBOX EXEC` goes back to one that runs; `warren top SANDBOX` lists processes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren execs dev
  warren execs --running
  warren execs dev -n 1 --json")]
pub(crate) struct Args {
    /// All that are recorded, instead of the newest 20
    #[arg(long, short, conflicts_with = "last")]
    all: bool,
    /// Show only this many, the newest
    #[arg(long, short = 'n', value_name = "N", value_parser = crate::arguments::number::<usize>)]
    last: Option<usize>,
    /// Show only those that run
    #[arg(long)]
    running: bool,
    /// Print only ids
    #[arg(long, short)]
    quiet: bool,
    /// Name or id [default: all that run]
    sandbox: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    execs: Vec<v1::Exec>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    let mut found = match &args.sandbox {
        Some(sandbox) => of_one(&client, sandbox).await?,
        None => of_all(&client).await?,
    };
    found.retain(|(_, exec)| !args.running || exec.state != ExecState::Done);
    found.sort_by_key(|(_, exec)| Reverse(exec.created_at));
    let limit = if args.all { usize::MAX } else { args.last.unwrap_or(DEFAULT_LISTED) };
    let n_more = found.len().saturating_sub(limit);
    found.truncate(limit);
    if context.json {
        output::json(&Listed { execs: found.into_iter().map(|(_, exec)| exec).collect() })?;
    } else if args.quiet {
        for (_, exec) in &found {
            output::line(exec.id.as_str())?;
        }
    } else {
        let heading = ["ID", "SANDBOX", "STATE", "CODE", "STARTED", "TIME", "BY", "COMMAND"];
        let may_go: &[&str] = if args.sandbox.is_some() { &["SANDBOX", "BY"] } else { &["BY", "TIME"] };
        output::table_with_long_end(heading, found.iter().map(row), may_go)?;
        if n_more > 0 && args.last.is_none() {
            output::note(&format!("{n_more} older ones are not shown; -a shows all"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An exec, with the name of its sandbox.
type Named = (String, v1::Exec);

async fn of_one(client: &Client, sandbox: &str) -> CommandResult<Vec<Named>> {
    Ok(client.execs(sandbox).await?.into_iter().map(|exec| (sandbox.to_owned(), exec)).collect())
}

/// The execs of every live sandbox.
async fn of_all(client: &Client) -> CommandResult<Vec<Named>> {
    let mut found = Vec::new();
    for sandbox in client.list(&[]).await?.into_iter().filter(|sandbox| sandbox.state.is_live()) {
        match of_one(client, sandbox.name.as_str()).await {
            Ok(execs) => found.extend(execs),
            Err(error) if error.kind() == Some(ErrorKind::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn row((sandbox, exec): &Named) -> [String; 8] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        exec.id.to_string(),
        sandbox.clone(),
        state(exec).to_owned(),
        or_dash(exec.exit_code.map(|code| code.to_string())),
        output::ago(exec.created_at),
        or_dash(lasted(exec).map(short)),
        or_dash(exec.asked_by.clone()),
        line(exec),
    ]
}

fn state(exec: &v1::Exec) -> &'static str {
    match exec.state {
        ExecState::Starting => "starting",
        ExecState::Running => "running",
        ExecState::Done => "done",
    }
}

/// What it runs, on one line.
pub(super) fn line(exec: &v1::Exec) -> String {
    match &exec.cell {
        Some(cell) => format!("{} code", cell.language),
        None => exec.command.join(" "),
    }
}

fn lasted(exec: &v1::Exec) -> Option<Duration> {
    if let Some(millis) = exec.duration_ms {
        return Some(Duration::from_millis(millis));
    }
    let begun = exec.started_at.filter(|_| exec.state != ExecState::Done)?;
    Duration::try_from(Timestamp::now().duration_since(begun)).ok()
}

fn short(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        return format!("{}ms", time.as_millis());
    }
    output::span(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!([short(Duration::from_millis(7)), short(Duration::from_secs(75))], ["7ms", "1m"]);
    }
}
