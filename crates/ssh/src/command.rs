//! Commands and shells: an exec in the ledger, followed by a channel.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use engine::{ByteStream, EntryBody, Principal, SandboxRef, SignalScope};
use futures_util::{StreamExt as _, stream};
use russh::Pty;
use sandbox::{Error, ErrorKind, ExecId, ExecOutcome, ExecSpec, Result, TerminalMode, TerminalSize};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    channel::{Channel, Gone},
    flow::Queue,
    limits::MAX_TERMINAL_MODES,
    login::Login,
    words,
};

const SIGHUP: i32 = 1;

/// The settings that a client asked for before it asked for a command.
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) terminal: Option<TerminalSize>,
    pub(crate) terminal_modes: Vec<TerminalMode>,
}

/// A client's action on a running command, besides its input.
#[derive(Debug)]
pub(crate) enum Control {
    Signal(i32),
    Resize(TerminalSize),
}

/// The program to run.
#[derive(Debug)]
pub(crate) enum Program {
    Shell,
    Line(String),
}

impl Program {
    fn name(&self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Line(_) => "exec",
        }
    }
}

/// A running exec and its caller.
struct Running {
    login: Arc<Login>,
    which: SandboxRef,
    exec: ExecId,
    has_terminal: bool,
}

/// Runs it to its end, or until the client is gone.
pub(crate) async fn run(
    login: Arc<Login>,
    channel: Channel,
    program: Program,
    preparation: Preparation,
    mut controls: mpsc::Receiver<Control>,
) {
    let (since, has_terminal) = (Instant::now(), preparation.terminal.is_some());
    let started = start(&login, &program, preparation).await;
    match started {
        Err(error) => {
            login.record(program.name(), since, Some(&error)).await;
            channel.fail(&error).await;
        }
        Ok((which, exec)) => {
            login.record(format!("{} {exec}", program.name()), since, None).await;
            let running = Running { login, which, exec, has_terminal };
            running.follow(channel, &mut controls).await;
        }
    }
}

async fn start(login: &Login, program: &Program, preparation: Preparation) -> Result<(SandboxRef, ExecId)> {
    let which = login.running_sandbox().await?;
    let (engine, who) = (&login.engine, &login.who);
    who.may_change()?;
    let shell = engine.shell(who, &which).await?;
    let command = match program {
        Program::Shell => vec![shell, "-l".to_owned()],
        Program::Line(line) => vec![shell, "-c".to_owned(), line.clone()],
    };
    let spec = ExecSpec {
        command,
        env: preparation.env,
        user: login.user().map(str::to_owned),
        terminal: preparation.terminal,
        terminal_modes: preparation.terminal_modes,
        stdin: true,
        ..ExecSpec::default()
    };
    let (exec, _started) = engine.exec_ensuring_running(who, &which, spec).await?;
    Ok((which, exec.id))
}

/// How a channel's command came to its end.
enum End {
    Outcome(ExecOutcome),
    Failed(Error),
    ClientGone,
}

impl Running {
    async fn follow(self, channel: Channel, controls: &mut mpsc::Receiver<Control>) {
        let feeding = tokio::spawn(self.feed(Arc::clone(&channel.input)));
        let end = self.pass_output(&channel, controls).await;
        // Input that nobody reads any more must not keep the connection waiting.
        feeding.abort();
        match end {
            End::Outcome(ExecOutcome::Signaled { signal }) => {
                channel.exit_by_signal(words::signal_name(signal)).await;
            }
            End::Outcome(outcome) => {
                if !matches!(outcome, ExecOutcome::Exited { .. }) {
                    drop(channel.send_stderr(format!("warren: {outcome}\r\n").into()).await);
                }
                channel.exit(outcome.exit_code().into()).await;
            }
            End::Failed(error) => channel.fail(&error).await,
            End::ClientGone => {
                drop(channel);
                self.hang_up().await;
            }
        }
    }

    /// Writes a channel's input to the command, until either ends.
    fn feed(&self, input: Arc<Queue>) -> impl Future<Output = ()> + use<> {
        let (login, which, exec) = (Arc::clone(&self.login), self.which.clone(), self.exec.clone());
        let pieces = Arc::clone(&input);
        let bytes: ByteStream = stream::unfold(pieces, |pieces| async move {
            let piece = pieces.next().await?;
            Some((Ok(piece), pieces))
        })
        .boxed();
        async move {
            // A command need not read its input, and may end before it gets any.
            let fed = login.engine.exec_stdin(&login.who, &which, &exec, bytes, true).await;
            if let Err(error) = fed {
                tracing::debug!(%exec, %error, "input was not taken in full");
            }
            input.discard();
        }
    }

