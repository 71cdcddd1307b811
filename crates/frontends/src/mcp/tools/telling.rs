//! Telling a caller who waits that they are not forgotten.

use std::{pin::pin, time::Duration};

use engine::{Entry, Run, RunEnd};
use sandbox::{Error, ErrorKind, Result};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::mcp::{Call, Failure, output::from_character_border};

/// How often a caller who asked for it hears that something is still waited for.
const EVERY: Duration = Duration::from_secs(1);
/// How much of the newest output a progress message carries.
const MAX_NEWS_BYTES: usize = 2048;

fn ticks(begun: Instant) -> Interval {
    let mut ticks = interval_at(begun + EVERY, EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Works, and meanwhile tells a caller who wants to know how long it has been, out of how long at most.
pub(crate) async fn while_waiting<T>(
    call: &Call,
    limit: Option<Duration>,
    work: impl Future<Output = T>,
) -> T {
    if !call.progress.is_wanted() {
        return work.await;
    }
    let mut work = pin!(work);
    let begun = Instant::now();
    let mut ticks = ticks(begun);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = ticks.tick() => {
                let seconds = begun.elapsed().as_secs_f64();
                let message = format!("waiting for {seconds:.0} s");
                call.progress.tell(seconds, limit.map(|limit| limit.as_secs_f64()), message).await;
            }
        }
    }
}

/// How an exec that was followed ended, and why it did not get all of its stdin.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) end: RunEnd,
    pub(crate) stdin_error: Option<Error>,
}

/// Follows an exec to its end and hands over what it does; meanwhile tells a caller who wants to know how it goes.
pub(crate) async fn while_running(
    call: &Call,
    mut run: Run,
    limit: Option<Duration>,
    mut take: impl FnMut(&Result<Entry>),
) -> Result<Followed, Failure> {
    let (is_wanted, begun) = (call.progress.is_wanted(), Instant::now());
    let mut ticks = ticks(begun);
    let mut news = News::default();
    loop {
        tokio::select! {
            biased;
            _ = ticks.tick(), if is_wanted => {
                let seconds = begun.elapsed().as_secs_f64();
                call.progress.tell(seconds, limit.map(|limit| limit.as_secs_f64()), news.told(seconds)).await;
            }
            entry = run.next() => {
                let Some(entry) = entry else { break };
                if let Some((_, bytes)) = entry.as_ref().ok().and_then(Entry::output) {
                    news.push(bytes);
                }
                take(&entry);
            }
        }
    }
    let stdin_error = run.stdin_error().cloned();
    let end = run.end().await.map_err(|error| {
        let hint = "Call sandbox_exec_poll with its execSessionId to follow it.";
        Failure::from(error).or_hint(ErrorKind::Unavailable, hint)
    })?;
    Ok(Followed { end, stdin_error })
}

/// Output that a caller who waits has not heard of yet.
#[derive(Debug, Default)]
struct News {
    n_bytes: usize,
    fresh: Vec<u8>,
}

impl News {
    fn push(&mut self, bytes: &[u8]) {
        self.n_bytes += bytes.len();
        self.fresh.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_NEWS_BYTES)..]);
        let excess = self.fresh.len().saturating_sub(MAX_NEWS_BYTES);
        self.fresh.drain(..excess);
    }

    fn told(&mut self, seconds: f64) -> String {
        let message = format!("running for {seconds:.0} s, {} bytes printed", self.n_bytes);
        let fresh = std::mem::take(&mut self.fresh);
        match from_character_border(&fresh) {
            [] => message,
            fresh => format!("{message}\n{}", String::from_utf8_lossy(fresh)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::mcp::{testing::ask, tools::exec::tests::client_with_box};

    #[tokio::test]
    async fn who_waits_hears_of_it_about_once_a_second() {
        let client = client_with_box().await;
        let session = client.data("sandbox_exec_start", json!({ "name": "box", "command": "cat" })).await;
        let id = &session["execSessionId"];
        for (tool, arguments) in [
            ("sandbox_wait", json!({ "name": "box", "timeoutMs": 0 })),
            ("sandbox_exec_poll", json!({ "execSessionId": id, "cursor": 1, "waitMs": 60_000 })),
            ("sandbox_logs_stream", json!({ "name": "box", "follow": true, "followTimeoutMs": 60_000 })),
        ] {
            let (call, told) = client.leaving_at("waiting");
            let envelope = ask(call, tool, arguments).await;
            // On a busy machine the first word comes later.
            let first = told.lock().unwrap().first().cloned().unwrap_or_default();
            assert!(
                first.starts_with("waiting for ") && first.ends_with(" s"),
                "{tool}: {first:?}, {envelope}"
            );
        }
    }
}
