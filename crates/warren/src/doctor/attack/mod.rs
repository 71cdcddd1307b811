//! `warren doctor --attack`: a bounded attack on the isolation of this host, from temporary sandboxes of a temporary
//! daemon.
//!
//! Each probe is one value in [`probes::PROBES`]. The part inside the sandbox is the crate `attack`, run as `warren
//! probe`.

mod archives;
mod containers;
mod dashboard;
mod http;
mod inside;
mod matrix;
mod memory;
mod neighbours;
mod networks;
mod probes;
mod resources;
mod secrets;
mod ssrf;
mod stage;

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio::time::Instant;

pub(crate) use self::probes::PROBES;
use self::stage::Stage;
use crate::{
    directories::Directories,
    error::{CommandError, CommandResult},
    interrupt::unless_interrupted,
    output,
};

/// Maximum time for one probe. A slower one is reported as unanswered.
const PROBE_TIME: Duration = Duration::from_secs(20);

/// Maximum time for all probes; the rest are not tried.
const WHOLE_TIME: Duration = Duration::from_secs(180);

/// The verdict on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Verdict {
    /// The attack failed.
    Contained,
    /// The attack succeeded because of this kind of host, and the sandbox's warnings say so.
    Weak,
    /// The attack succeeded.
    Open,
    /// It could not be tried here.
    Untried,
}

/// The observation of one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) verdict: Verdict,
    pub(crate) text: String,
}

impl Seen {
    pub(crate) fn contained(text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Contained, text: text.into() }
    }

    pub(crate) fn weak(text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Weak, text: text.into() }
    }

    pub(crate) fn open(text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Open, text: text.into() }
    }

    pub(crate) fn untried(text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Untried, text: text.into() }
    }

    /// Contained if there are no breaches, else open.
    pub(crate) fn unless(breaches: &[String], held: impl Into<String>) -> Self {
        if breaches.is_empty() { Self::contained(held) } else { Self::open(listed(breaches)) }
    }
}

/// The first few of many, in one line.
fn listed(words: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = words.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    match words.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// How a probe is run.
pub(crate) enum Run {
    /// Entirely inside the sandbox, under this name of `warren probe`.
    Inside(&'static str),
    /// From outside, possibly with help from inside.
    Staged(for<'a> fn(&'a Stage) -> BoxFuture<'a, CommandResult<Seen>>),
}

/// One attempt on one promise.
pub(crate) struct Probe {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    /// The promise of SECURITY.md that this probe checks.
    pub(crate) promise: &'static str,
    pub(crate) run: Run,
}

/// A probe and what it observed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) group: &'static str,
    pub(crate) probe: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) promise: &'static str,
    pub(crate) seen: String,
    /// Absent if the attack failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mend: Option<&'static str>,
}

/// Runs the probes whose name or group starts with one of `only`, or all of them. Always cleans up, even after a
/// signal.
pub(crate) async fn attack(directories: &Directories, only: &[String]) -> CommandResult<Vec<Finding>> {
    let mut stage = unless_interrupted(Stage::begin(directories)).await?;
    let worked = unless_interrupted(async {
        stage.furnish().await?;
        Ok(run_all(&stage, only).await)
    })
    .await;
    stage.end().await;
    worked
}

async fn run_all(stage: &Stage, only: &[String]) -> Vec<Finding> {
    let is_wanted = |probe: &&Probe| {
        only.is_empty() || only.iter().any(|word| probe.name.starts_with(word) || probe.group == word)
    };
    let mut findings = Vec::new();
    let deadline = Instant::now() + WHOLE_TIME;
    for probe in PROBES.iter().filter(is_wanted) {
        output::progress(&format!("{} {}", probe.group, probe.name));
        let until = deadline.min(Instant::now() + PROBE_TIME);
        let seen = match tokio::time::timeout_at(until, run_one(stage, probe)).await {
            Ok(Ok(seen)) => seen,
            Ok(Err(error)) => Seen::untried(words(&error)),
            Err(_elapsed) => Seen::untried("no answer in time"),
        };
        findings.push(finding(probe, seen));
    }
    output::progress("");
    findings
}

async fn run_one(stage: &Stage, probe: &Probe) -> CommandResult<Seen> {
    match probe.run {
        Run::Inside(name) => inside::seen(stage, name).await,
        Run::Staged(run) => run(stage).await,
    }
}

fn finding(probe: &Probe, seen: Seen) -> Finding {
    let mend = match seen.verdict {
        Verdict::Contained => None,
        Verdict::Untried => Some("Run it again when the machine is less busy; `--json` shows the reason."),
        Verdict::Weak => Some(probes::mend_of(probe.group)),
        Verdict::Open => {
            Some("Do not run untrusted programs here, and report this as described in SECURITY.md.")
        }
    };
    Finding {
        group: probe.group,
        probe: probe.name,
        verdict: seen.verdict,
        promise: probe.promise,
        seen: seen.text,
        mend,
    }
}

/// The error in one line.
pub(crate) fn words(error: &CommandError) -> String {
    match error {
        CommandError::Failed { error, .. } => error.to_string(),
        CommandError::BrokenPipe => "the connection closed".to_owned(),
        CommandError::Interrupted(signal) => format!("signal {signal}"),
    }
}
