//! One foreground exec: passes its output to us, and our stdin and signals to it.

mod stdin;

use std::{
    convert::Infallible,
    pin::Pin,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use engine::{Entry, EntryBody};
use frontends::rest::v1::Exec;
use sandbox::{Error, ErrorKind, ExecOutcome, NotStarted, TerminalSize};
use tokio::{io::AsyncWriteExt as _, sync::Notify};

use crate::{
    arguments::AttachArgs,
    client::{Client, EntryStream, patiently},
    error::CommandResult,
    interrupt::{self, Asked, SIGHUP, Signals},
    output,
    terminal::{self, RawMode},
};

/// How the exec is attached to this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attachment {
    pub(crate) stdin: bool,
    pub(crate) terminal: bool,
}

impl Attachment {
    /// Checks `-i` and `-t`, and refuses them where they cannot work.
    pub(crate) fn checked(attach: &AttachArgs, json: bool) -> CommandResult<Self> {
        let AttachArgs { interactive, tty, .. } = *attach;
        if json && (interactive || tty) {
            return Err(Error::invalid("--json captures the output, but -i and -t pass it through")
                .with_hint("Omit one of them.")
                .into());
        }
        if interactive && tty && !terminal::stdin_is_terminal() {
            return Err(Error::invalid("-it needs a terminal, but stdin is not one")
                .with_hint("Use -i alone to pass a pipe or a file.")
                .into());
        }
        Ok(Self { stdin: interactive, terminal: tty })
    }

    pub(crate) fn terminal_size(self) -> Option<TerminalSize> {
        self.terminal.then(|| terminal::size().unwrap_or_default())
    }
}

/// How our part of the exec ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Outcome(ExecOutcome),
    /// The command keeps running without us.
    Detached,
    /// A signal told us to exit at once.
    Interrupted(i32),
}

impl Ended {
    /// Whether the program does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Outcome(ExecOutcome::NotStarted { reason: NotStarted::NotFound, .. }))
    }

    /// The exit code to pass on. Prints on stderr what the program could not report itself.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Outcome(outcome) => {
                tell(outcome);
                ExitCode::from(outcome.exit_code())
            }
            Self::Detached => ExitCode::SUCCESS,
            Self::Interrupted(signal) => interrupt::exit_code(*signal),
        }
    }
}

/// What to type after the detach keys.
pub(crate) fn left_running(sandbox: &str) -> String {
    format!("the command goes on in sandbox {sandbox}: `warren attach {sandbox}` returns to it")
}

fn tell(outcome: &ExecOutcome) {
    match outcome {
        ExecOutcome::Exited { memory_limit_hit: false, .. } | ExecOutcome::Signaled { .. } => {}
        ExecOutcome::Exited { memory_limit_hit: true, .. } => output::warn(&format!("the command {outcome}")),
        ExecOutcome::NotStarted { .. } => output::error(&format!("the command {outcome}")),
        ExecOutcome::Killed { .. } => output::warn(&outcome.to_string()),
    }
}

/// Follows an exec until it ends or the user detaches. Signals that came before are for it as well.
pub(crate) async fn attend(
    client: &Client,
    exec: &Exec,
    how: Attachment,
    signals: &mut Signals,
) -> CommandResult<Ended> {
    attend_from(client, exec, how, 1, signals).await
}

/// The same, and shows its output from this entry of its log on.
pub(crate) async fn attend_from(
    client: &Client,
    exec: &Exec,
    how: Attachment,
    from: u64,
    signals: &mut Signals,
) -> CommandResult<Ended> {
    if let Some(outcome) = &exec.outcome {
        return Ok(Ended::Outcome(outcome.clone()));
    }
    let raw = if how.terminal && terminal::stdin_is_terminal() { Some(RawMode::enter()?) } else { None };
    let leave = Arc::new(Notify::new());
    let source = if raw.is_some() { stdin::Source::Keys } else { stdin::Source::Pipe };
    let is_cut_off = AtomicBool::new(false);
    let feeding = async {
        match how.stdin {
            true => stdin::feed(client, exec, source, Arc::clone(&leave), &is_cut_off).await,
            false => std::future::pending().await,
        }
    };
    let mut feeding = std::pin::pin!(feeding);

    let mut ended = watch(client, exec, how, from, signals, &leave, feeding.as_mut()).await;
    if is_cut_off.load(Ordering::Relaxed) && matches!(ended, Ok(Ended::Outcome(_))) {
        // It ended because we hung up.
        ended = feeding.await.map(|never| match never {});
    }

    drop(raw);
    ended
}

