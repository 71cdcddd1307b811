//! The final test: a separate daemon in a separate directory creates one sandbox and runs one command.

use std::time::Instant;

use frontends::rest::v1;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use sandbox::{ExecSpec, Isolation, SandboxSpec};

use super::{Check, Scratch};
use crate::{
    client::{Client, ClientOptions, StartMode},
    directories::Directories,
    error::{CommandError, CommandResult, in_words},
};

const NAME: &str = "a sandbox";
/// How long the trial's daemon may take to exit.
const LAST_WAIT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Runs the test, cleans up and reports. The isolation is that of the sandbox.
pub(crate) async fn try_sandbox(directories: &Directories) -> (Check, Option<Isolation>) {
    let scratch = Scratch::new(directories, "doctor");
    let tried = try_in(&scratch.directories).await;
    drop(scratch);
    match tried {
        Ok((millis, isolation)) => {
            (Check::works(NAME, format!("created, used and removed in {millis:.0} ms")), isolation)
        }
        Err(CommandError::Failed { error, .. }) => {
            let mend =
                error.next().map_or_else(|| "Fix what is marked above, then try again.".to_owned(), in_words);
            (Check::missing(NAME, error.to_string(), mend), None)
        }
        Err(CommandError::BrokenPipe | CommandError::Interrupted(_)) => {
            (Check::missing(NAME, "the test was interrupted", "Try again."), None)
        }
    }
}

async fn try_in(own: &Directories) -> CommandResult<(f64, Option<Isolation>)> {
    let options = ClientOptions { directories: own.clone(), namespace: None, start: StartMode::IfNeeded };
    let client = Client::connect(options).await?;
    let used = use_sandbox(&client).await;
    stop(&client).await;
    used
}

async fn use_sandbox(client: &Client) -> CommandResult<(f64, Option<Isolation>)> {
    let began = Instant::now();
    let sandbox: v1::Sandbox = client.create(&SandboxSpec::default()).await?;
    let ran = client.exec_and_wait(sandbox.id.as_str(), &ExecSpec::argv(["true"])).await;
    let removed = client.remove(sandbox.id.as_str(), true).await;
    let ran = ran?;
    removed?;
    if ran.exec.exit_code != Some(0) {
        let outcome = ran.exec.outcome.map(|outcome| outcome.to_string()).unwrap_or_default();
        let message = format!("running `true` in it failed: {outcome}");
        return Err(sandbox::Error::new(sandbox::ErrorKind::Unavailable, message).into());
    }
    Ok((began.elapsed().as_secs_f64() * 1000.0, sandbox.isolation))
}

/// Stops the trial's daemon, which is our child, and waits until it has exited.
async fn stop(client: &Client) {
    let pid = client.daemon().and_then(|daemon| daemon.pid).and_then(Pid::from_raw);
    let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return };
    pidfd_send_signal(&pidfd, Signal::TERM).ok();
    let waiting = tokio::task::spawn_blocking(move || {
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&LAST_WAIT)).ok();
    });
    waiting.await.ok();
}
