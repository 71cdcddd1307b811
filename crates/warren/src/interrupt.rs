//! The signals that ask this command to end: it cleans up after itself first.

use std::{io, pin::pin, process::ExitCode, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

use crate::error::{CommandError, CommandResult};

pub(crate) const SIGHUP: i32 = 1;
pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGKILL: i32 = 9;
pub(crate) const SIGTERM: i32 = 15;

/// The exit code of a command that this signal ended.
pub(crate) fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from(128 + u8::try_from(signal).unwrap_or(0))
}

pub(crate) enum Asked {
    Resize,
    End(i32),
}

/// Signals since this was made. From then on they no longer end the process, so whatever may wait must listen.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    resize: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            resize: signal(SignalKind::window_change())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::End(SIGINT),
            _ = self.terminate.recv() => Asked::End(SIGTERM),
            _ = self.hang_up.recv() => Asked::End(SIGHUP),
            _ = self.resize.recv() => Asked::Resize,
        }
    }

    /// Waits for a signal that asks us to end.
    pub(crate) async fn end(&mut self) -> i32 {
        loop {
            if let Asked::End(signal) = self.next().await {
                return signal;
            }
        }
    }

    /// Does the work, or drops it when a signal asks us to end; what it holds is then cleaned up as after a failure.
    ///
    /// Not for work that blocks this thread: the signal would go unnoticed.
    pub(crate) async fn unless_interrupted<T>(
        &mut self,
        work: impl Future<Output = CommandResult<T>>,
    ) -> CommandResult<T> {
        tokio::select! {
            done = work => done,
            signal = self.end() => Err(CommandError::Interrupted(signal)),
        }
    }

    /// Makes something that the daemon would keep. When a signal asks us to end, waits for the answer, so that
    /// `unmake`, which gets the signal too, knows what to take back: at most this long, and only until a second signal.
    pub(crate) async fn unless_unmade<T>(
        &mut self,
        making: impl Future<Output = CommandResult<T>>,
        patience: Option<Duration>,
        unmake: impl AsyncFnOnce(T, i32),
    ) -> CommandResult<T> {
        let mut making = pin!(making);
        let signal = tokio::select! {
            made = &mut making => return made,
            signal = self.end() => signal,
        };
        let made = async {
            match patience {
                Some(patience) => timeout(patience, making).await.ok(),
                None => Some(making.await),
            }
        };
        tokio::select! {
            made = made => if let Some(Ok(made)) = made {
                unmake(made, signal).await;
            },
            _second = self.end() => {}
        }
        Err(CommandError::Interrupted(signal))
    }
}

/// As [`Signals::unless_interrupted`], for work that nothing must follow.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = CommandResult<T>>) -> CommandResult<T> {
    Signals::new()?.unless_interrupted(work).await
}
