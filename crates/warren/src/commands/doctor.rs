//! `warren doctor`

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use sandbox::{Error, Isolation};
use serde::Serialize;

use super::Context;
use crate::{
    cli::VERSION,
    client::StartMode,
    daemon::{self, Note, Recovered},
    doctor::{
        self, Check, Status,
        attack::{Finding, Verdict},
    },
    error::CommandResult,
    output::{self, Paint},
};

/// Check what works on this machine, and show how to fix what does not
///
/// The exit code is 1 if something is missing that every sandbox needs, or the records cannot be opened.
///
/// With --attack, temporary sandboxes of a separate daemon try more than a hundred ways to escape, within limits that
/// are safe on a machine in use, to check the promises of SECURITY.md on this host. The exit code is 1 if an attack
/// succeeds; weaknesses that come with this kind of host are shown, but do not change the exit code.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also show the isolation of a sandbox on this host, and how it is set up
    #[arg(long)]
    explain: bool,
    /// Do not create a sandbox as a test
    #[arg(long)]
    no_trial: bool,
    /// Rebuild the records from the files of sandboxes, volumes and snapshots, after the database was lost or damaged
    ///
    /// Nothing is deleted: a damaged database is kept under another name, and files for which no record can be rebuilt
    /// are moved to `lost/` in the data directory. Keys, events, the audit and the commands of execs cannot be rebuilt.
    #[arg(long, conflicts_with_all = ["explain", "no_trial", "attack"])]
    recover: bool,
    /// Attack the isolation on this host instead, and show what held
    #[arg(long, conflicts_with_all = ["explain", "no_trial"])]
    attack: bool,
    /// Only probes in this group or with this name prefix; may be repeated
    #[arg(long, value_name = "PROBE", requires = "attack")]
    only: Vec<String>,
    /// Configuration file [env: WARREN_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Exit code of `warren self-check` if only the daemon is of another version. 2 is that of wrong arguments.
const EXIT_OLD_DAEMON: u8 = 3;
const OLD_DAEMON: &str = "Not done: this program works, but the running daemon is of another version. Stop it with the \
                          command above, or `systemctl restart warren` if it is a service; sandboxes keep running, \
                          and the next daemon adopts them.";

#[derive(Serialize)]
pub(super) struct Diagnosis {
    ok: bool,
    checks: Vec<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    isolation: Option<Isolation>,
    /// The steps that set up a sandbox, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cage: Vec<String>,
}

impl Diagnosis {
    pub(super) fn of(checks: Vec<Check>) -> Self {
        let ok = checks.iter().all(|check| check.status != Status::Missing);
        Self { ok, checks, isolation: None, cage: Vec::new() }
    }

