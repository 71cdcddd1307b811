//! Resources of which the whole machine has a fixed number. The sandbox takes five of each; the host checks who is
//! charged.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    time::Duration,
};

use attack::Report;
use serde_json::json;

use super::{
    Seen, Verdict, inside,
    secrets::contains,
    stage::{OURS, Stage},
};
use crate::error::CommandResult;

/// How many of each resource are taken inside, and how many open files.
const FEW: u64 = 5;
const FILES: u64 = 200;
/// Other programs use the machine too: a count that does not return to normal in one round may do so in the next.
const ROUNDS: usize = 3;
/// How long a count may take to return to normal after the sandbox is gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS: usize = 50;

/// The fraction of a host's limit that one sandbox may take.
const SHARE: u64 = 2;

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn fact(report: &Report, name: &str) -> Option<u64> {
    report.facts.get(name)?.as_u64()
}

/// The host user that the kernel charges for resources of the sandbox; none if unknown.
fn charged_user(stage: &Stage) -> Option<u32> {
    let pid = stage.guest_pid(&stage.sandbox)?;
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user")).ok()?;
    attack::owner_of_namespace(namespace.as_fd()).ok()
}

/// Returns whether another user than the daemon's own is charged, and a sentence that says who.
fn charged_elsewhere(stage: &Stage) -> (bool, String) {
    let own = rustix::process::geteuid().as_raw();
    match charged_user(stage) {
        Some(user) if user != own => (true, format!("charged to host user {user}, which nobody else uses")),
        Some(user) => (false, format!("charged to host user {user}, which runs the daemon")),
        None => (false, "charged to the user that runs the daemon".to_owned()),
    }
}

/// Contained if another user is charged or the sandbox's share is limited; without root, there is no other user to
/// charge.
fn shared(stage: &Stage, bounded: bool, what: String) -> Seen {
    let (elsewhere, who) = charged_elsewhere(stage);
    match (elsewhere || bounded, stage.is_rootless()) {
        (true, _) => Seen::contained(format!("{what}; {who}")),
        (false, true) => Seen::weak(format!("{what}; {who}")),
        (false, false) => Seen::open(format!("{what}; {who}")),
    }
}

/// The host's count of a resource, while a sandbox holds some and after that sandbox is gone.
struct Counted {
    report: Report,
    before: u64,
    held: u64,
    after: u64,
}

impl Counted {
    async fn count(
        stage: &Stage,
        name: &str,
        taken: u64,
        host_count: fn() -> Option<u64>,
    ) -> CommandResult<Option<Self>> {
        let mut round = 1;
        loop {
            let Some(before) = host_count() else { return Ok(None) };
            let sandbox = stage.create(json!({ "namespace": OURS })).await?;
            let meanwhile = async { Ok(host_count().unwrap_or(u64::MAX)) };
            let held = inside::holding(stage, sandbox.id.as_str(), name, meanwhile).await;
            stage.remove(sandbox.id.as_str()).await;
            let (report, held) = held?;
            let after = Self::settled(before + taken, host_count).await;
            let counted = Self { report, before, held, after };
            if counted.is_back(taken) || round == ROUNDS {
                return Ok(Some(counted));
            }
            round += 1;
        }
    }

