//! Code at the command line: the sandbox it runs in, how its results are shown, and where its pictures are saved.

mod block;
mod plots;
mod show;
mod target;

use std::process::ExitCode;

use frontends::rest::v1::Exec;
use sandbox::{Error, ExecOutcome, ExecSpec, KillReason, Language, NotStarted};

pub(crate) use self::{
    block::is_complete,
    plots::{Picture, Plots, PlotsArgs, ending_of},
    show::Screen,
    target::{CodeSandbox, CodeSandboxArgs},
};
use crate::{
    client::Client,
    commands::lacks,
    error::CommandResult,
    interrupt::{Asked, SIGHUP, SIGINT, SIGKILL, Signals},
    output,
    session::{self, Ended},
};

/// Runs one cell in the foreground. The first ctrl-C interrupts it, the second kills its interpreter, the third leaves.
pub(crate) async fn run(
    target: &CodeSandbox,
    spec: &ExecSpec,
    screen: &mut Screen,
    signals: &mut Signals,
) -> CommandResult<Ended> {
    screen.begin();
    let client = &target.client;
    let exec = client.exec(&target.sandbox, spec).await?;
    if let Some(outcome) = &exec.outcome {
        return Ok(Ended::Outcome(outcome.clone()));
    }
    let mut showing = std::pin::pin!(show(client, &exec, screen));
    let mut n_interrupts = 0;
    loop {
        let asked = tokio::select! {
            outcome = &mut showing => {
                let ended = Ended::Outcome(outcome?);
                lacks::tell(client, &exec, &ended, target.of()).await;
                return Ok(ended);
            }
            asked = signals.next() => asked,
        };
        let signal = match asked {
            Asked::Resize => continue,
            Asked::End(signal) => signal,
        };
        n_interrupts += 1;
        let sent = match (signal, n_interrupts) {
            (SIGINT, 1) => SIGINT,
            (SIGINT, 2) => SIGKILL,
            // The terminal hung up, or the user pressed Ctrl-C for the third time to leave.
            _ => {
                let last = if signal == SIGHUP { SIGINT } else { SIGKILL };
                client.signal(exec.sandbox.as_str(), exec.id.as_str(), last).await.ok();
                return Ok(Ended::Interrupted(signal));
            }
        };
        // The code may have ended before the interrupt arrived.
        client.signal(exec.sandbox.as_str(), exec.id.as_str(), sent).await.ok();
    }
}

async fn show(client: &Client, exec: &Exec, screen: &mut Screen) -> CommandResult<ExecOutcome> {
    session::follow(client, exec, async |batch| {
        for entry in batch {
            screen.show(entry).await?;
        }
        screen.flush().await
    })
    .await
}

/// The exit code to pass on. If the code timed out, prints whether its variables were kept.
pub(crate) fn conclude(ended: &Ended, screen: &Screen) -> ExitCode {
    let is_late = matches!(ended, Ended::Outcome(ExecOutcome::Killed { reason: KillReason::TimeLimit }));
    match (ended, screen.kept) {
        (Ended::Outcome(outcome), Some(kept)) if is_late => {
            let kept = if kept { "kept" } else { "lost" };
            output::warn(&format!("the code timed out; its variables are {kept}"));
            ExitCode::from(outcome.exit_code())
        }
        _ => ended.exit_code(),
    }
}

/// The error, with its hint, if the code ended for a reason outside of itself.
pub(crate) async fn refusal(target: &CodeSandbox, language: Language, ended: &Ended) -> Option<Error> {
    let Ended::Outcome(ExecOutcome::NotStarted { reason: NotStarted::NotFound, message }) = ended else {
        return None;
    };
    Some(missing(target, &format!("the sandbox cannot run {language}: {message}")).await)
}

/// Finds the language that a name stands for.
pub(crate) async fn language(target: &CodeSandbox, word: &str) -> CommandResult<Language> {
    match word.parse::<Language>() {
        Ok(language) => Ok(language),
        Err(unknown) => Err(missing(target, &unknown.to_string()).await.into()),
    }
}

async fn missing(target: &CodeSandbox, message: &str) -> Error {
    let error = Error::invalid(message);
    let Ok(found) = target.client.languages(&target.sandbox).await else { return error };
    let names: Vec<_> = found.iter().map(|language| language.name.as_str()).collect();
    error.with_hint(format!("This sandbox has {}.", names.join(", ")))
}
