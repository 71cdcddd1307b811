//! Daemons that stop in the middle of a long request: the next one is asked again, but not forever.

use std::time::{Duration, Instant};

use crate::error::{CommandError, CommandResult};

/// How many daemons may be lost in a row, each within this time.
const MAX_BREAKS: u32 = 5;
const SOON: Duration = Duration::from_secs(10);
/// The first pause before another daemon is looked for; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How many daemons were lost in a row.
#[derive(Debug, Default)]
pub(crate) struct Breaks(u32);

impl Breaks {
    /// Waits before a request that began at `begun` is repeated. Returns the error if it is not about a lost daemon, or
    /// if too many were lost.
    pub(crate) async fn go_on(&mut self, begun: Instant, error: CommandError) -> CommandResult<()> {
        self.0 = if begun.elapsed() < SOON { self.0 + 1 } else { 1 };
        if !error.is_lost_daemon() || self.0 > MAX_BREAKS {
            return Err(error);
        }
        tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(self.0 - 1)).await;
        Ok(())
    }
}

/// Makes a request that waits, with the time that is left; again with the next daemon if one stops meanwhile.
pub(crate) async fn patiently<T>(
    timeout: Option<Duration>,
    wait: impl AsyncFn(Option<Duration>) -> CommandResult<T>,
) -> CommandResult<T> {
    let started = Instant::now();
    let mut breaks = Breaks::default();
    loop {
        let begun = Instant::now();
        match wait(timeout.map(|timeout| timeout.saturating_sub(started.elapsed()))).await {
            Err(error) => breaks.go_on(begun, error).await?,
            done => return done,
        }
    }
}