async fn watch(
    client: &Client,
    exec: &Exec,
    how: Attachment,
    from: u64,
    signals: &mut Signals,
    leave: &Notify,
    mut feeding: Pin<&mut impl Future<Output = CommandResult<Infallible>>>,
) -> CommandResult<Ended> {
    let mut printing = std::pin::pin!(print(client, exec, from));
    let mut n_interrupts = 0;
    loop {
        let asked = tokio::select! {
            outcome = &mut printing => return outcome.map(Ended::Outcome),
            () = leave.notified() => return Ok(Ended::Detached),
            Err(lost) = &mut feeding => return Err(lost),
            asked = signals.next() => asked,
        };
        match asked {
            Asked::Resize if how.terminal => {
                if let Some(size) = terminal::size() {
                    // The command may have ended before the resize arrived.
                    client.resize(exec.sandbox.as_str(), exec.id.as_str(), size).await.ok();
                }
            }
            Asked::Resize => {}
            Asked::End(signal) => {
                n_interrupts += 1;
                // The terminal hung up, or the user repeated the signal to make us exit.
                if n_interrupts > 1 || signal == SIGHUP {
                    return Ok(Ended::Interrupted(signal));
                }
                client.signal(exec.sandbox.as_str(), exec.id.as_str(), signal).await.ok();
            }
        }
    }
}

/// Prints output as it comes, byte for byte; returns how the command ended.
async fn print(client: &Client, exec: &Exec, from: u64) -> CommandResult<ExecOutcome> {
    let mut printer = Printer::new();
    follow_from(client, exec, from, async |batch| {
        for entry in batch {
            printer.print(entry).await?;
        }
        printer.flush().await
    })
    .await
}

/// Passes on an exec's entries as they come; returns how it ended.
pub(crate) async fn follow(
    client: &Client,
    exec: &Exec,
    take: impl AsyncFnMut(&[Entry]) -> CommandResult<()>,
) -> CommandResult<ExecOutcome> {
    follow_from(client, exec, 1, take).await
}

async fn follow_from(
    client: &Client,
    exec: &Exec,
    from: u64,
    mut take: impl AsyncFnMut(&[Entry]) -> CommandResult<()>,
) -> CommandResult<ExecOutcome> {
    let mut entries = EntryStream::new(client, &exec.sandbox, &exec.id, from, true);
    let mut outcome = None;
    loop {
        let batch = entries.next_batch().await?;
        if batch.is_empty() {
            break;
        }
        take(&batch).await?;
        outcome = batch.iter().filter_map(Entry::outcome).next_back().cloned().or(outcome);
    }
    match outcome {
        Some(outcome) => Ok(outcome),
        None => recorded_outcome(client, exec).await,
    }
}

/// The log was trimmed or is incomplete, so the outcome comes from the record.
async fn recorded_outcome(client: &Client, exec: &Exec) -> CommandResult<ExecOutcome> {
    let wait = async |left| client.wait_exec(exec.sandbox.as_str(), exec.id.as_str(), left).await;
    let view = patiently(None, wait).await?;
    view.outcome.ok_or_else(|| {
        Error::new(ErrorKind::Internal, format!("exec {} ended without an outcome", exec.id)).into()
    })
}

/// Stdout to stdout, stderr to stderr.
pub(crate) struct Printer {
    stdout: tokio::io::Stdout,
    stderr: tokio::io::Stderr,
}

impl Printer {
    pub(crate) fn new() -> Self {
        Self { stdout: tokio::io::stdout(), stderr: tokio::io::stderr() }
    }

    pub(crate) async fn print(&mut self, entry: &Entry) -> CommandResult<()> {
        match &entry.body {
            EntryBody::Stdout(bytes) => self.stdout.write_all(bytes).await?,
            EntryBody::Stderr(bytes) => self.stderr.write_all(bytes).await?,
            EntryBody::Trimmed { .. } => {
                output::note(&format!("the log was trimmed: it starts after entry {}", entry.number));
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) async fn stdout(&mut self, bytes: &[u8]) -> CommandResult<()> {
        Ok(self.stdout.write_all(bytes).await?)
    }

    pub(crate) async fn stderr(&mut self, bytes: &[u8]) -> CommandResult<()> {
        Ok(self.stderr.write_all(bytes).await?)
    }

    pub(crate) async fn flush(&mut self) -> CommandResult<()> {
        self.stdout.flush().await?;
        self.stderr.flush().await?;
        Ok(())
    }
}