    /// Prints it. The exit code is 1 if something is missing.
    pub(super) fn report(&self, context: &Context) -> CommandResult {
        self.print(context, &summary(&self.checks))?;
        Ok(if self.ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// The same after an upgrade that the running daemon has not seen: all works, but not yet with this program.
    pub(super) fn report_old_daemon(mut self, context: &Context) -> CommandResult {
        if !self.ok {
            return self.report(context);
        }
        self.ok = false;
        self.print(context, OLD_DAEMON)?;
        Ok(ExitCode::from(EXIT_OLD_DAEMON))
    }

    fn print(&self, context: &Context, summary: &str) -> CommandResult<()> {
        if context.json { output::json(self) } else { show(self, summary) }
    }
}

/// Not asynchronous: forking must happen before the runtime starts.
pub(crate) fn run(context: &Context, args: &Args) -> CommandResult {
    if args.recover {
        return recover(context);
    }
    if args.attack {
        return super::block_on(attack(context, &args.only));
    }
    let mut checks = doctor::check_host(&context.directories);
    checks.push(doctor::check_records(&context.directories.home));
    checks.push(doctor::check_ssh(&context.directories.home));
    checks.push(doctor::check_packages(args.config.as_deref(), &context.directories));
    super::block_on(diagnose(context, args, checks))?.report(context)
}

/// The result of `--recover`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecoveryReport {
    sandboxes: Vec<String>,
    volumes: Vec<String>,
    snapshots: usize,
    execs: usize,
    /// The damaged database, under its new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged_database: Option<PathBuf>,
    /// The directory with the files for which no record could be rebuilt.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<PathBuf>,
}

fn recover(context: &Context) -> CommandResult {
    let Recovered { database, recovery, lost } =
        super::block_on(async { Ok(daemon::recover(&context.directories).await?) })?;
    let report = RecoveryReport {
        sandboxes: recovery.sandboxes,
        volumes: recovery.volumes,
        snapshots: recovery.n_snapshots,
        execs: recovery.n_execs,
        damaged_database: database,
        lost,
    };
    if context.json {
        output::json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    let RecoveryReport { sandboxes, volumes, snapshots, execs, damaged_database, lost } = report;
    output::line(&format!(
        "Rebuilt the records of {} sandboxes ({execs} execs), {} volumes and {snapshots} snapshots.",
        sandboxes.len(),
        volumes.len()
    ))?;
    if let Some(path) = damaged_database {
        output::line(&format!("Kept the damaged database as {}.", path.display()))?;
        output::line("Keys, events, the audit and the commands of execs are lost: create new keys.")?;
    }
    if let Some(path) = lost {
        output::line(&format!("Moved files without a record to {}.", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn diagnose(context: &Context, args: &Args, mut checks: Vec<Check>) -> CommandResult<Diagnosis> {
    checks.push(check_daemon(context).await.0);
    let mut isolation = None;
    if !args.no_trial {
        let (check, found) = doctor::try_sandbox(&context.directories).await;
        checks.push(check);
        isolation = found.filter(|_| args.explain || context.json);
    }
    let cage = if args.explain { doctor::read_cage(&context.directories).await? } else { Vec::new() };
    Ok(Diagnosis { isolation, cage, ..Diagnosis::of(checks) })
}

/// Which program the running daemon is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DaemonProgram {
    /// The same version and commit as this one, or no daemon runs.
    Same,
    /// Another one, such as the one before an upgrade.
    Other,
}

pub(super) async fn check_daemon(context: &Context) -> (Check, DaemonProgram) {
    let name = "daemon";
    let same = |check| (check, DaemonProgram::Same);
    let Ok(client) = context.client_that(StartMode::Never).await else {
        return same(match daemon::holder(&context.directories.home) {
            Some(pid) => {
                let detail = format!("process {pid} has the data directory, but cannot be reached");
                Check::missing(name, detail, format!("kill {pid}"))
            }
            None => Check::works(name, "not running; the next command starts it"),
        });
    };
    let pid = client.daemon().and_then(|daemon| daemon.pid).map_or("?".to_owned(), |pid| pid.to_string());
    let (version, capabilities) = (client.version().await, client.capabilities().await);
    let (Ok(version), Ok(capabilities)) = (version, capabilities) else {
        let detail = format!("process {pid} is listening but does not answer");
        return same(Check::missing(name, detail, format!("kill {pid}")));
    };
    let theirs = version.build.unwrap_or(version.version);
    if theirs != VERSION {
        let detail = format!("process {pid} is warren {theirs}, this program is {VERSION}");
        return (Check::weak(name, detail, format!("kill {pid}")), DaemonProgram::Other);
    }
    let backends: Vec<_> = capabilities.backends.iter().map(|backend| backend.as_str()).collect();
    let detail = format!(
        "version {theirs}, pid {pid}, back ends {} (the first is the default){}",
        backends.join(", "),
        addresses(context, &pid)
    );
    same(Check::works(name, detail))
}

/// Returns the daemon's addresses on TCP, as its note says. A note of another process is of a daemon that died.
fn addresses(context: &Context, pid: &str) -> String {
    let note = Note::read(&context.directories.run).filter(|note| note.pid.to_string() == pid);
    let Some(note) = note else { return String::new() };
    let also = note.also.iter().map(|also| format!(", {} at {}", also.dialect, also.url));
    format!("; TCP at {}{}", note.url, also.collect::<String>())
}

fn show(diagnosis: &Diagnosis, summary: &str) -> CommandResult<()> {
    let paint = Paint::for_stdout();
    let causes = by_cause(&diagnosis.checks);
    let width = causes.iter().filter(|(names, _)| names.len() == 1).map(|(names, _)| names[0].len());
    let width = width.max().unwrap_or(0);
    for (n, (names, check)) in causes.iter().enumerate() {
        let mark = match check.status {
            Status::Works => paint.good("✓"),
            Status::Weak => paint.warn("!"),
            Status::Missing => paint.bad("✗"),
        };
        output::line(&format!("{mark} {:<width$}  {}", names.join(", "), output::printable(&check.detail)))?;
        // Consecutive checks with the same fix show it once.
        let next = causes.get(n + 1).and_then(|(_, next)| next.mend.as_ref());
        if let Some(mend) = check.mend.as_ref().filter(|mend| next != Some(mend)) {
            output::line(&format!("    {} {mend}", paint.note("fix:")))?;
        }
    }
    if let Some(isolation) = &diagnosis.isolation {
        explain(isolation)?;
    }
    if !diagnosis.cage.is_empty() {
        output::line("\nHow it is set up, step by step:")?;
        for step in &diagnosis.cage {
            output::line(&format!("  {}", output::printable(step)))?;
        }
    }
    output::line(&format!("\n{}", output::printable(summary)))
}

/// The checks with the names of all that fail for the same reason: one cause is shown once.
fn by_cause(checks: &[Check]) -> Vec<(Vec<&'static str>, &Check)> {
    let mut causes: Vec<(Vec<&'static str>, &Check)> = Vec::new();
    for check in checks {
        let is_same = |known: &Check| {
            known.status == check.status && known.detail == check.detail && known.mend == check.mend
        };
        match causes.iter_mut().find(|(_, known)| check.status != Status::Works && is_same(known)) {
            Some((names, _)) => names.push(check.name),
            None => causes.push((vec![check.name], check)),
        }
    }
    causes
}

/// The result of `--attack`.
#[derive(Serialize)]
struct Attacked {
    /// Whether no attack succeeded.
    ok: bool,
    findings: Vec<Finding>,
}

async fn attack(context: &Context, only: &[String]) -> CommandResult {
    let findings = doctor::attack::attack(&context.directories, only).await?;
    if findings.is_empty() {
        let groups: BTreeSet<_> = doctor::attack::PROBES.iter().map(|probe| probe.group).collect();
        let groups = groups.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Error::invalid(format!("no probe or group is called {}", only.join(" or ")))
            .with_hint(format!("The groups are {groups}."))
            .into());
    }
    let ok = findings.iter().all(|finding| finding.verdict != Verdict::Open);
    let attacked = Attacked { ok, findings };
    if context.json {
        output::json(&attacked)?;
    } else {
        show_attack(&attacked.findings)?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn show_attack(findings: &[Finding]) -> CommandResult<()> {
    let paint = Paint::for_stdout();
    let width = findings.iter().map(|finding| finding.probe.len()).max().unwrap_or(0);
    let mut group = "";
    for finding in findings {
        if finding.group != group {
            group = finding.group;
            output::line(&format!("\n{group}"))?;
        }
        let verdict = match finding.verdict {
            Verdict::Contained => paint.good("contained"),
            Verdict::Weak => paint.warn("weak     "),
            Verdict::Open => paint.bad("open     "),
            Verdict::Untried => paint.note("untried  "),
        };
        let seen = output::printable(&finding.seen);
        output::line(&format!("  {verdict}  {:<width$}  {seen}", finding.probe))?;
        if let Some(mend) = finding.mend {
            output::line(&format!("      {} {}", paint.note("promise:"), finding.promise))?;
            output::line(&format!("      {} {mend}", paint.note("fix:")))?;
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    output::line(&format!(
        "\n{} probes: {} contained, {} weak, {} open, {} untried.",
        findings.len(),
        count(Verdict::Contained),
        count(Verdict::Weak),
        count(Verdict::Open),
        count(Verdict::Untried)
    ))
}

/// The result in one sentence.
fn summary(checks: &[Check]) -> String {
    let names = |status| {
        let found: Vec<_> =
            checks.iter().filter(|check| check.status == status).map(|check| check.name).collect();
        found.join(", ")
    };
    // The sandbox that was tried fails last, and for one of the reasons before it.
    if let Some(missing) = checks.iter().find(|check| check.status == Status::Missing) {
        return format!("Not ready: {} ({}).", missing.name, missing.detail.trim_end_matches('.'));
    }
    match names(Status::Weak) {
        weak if weak.is_empty() => "Ready: sandboxes work here.".to_owned(),
        weak => format!("Ready: sandboxes work here. Weaker than they could be: {weak}."),
    }
}

/// The isolation in words.
fn explain(isolation: &Isolation) -> CommandResult<()> {
    let or_none = |words: &[String]| if words.is_empty() { "none".to_owned() } else { words.join(" ") };
    let yes = |is: bool| if is { "yes" } else { "no" };
    output::line("\nA sandbox here:")?;
    for (what, found) in [
        ("back end", isolation.backend.to_string()),
        ("rootless", yes(isolation.rootless).to_owned()),
        ("ids", isolation.id_map.clone()),
        ("namespaces", or_none(&isolation.namespaces)),
        ("capabilities", or_none(&isolation.capabilities)),
        ("no new privileges", yes(isolation.no_new_privileges).to_owned()),
        ("syscall filter", isolation.seccomp.clone().unwrap_or_else(|| "none".to_owned())),
        ("network", isolation.network.to_string()),
        ("cgroups", isolation.cgroups.clone()),
    ] {
        output::line(&format!("  {what:<18} {found}"))?;
    }
    for statement in &isolation.limits {
        let note = statement.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        let words = serde_json::to_value(statement.limit).unwrap_or_default();
        let held = serde_json::to_value(statement.enforcement).unwrap_or_default();
        let limit = format!("limit {}", words.as_str().unwrap_or_default());
        output::line(&format!(
            "  {limit:<18} {} by {}{note}",
            statement.value,
            held.as_str().unwrap_or_default()
        ))?;
    }
    for warning in &isolation.warnings {
        output::line(&format!("  ! {warning}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cause_is_named_once_and_the_last_line_says_whether_it_is_ready() {
        let no_cgroups = |name| Check::weak(name, "no cgroup may be written", "run as root");
        let mut checks = vec![
            Check::works("kernel", "works"),
            no_cgroups("memory limits"),
            Check::works("overlay", "works"),
            no_cgroups("cpu limits"),
        ];
        let shown: Vec<_> = by_cause(&checks).into_iter().map(|(names, _)| names).collect();
        assert_eq!(shown, [vec!["kernel"], vec!["memory limits", "cpu limits"], vec!["overlay"]]);
        assert_eq!(
            summary(&checks),
            "Ready: sandboxes work here. Weaker than they could be: memory limits, cpu limits."
        );
        checks.push(Check::missing("user namespaces", "Operation not permitted.", "turn them on"));
        assert_eq!(summary(&checks), "Not ready: user namespaces (Operation not permitted).");
    }
}
