//! Telling a caller who waits that they are not forgotten.

use std::{pin::pin, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::mcp::call::Call;

/// How often a caller who asked for it hears that something is still waited for.
const EVERY: Duration = Duration::from_secs(1);

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
    let mut ticks = interval_at(begun + EVERY, EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt;
    use serde_json::{Value, json};

    use crate::mcp::{
        call::Progress,
        testing::{Client, ask},
        tools::exec::tests::client_with_box,
    };

    /// Calls, and goes away at the first word of progress. Returns that word, and the answer.
    async fn until_told(client: &Client, tool: &str, arguments: Value) -> (String, Value) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut call = client.call.clone();
        call.cancelled = call.cancelled.child_token();
        let (steps, token) = (Arc::clone(&told), call.cancelled.clone());
        call.progress = Progress::new(move |step| {
            steps.lock().unwrap().push(step.message);
            token.cancel();
            std::future::ready(()).boxed()
        });
        let envelope = ask(call, tool, arguments).await;
        let first = told.lock().unwrap().first().cloned();
        (first.unwrap_or_default(), envelope)
    }

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
            let (told, envelope) = until_told(&client, tool, arguments).await;
            assert_eq!(told, "waiting for 1 s", "{tool}: {envelope}");
        }
    }
}
