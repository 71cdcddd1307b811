//! Probes that need nothing but a program inside.

use std::time::Duration;

use attack::Report;
use frontends::rest::v1;
use sandbox::{Error, ErrorKind, ExecSpec};

use super::{Seen, listed, stage::Stage};
use crate::{
    client::{Target, Within},
    error::CommandResult,
};

/// The guest's own binary, as seen from inside: nothing has to be copied into the sandbox.
const PROGRAM: &str = "/proc/self/exe";

/// Runs one probe in the sandbox, and returns what it observed.
pub(super) async fn seen(stage: &Stage, name: &str) -> CommandResult<Seen> {
    Ok(judge(&run(stage, &stage.sandbox, name, &[]).await?))
}

/// Judges the answers, for probes that know the right ones themselves.
pub(super) fn judge(report: &Report) -> Seen {
    if let Some(why) = &report.skipped {
        return Seen::untried(why.clone());
    }
    if report.n_breached == 0 {
        return Seen::contained(format!("{} of {} attempts refused", report.n_held, report.n_held));
    }
    let breaches: Vec<String> =
        report.breaches.iter().map(|attempt| format!("{}: {}", attempt.what, attempt.answer)).collect();
    Seen::open(format!(
        "{} of {}: {}",
        report.n_breached,
        report.n_breached + report.n_held,
        listed(&breaches)
    ))
}

pub(super) fn argv(name: &str, arguments: &[String]) -> ExecSpec {
    let words = [PROGRAM, "probe", name].map(str::to_owned);
    ExecSpec::argv(words.into_iter().chain(arguments.iter().cloned()))
}

/// Runs `warren probe` in a sandbox. Its output comes from the sandbox, and is not trusted.
pub(super) async fn run(
    stage: &Stage,
    sandbox: &str,
    name: &str,
    arguments: &[String],
) -> CommandResult<Report> {
    let ran = stage.exec(sandbox, argv(name, arguments)).await?;
    report_of(&ran).ok_or_else(|| {
        let outcome = ran.exec.outcome.map(|outcome| outcome.to_string()).unwrap_or_default();
        let said = ran.stderr.and_then(|stderr| stderr.text).unwrap_or_default();
        Error::new(ErrorKind::Unavailable, format!("the probe did not report: {outcome} {}", said.trim()))
            .into()
    })
}

pub(super) fn report_of(ran: &v1::ExecResult) -> Option<Report> {
    let printed = ran.stdout.as_ref()?.bytes()?;
    serde_json::from_slice(&printed).ok()
}

/// How often to check for a probe that holds something.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS: usize = 250;

/// Runs a probe that holds something, runs `meanwhile` while it does, releases it and returns both results.
pub(super) async fn holding<T>(
    stage: &Stage,
    sandbox: &str,
    name: &str,
    meanwhile: impl Future<Output = CommandResult<T>>,
) -> CommandResult<(Report, T)> {
    let file = format!("/root/held-{name}");
    let exec = stage.operator.exec(sandbox, &argv(name, std::slice::from_ref(&file))).await?;
    let within = Within::Sandbox(sandbox);
    for _ in 0..LOOKS {
        if stage.operator.look(within, &format!("{file}.ready")).await.is_ok() {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let done = meanwhile.await;
    stage.write(sandbox, &format!("{file}.go"), "go").await?;
    let id = exec.id.to_string();
    stage.operator.wait_exec(sandbox, &id, Some(Duration::from_secs(10))).await?;
    let report = output(stage, sandbox, &id)
        .await
        .ok_or_else(|| Error::new(ErrorKind::Unavailable, format!("the probe {name} did not report")))?;
    Ok((report, done?))
}

/// Returns the report that an exec printed, once it ended.
async fn output(stage: &Stage, sandbox: &str, exec: &str) -> Option<Report> {
    let target = Target::new(&["sandboxes", sandbox, "execs", exec, "output"]);
    let stream = stage.operator.download(target.with("stream", "stdout")).await.ok()?;
    let pieces: Vec<_> = futures_util::StreamExt::collect(stream).await;
    let bytes: Vec<u8> = pieces.into_iter().flatten().flatten().collect();
    serde_json::from_slice(&bytes).ok()
}