    async fn pass_output(&self, channel: &Channel, controls: &mut mpsc::Receiver<Control>) -> End {
        let Login { engine, who, .. } = &*self.login;
        let mut entries = match engine.exec_stream(who, &self.which, &self.exec).await {
            Ok(entries) => entries,
            Err(error) => return End::Failed(error),
        };
        loop {
            let entry = tokio::select! {
                // Output comes last, so that a command that never stops printing can still be stopped.
                biased;
                Some(control) = controls.recv() => {
                    self.control(control).await;
                    continue;
                }
                () = channel.closed.cancelled() => return End::ClientGone,
                entry = entries.next() => entry,
            };
            let entry = match entry {
                Some(Ok(entry)) => entry,
                Some(Err(error)) => return End::Failed(error),
                None => return self.recorded_end().await,
            };
            let outcome = entry.outcome().cloned();
            let sent = tokio::select! {
                sent = send(channel, entry.body) => sent,
                // A client that takes no output may still have something to say.
                never = self.obey(controls) => match never {},
            };
            match (sent, outcome) {
                (Err(Gone), _) => return End::ClientGone,
                (Ok(()), Some(outcome)) => return End::Outcome(outcome),
                (Ok(()), None) => {}
            }
        }
    }

    /// Does what the client says, for as long as this is awaited.
    async fn obey(&self, controls: &mut mpsc::Receiver<Control>) -> Infallible {
        while let Some(control) = controls.recv().await {
            self.control(control).await;
        }
        std::future::pending().await
    }

    async fn control(&self, control: Control) {
        let Login { engine, who, .. } = &*self.login;
        let done = match control {
            Control::Signal(signal) => {
                engine.exec_signal(who, &self.which, &self.exec, signal, SignalScope::Group).await
            }
            Control::Resize(size) => engine.exec_resize(who, &self.which, &self.exec, size).await,
        };
        if let Err(error) = done {
            tracing::debug!(exec = %self.exec, %error, "a request of its client was not carried out");
        }
    }

    /// For a ledger without an end: cut short because the daemon closes.
    async fn recorded_end(&self) -> End {
        let Login { engine, who, .. } = &*self.login;
        match engine.exec_view(who, &self.which, &self.exec).await {
            Ok(view) => match view.outcome {
                Some(outcome) => End::Outcome(outcome),
                None => End::Failed(Error::new(ErrorKind::Unavailable, "the daemon is closing")),
            },
            Err(error) => End::Failed(error),
        }
    }

    /// A terminal whose client is gone hangs up, like a modem. A command without one runs on, as with other servers.
    async fn hang_up(self) {
        if !self.has_terminal {
            return;
        }
        let who: Principal = self.login.without_key();
        let sent =
            self.login.engine.exec_signal(&who, &self.which, &self.exec, SIGHUP, SignalScope::Group).await;
        match sent {
            Err(error) if error.kind() != ErrorKind::WrongState => {
                tracing::warn!(exec = %self.exec, %error, "a terminal could not be hung up");
            }
            // Sent, or it has already ended.
            _ => {}
        }
    }
}

async fn send(channel: &Channel, body: EntryBody) -> Result<(), Gone> {
    match body {
        EntryBody::Stdout(bytes) => channel.send(bytes).await,
        EntryBody::Stderr(bytes) => channel.send_stderr(bytes).await,
        EntryBody::Trimmed { .. } => {
            // Another command of the sandbox filled the ledger.
            let lost = "warren: some output is lost: the sandbox printed too much at once\r\n";
            channel.send_stderr(lost.into()).await
        }
        EntryBody::Started { .. }
        | EntryBody::Stdin(_)
        | EntryBody::Rich(_)
        | EntryBody::Exited(_)
        | EntryBody::Closed => Ok(()),
    }
}

/// The size of a terminal as a client states it; zero means that it does not know.
pub(crate) fn terminal_size(cols: u32, rows: u32) -> TerminalSize {
    let usual = TerminalSize::default();
    let within = |value: u32, usual: u16| match u16::try_from(value) {
        Ok(0) => usual,
        Ok(value) => value,
        Err(_too_large) => u16::MAX,
    };
    TerminalSize { rows: within(rows, usual.rows), cols: within(cols, usual.cols) }
}

/// A terminal's modes as a client states them, each of which the guest applies if it knows it.
pub(crate) fn terminal_modes(stated: &[(Pty, u32)]) -> Vec<TerminalMode> {
    let modes = stated.iter().filter(|(code, _)| *code != Pty::TTY_OP_END);
    modes.map(|&(code, value)| TerminalMode { opcode: code as u8, value }).take(MAX_TERMINAL_MODES).collect()
}

/// A command line as text. Others cannot be given to an exec.
pub(crate) fn line_of(bytes: &[u8]) -> Result<String> {
    if bytes.len() > crate::limits::MAX_COMMAND_BYTES {
        return Err(Error::invalid(format!(
            "the command has {} bytes; the limit is {}",
            bytes.len(),
            crate::limits::MAX_COMMAND_BYTES
        )));
    }
    String::from_utf8(bytes.to_vec()).map_err(|_not_text| Error::invalid("the command is not UTF-8"))
}

/// Tells a client why its command cannot be run.
pub(crate) async fn refuse(login: Arc<Login>, channel: Channel, error: Error) {
    login.record("exec", Instant::now(), Some(&error)).await;
    channel.fail(&error).await;
}
