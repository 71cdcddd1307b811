//! Things that the whole machine has a fixed number of. Five are taken inside; whom they are charged to is looked at outside.

use std::{collections::BTreeMap, fs, os::fd::AsFd as _};

use attack::Report;
use serde_json::json;

use super::{Seen, inside, secrets::contains, stage::Stage};
use crate::error::CommandResult;

/// The part of a host's limit that one sandbox may take.
const SHARE: u64 = 2;

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn fact(report: &Report, name: &str) -> Option<u64> {
    report.facts.get(name)?.as_u64()
}

/// The host's user to whom the kernel charges what is made in the sandbox; none where it cannot be asked.
fn charged_user(stage: &Stage) -> Option<u32> {
    let pid = stage.guest_pid(&stage.sandbox)?;
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user")).ok()?;
    attack::owner_of_namespace(namespace.as_fd()).ok()
}

/// Who is charged, and whether that is somebody else than the daemon's own user.
fn charged_elsewhere(stage: &Stage) -> (bool, String) {
    let own = rustix::process::geteuid().as_raw();
    match charged_user(stage) {
        Some(user) if user != own => (true, format!("charged to host user {user}, whom nobody else has")),
        Some(user) => (false, format!("charged to host user {user}, who runs the daemon")),
        None => (false, "charged to the user who runs the daemon".to_owned()),
    }
}

/// Contained when somebody else pays or the sandbox's part is bounded; an ordinary user has nobody else.
fn shared(stage: &Stage, bounded: bool, what: String) -> Seen {
    let (elsewhere, who) = charged_elsewhere(stage);
    match (elsewhere || bounded, stage.is_rootless()) {
        (true, _) => Seen::contained(format!("{what}; {who}")),
        (false, true) => Seen::weak(format!("{what}; {who}")),
        (false, false) => Seen::open(format!("{what}; {who}")),
    }
}

pub(super) async fn inotify(stage: &Stage) -> CommandResult<Seen> {
    let (report, ()) = inside::holding(stage, &stage.sandbox, "inotify", async { Ok(()) }).await?;
    let host = number("/proc/sys/fs/inotify/max_user_instances").unwrap_or(u64::MAX);
    let most = fact(&report, "instances").unwrap_or(u64::MAX);
    let bounded = most <= host / SHARE;
    Ok(shared(stage, bounded, format!("at most {most} instances inside, {host} for a user of the host")))
}

pub(super) async fn inotify_watches(stage: &Stage) -> CommandResult<Seen> {
    let (report, ()) = inside::holding(stage, &stage.sandbox, "inotify", async { Ok(()) }).await?;
    let host = number("/proc/sys/fs/inotify/max_user_watches").unwrap_or(u64::MAX);
    let most = fact(&report, "watches").unwrap_or(u64::MAX);
    let bounded = most <= host / SHARE;
    Ok(shared(stage, bounded, format!("at most {most} watches inside, {host} for a user of the host")))
}

pub(super) async fn timers(stage: &Stage) -> CommandResult<Seen> {
    let report = inside::run(stage, &stage.sandbox, "timers", &[]).await?;
    let most = fact(&report, "pendingSignals").unwrap_or(u64::MAX);
    let own = rustix::process::getrlimit(rustix::process::Resource::Sigpending).maximum.unwrap_or(u64::MAX);
    let bounded = most <= own / SHARE;
    Ok(shared(
        stage,
        bounded,
        format!("at most {most} timers and signals inside, {own} for the daemon's user"),
    ))
}

pub(super) async fn open_files(stage: &Stage) -> CommandResult<Seen> {
    let report = inside::run(stage, &stage.sandbox, "open-files", &[]).await?;
    if report.n_breached > 0 {
        return Ok(inside::judge(&report));
    }
    let (each, processes) = stage.limits;
    let most = fact(&report, "openFiles").unwrap_or(each).saturating_mul(processes);
    let machine = number("/proc/sys/fs/file-max").unwrap_or(u64::MAX);
    let text = format!("at most {most} open files inside, {machine} on the machine");
    Ok(if most <= machine / SHARE { Seen::contained(text) } else { Seen::weak(text) })
}

/// Variables that are small one by one and fill a request together.
pub(super) async fn environment(stage: &Stage) -> CommandResult<Seen> {
    const VARIABLES: usize = 150;
    const BYTES: usize = 100_000;
    let variables: BTreeMap<_, _> = (0..VARIABLES).map(|n| (format!("V{n}"), "x".repeat(BYTES))).collect();
    let body = json!({ "env": variables }).to_string().into_bytes();
    let body = Some(("application/json", body));
    let (status, answer) = stage.ask(&stage.key, "POST", "/v1/sandboxes", body).await?;
    Ok(match status {
        200..300 => Seen::open("a sandbox with an environment of 15 MB was made"),
        401 | 429 if !contains(&answer, b"bytes") => {
            Seen::untried(format!("the key was answered with {status}"))
        }
        status => Seen::contained(format!("an environment of 15 MB is refused with {status}")),
    })
}
