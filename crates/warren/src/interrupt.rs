//! Lets commands clean up after themselves when a signal ends them.

use tokio::signal::unix::{SignalKind, signal};

use crate::{
    error::{CommandError, CommandResult},
    session::{SIGHUP, SIGINT, SIGTERM},
};

/// Does the work, or drops it when a signal asks us to end; what it holds is then cleaned up as after a failure.
///
/// Not for work that blocks this thread: the signal would go unnoticed.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = CommandResult<T>>) -> CommandResult<T> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut hang_ups = signal(SignalKind::hangup())?;
    let number = tokio::select! {
        done = work => return done,
        _ = interrupts.recv() => SIGINT,
        _ = terminations.recv() => SIGTERM,
        _ = hang_ups.recv() => SIGHUP,
    };
    Err(CommandError::Interrupted(number))
}
