//! Code at the command line: where it runs, what of it is shown, and which pictures are kept.

mod block;
mod place;
mod plots;
mod show;

use std::process::ExitCode;

use frontends::rest::v1::Exec;
use sandbox::{Error, ExecOutcome, ExecSpec, KillReason, Language, NotStarted};

pub(crate) use self::{
    block::is_complete,
    place::{Place, PlaceArgs},
    plots::{Picture, Plots, PlotsArgs, ending_of},
    show::Screen,
};
use crate::{
    client::Client,
    error::CommandResult,
    output,
    session::{self, Asked, Ended, SIGHUP, SIGINT, Signals},
};

const SIGKILL: i32 = 9;

/// Runs one cell in the foreground. The first ctrl-C interrupts it, the second kills its interpreter, the third leaves.
pub(crate) async fn run(place: &Place, spec: &ExecSpec, screen: &mut Screen) -> CommandResult<Ended> {
    screen.begin();
    let client = &place.client;
    let exec = client.exec(&place.sandbox, spec).await?;
    if let Some(outcome) = &exec.outcome {
        return Ok(Ended::Outcome(outcome.clone()));
    }
    let mut signals = Signals::new()?;
    let mut showing = std::pin::pin!(show(client, &exec, screen));
    let mut n_interrupts = 0;
    loop {
        let asked = tokio::select! {
            outcome = &mut showing => return outcome.map(Ended::Outcome),
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
            // A terminal that hangs up reads nothing more; and whoever asks so often means us.
            _ => {
                let last = if signal == SIGHUP { SIGINT } else { SIGKILL };
                client.signal(exec.sandbox.as_str(), exec.id.as_str(), last).await.ok();
                return Ok(Ended::Interrupted(signal));
            }
        };
        // One that comes too late has nothing to end.
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

/// The exit code that passes through. Of code whose time was up it is told what became of the variables.
pub(crate) fn conclude(ended: &Ended, screen: &Screen) -> ExitCode {
    let is_late = matches!(ended, Ended::Outcome(ExecOutcome::Killed { reason: KillReason::TimeLimit }));
    match (ended, screen.kept) {
        (Ended::Outcome(outcome), Some(kept)) if is_late => {
            let kept = if kept { "kept" } else { "lost" };
            output::warn(&format!("its time was up; the variables are {kept}"));
            ExitCode::from(outcome.exit_code())
        }
        _ => ended.exit_code(),
    }
}

/// How it ended, where that is not the business of the code: with what to do about it.
pub(crate) async fn refusal(place: &Place, language: Language, ended: &Ended) -> Option<Error> {
    let Ended::Outcome(ExecOutcome::NotStarted { reason: NotStarted::NotFound, message }) = ended else {
        return None;
    };
    Some(missing(place, &format!("the sandbox cannot run {language}: {message}")).await)
}

/// The language that is meant by a word.
pub(crate) async fn language(place: &Place, word: &str) -> CommandResult<Language> {
    match word.parse::<Language>() {
        Ok(language) => Ok(language),
        Err(unknown) => Err(missing(place, &unknown.to_string()).await.into()),
    }
}

async fn missing(place: &Place, message: &str) -> Error {
    let error = Error::invalid(message);
    let Ok(found) = place.client.languages(&place.sandbox).await else { return error };
    let names: Vec<_> = found.iter().map(|language| language.name.as_str()).collect();
    error.with_hint(format!("This sandbox has {}.", names.join(", ")))
}