    /// The count, once it is lower than if nothing had been freed.
    async fn settled(limit: u64, host_count: fn() -> Option<u64>) -> u64 {
        for _ in 0..LOOKS {
            if let Some(now) = host_count()
                && now < limit
            {
                return now;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        host_count().unwrap_or(u64::MAX)
    }

    fn is_back(&self, taken: u64) -> bool {
        self.after < self.before + taken
    }

    fn text(&self) -> String {
        let Self { before, held, after, .. } = self;
        format!("the host's count: {before} before, {held} during, {after} after the sandbox was gone")
    }
}

/// Attempts inside must get the right answers, and the host's count must return to normal afterwards.
async fn comes_back(stage: &Stage, name: &str, host_count: fn() -> Option<u64>) -> CommandResult<Seen> {
    let Some(counted) = Counted::count(stage, name, FEW, host_count).await? else {
        return inside::seen(stage, name).await;
    };
    let seen = inside::judge(&counted.report);
    if seen.verdict != Verdict::Contained {
        return Ok(seen);
    }
    let text = format!("{}; {}", seen.text, counted.text());
    Ok(if counted.is_back(FEW) { Seen::contained(text) } else { Seen::open(text) })
}

pub(super) async fn ptys(stage: &Stage) -> CommandResult<Seen> {
    comes_back(stage, "ptys", || number("/proc/sys/kernel/pty/nr")).await
}

pub(super) async fn aio(stage: &Stage) -> CommandResult<Seen> {
    comes_back(stage, "aio", || number("/proc/sys/fs/aio-nr")).await
}

pub(super) async fn keyrings(stage: &Stage) -> CommandResult<Seen> {
    comes_back(stage, "keyrings", keys_of_all_users).await
}

/// Lines are `uid: uses keys/live quota-keys/most bytes/most`.
fn keys_of_all_users() -> Option<u64> {
    let text = fs::read_to_string("/proc/key-users").ok()?;
    let keys = |line: &str| line.split_whitespace().nth(2)?.split('/').next()?.parse::<u64>().ok();
    Some(text.lines().filter_map(keys).sum())
}

/// Holds some inside. Also returns whether the daemon's own user, which could make one before, now cannot.
async fn leaves_none(stage: &Stage, name: &str, host_try: fn() -> bool) -> CommandResult<(Report, bool)> {
    let was_possible = host_try();
    inside::holding(stage, &stage.sandbox, name, async move { Ok(was_possible && !host_try()) }).await
}

pub(super) async fn queues(stage: &Stage) -> CommandResult<Seen> {
    let (report, is_short) = leaves_none(stage, "queues", attack::can_make_queue).await?;
    let made = fact(&report, "made").unwrap_or_default();
    Ok(match is_short {
        true => Seen::open(format!("{made} queues inside leave none for the daemon's user")),
        false => Seen::contained(format!("{made} queues inside, the daemon's user can make more")),
    })
}

pub(super) async fn bpf_filters(stage: &Stage) -> CommandResult<Seen> {
    let (report, is_short) = leaves_none(stage, "bpf-filters", attack::can_attach_filter).await?;
    Ok(match is_short {
        true => Seen::open("the daemon's user can no longer attach a filter"),
        false => inside::judge(&report),
    })
}

pub(super) async fn user_namespaces(stage: &Stage) -> CommandResult<Seen> {
    let meanwhile = async { Ok(namespaces_of_sandbox(stage)) };
    let (report, n) = inside::holding(stage, &stage.sandbox, "user-namespaces", meanwhile).await?;
    Ok(match n {
        Some(n) if n > 1 => Seen::open(format!("the host sees {n} user namespaces of one sandbox")),
        _ => inside::judge(&report),
    })
}

/// User namespaces owned by the sandbox's own user; none if the host cannot tell them apart.
fn namespaces_of_sandbox(stage: &Stage) -> Option<usize> {
    let owner = charged_user(stage).filter(|owner| *owner != rustix::process::geteuid().as_raw())?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let namespaces = processes.filter_map(|process| fs::File::open(process.path().join("ns/user")).ok());
    let of_sandbox =
        namespaces.filter(|namespace| attack::owner_of_namespace(namespace.as_fd()).ok() == Some(owner));
    let inodes = of_sandbox.filter_map(|namespace| Some(namespace.metadata().ok()?.ino()));
    Some(inodes.collect::<BTreeSet<_>>().len())
}

fn can_watch() -> bool {
    rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).is_ok()
}

pub(super) async fn inotify(stage: &Stage) -> CommandResult<Seen> {
    let (report, is_short) = leaves_none(stage, "inotify", can_watch).await?;
    if is_short {
        return Ok(Seen::open("five instances inside leave none for the daemon's user"));
    }
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
    let count = || {
        let text = fs::read_to_string("/proc/sys/fs/file-nr").ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    let Some(counted) = Counted::count(stage, "open-files", FILES, count).await? else {
        return Ok(Seen::untried("the host does not count its open files"));
    };
    if counted.report.n_breached > 0 {
        return Ok(inside::judge(&counted.report));
    }
    let (each, processes) = stage.limits;
    let most = fact(&counted.report, "openFiles").unwrap_or(each).saturating_mul(processes);
    let machine = number("/proc/sys/fs/file-max").unwrap_or(u64::MAX);
    let text = format!("at most {most} open files inside, {machine} on the machine; {}", counted.text());
    Ok(if most <= machine / SHARE && counted.is_back(FILES) {
        Seen::contained(text)
    } else {
        Seen::weak(text)
    })
}

/// Variables that are small individually but fill a request together.
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
