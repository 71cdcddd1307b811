//! `warren events`

use std::{
    collections::{HashMap, HashSet},
    io::{self, IsTerminal as _},
    process::ExitCode,
    time::Duration,
};

use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, Event, EventKind, ExecId, SandboxId};
use tokio::time::sleep;

use super::{Context, execs};
use crate::{
    arguments,
    client::{self, Client, EventsWanted, StartMode},
    error::{CommandError, CommandResult},
    hang_up::unless_unread,
    output,
};

/// Shortest and longest pause between two looks for the next daemon.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Show events of sandboxes
///
/// With --follow, continues where it was when the daemon is replaced or started again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren events -f
  warren events --sandbox dev --since 10m
  warren events -f --json --kind sandbox_failed,out_of_memory
  warren events --json --from 100")]
pub(crate) struct Args {
    /// Keep printing new events
    #[arg(long, short)]
    follow: bool,
    /// Start with this event [default: the first, or the next one with --follow]
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Only events of this sandbox, which may be gone: name or id
    #[arg(long, value_name = "SANDBOX")]
    sandbox: Option<String>,
    /// Only events of this kind, such as exec_ended; may be repeated, or be a list with commas
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<EventKind>,
    /// Only events from this time on: a span such as 10m, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = arguments::moment)]
    since: Option<Timestamp>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let Args { follow, from, sandbox, kinds, since } = args;
    let wanted = EventsWanted { from, follow, sandbox, kinds, since };
    let client = context.client().await?;
    let mut printer = Printer::new(context.json);
    if !follow {
        printer.print_all(&client, &wanted).await?;
        return Ok(ExitCode::SUCCESS);
    }
    unless_unread(keep_printing(context, client, printer, wanted)).await?;
    Ok(ExitCode::SUCCESS)
}

/// Prints events of one daemon after the other.
async fn keep_printing(
    context: &Context,
    mut client: Client,
    mut printer: Printer,
    mut wanted: EventsWanted,
) -> CommandResult<()> {
    let began_at = Timestamp::now();
    loop {
        match printer.print_all(&client, &wanted).await {
            Ok(()) => {}
            Err(error) if error.kind() == Some(ErrorKind::Unavailable) => {}
            // The daemon before took the same request with a number that this one does not have yet.
            Err(error) if error.kind() == Some(ErrorKind::InvalidRequest) && printer.last.is_some() => {
                output::note("the daemon's records were lost; its events begin anew");
                printer.last = None;
                wanted.from = Some(1);
                continue;
            }
            Err(error) => return Err(error),
        }
        // Without one that was seen, what came since this command began is what is missing.
        match printer.last {
            Some(last) => wanted.from = Some(last.saturating_add(1)),
            None => wanted.since = wanted.since.or_else(|| wanted.from.is_none().then_some(began_at)),
        }
        client = next_daemon(context).await?;
    }
}

/// Waits until a daemon runs again. Starting one is for commands that need it.
async fn next_daemon(context: &Context) -> CommandResult<Client> {
    let mut pause = MIN_PAUSE;
    let mut has_told = false;
    loop {
        // First, since the one that ends may still answer.
        sleep(pause).await;
        match context.client_that(StartMode::Never).await {
            Err(error) if error.kind() == Some(ErrorKind::Unavailable) => {}
            found => return found,
        }
        if !has_told && pause > MIN_PAUSE * 8 {
            has_told = true;
            output::note("the daemon stopped; waiting for the next one");
        }
        pause = pause.saturating_mul(2).min(MAX_PAUSE);
    }
}

struct Printer {
    json: bool,
    has_heading: bool,
    /// The last event that was printed.
    last: Option<u64>,
    commands: Commands,
}

/// The commands that began. Events name only their ids: those also go to webhooks, and a command may hold a secret.
#[derive(Default)]
struct Commands {
    known: HashMap<ExecId, String>,
    /// Sandboxes whose execs were read; the rest is asked for one by one.
    read: HashSet<SandboxId>,
    gone: HashSet<SandboxId>,
}

impl Commands {
    async fn of(&mut self, client: &Client, event: &Event) -> Option<String> {
        let (Some(sandbox), Some(exec)) = (&event.sandbox, &event.exec) else { return None };
        if event.kind != EventKind::ExecStarted {
            return None;
        }
        if self.read.insert(sandbox.clone()) {
            match client.execs(sandbox.as_str()).await {
                Ok(execs) => {
                    self.known.extend(execs.iter().map(|exec| (exec.id.clone(), execs::line(exec))));
                }
                Err(_) => drop(self.gone.insert(sandbox.clone())),
            }
        }
        if self.gone.contains(sandbox) {
            return None;
        }
        if let Some(known) = self.known.remove(exec) {
            return Some(known);
        }
        let view = client.exec_view(sandbox.as_str(), exec.as_str()).await.ok()?;
        Some(execs::line(&view))
    }
}

impl Printer {
    fn new(json: bool) -> Self {
        // In a pipe, each line is an event.
        Self {
            json,
            has_heading: json || !io::stdout().is_terminal(),
            last: None,
            commands: Commands::default(),
        }
    }

    /// Prints until the stream ends.
    async fn print_all(&mut self, client: &Client, wanted: &EventsWanted) -> CommandResult<()> {
        let mut lines = client::text_lines(client.events(wanted).await?);
        loop {
            let line = match lines.try_next().await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(()),
                Err(error) if wanted.follow => return Err(lost(error)),
                Err(error) => return Err(error.into()),
            };
            let event: Event = serde_json::from_str(&line).map_err(|error| {
                Error::new(ErrorKind::Internal, format!("the daemon ended the stream: {line}"))
                    .with_source(error)
            })?;
            match self.json {
                true => output::line(&line)?,
                false => {
                    let command = self.commands.of(client, &event).await;
                    self.print(&event, command.as_deref())?;
                }
            }
            self.last = Some(event.number);
        }
    }

    fn print(&mut self, event: &Event, command: Option<&str>) -> CommandResult<()> {
        if !self.has_heading {
            self.has_heading = true;
            output::line(&format!("{:>6}  {:<24}  {:<18} SUBJECT", "NUMBER", "TIME", "KIND"))?;
        }
        output::line(&output::cut(&describe(event, command), output::width().unwrap_or(usize::MAX)))
    }
}

/// A broken connection: the daemon died.
fn lost(error: io::Error) -> CommandError {
    Error::new(ErrorKind::Unavailable, "lost the connection to the daemon").with_source(error).into()
}

fn describe(event: &Event, command: Option<&str>) -> String {
    let name = event.name.as_ref().map(ToString::to_string);
    let id = event.sandbox.as_ref().map(ToString::to_string);
    let subject = name.or(id).unwrap_or_default();
    let exec = event.exec.as_ref().map(|exec| format!(" {exec}")).unwrap_or_default();
    let Event { number, at, kind, detail, .. } = event;
    let detail = command.unwrap_or(detail);
    output::printable(format!("{number:>6}  {at:.3}  {kind:<18} {subject}{exec} {detail}").trim_end())
}
