//! A disk limit enforced by measuring: a workload that grows past it is killed.
//!
//! [`NOTE`] states the gaps: how far a workload gets between two measurements, and what measuring cannot see.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use guest_protocol::Request as GuestRequest;
use jail::{Reply, Request, Unlinked};
use rustix::process::{Signal, pidfd_send_signal};
use sandbox::{BackendError, SandboxId};

use super::{
    Host, hello, instance,
    mounts::{LocatedMount, LocatedSource, MountFiles},
    record,
};

/// How often a busy sandbox is measured if measuring is quick. At a gigabyte per second, half a gigabyte too much.
const MEASURE_EVERY: Duration = Duration::from_millis(500);
/// Measuring takes at most one part in this many of a processor, as long as the pause does not exceed the next
/// constant.
const MEASURE_SHARE: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Between two moments at which sandboxes are looked at. Within one, they are few enough to hold up nobody.
const SHARED_EVERY: Duration = Duration::from_millis(10);
/// How often in a row a guest is asked in vain to stop a growing workload.
const MAX_ASKED: u32 = 3;
/// How often in a row a tree may be moved while it is measured. Nobody needs that at such depths.
const MAX_MOVED: u32 = 5;

/// The guarantees of an accounted limit, for the sandbox's statement.
pub(crate) const NOTE: &str = "Held by measuring every half second to five seconds (longer where millions of files make one \
    measurement slow) and killing the workload that grew past it; every file counts as 4 KiB at least. Not seen: deleted \
    files whose only descriptors are on their way through a socket and, without root, deleted files that are only mapped \
    into memory.";

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Measured {
    bytes: u64,
    was_moved: bool,
}

/// Something that must not grow past a limit while a sandbox uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quota {
    paths: Vec<PathBuf>,
    unlinked: Unlinked,
    limit: u64,
}

impl Quota {
    pub(crate) fn of_own_files(host: &Host, id: &SandboxId, limit: u64) -> Self {
        let own = host.files(id).own;
        let paths = ["root/upper", "usr/upper"].map(|name| own.join(name)).to_vec();
        Self { paths, unlinked: Unlinked::OfRoot, limit }
    }
}

/// Writable mounts with a limit that nothing else enforces. A read-only mount cannot grow.
pub(crate) fn quotas(mounts: &[LocatedMount]) -> Vec<Quota> {
    let limited = mounts.iter().filter(|mount| !mount.readonly);
    limited
        .filter_map(|mount| match (&mount.source, mount.quota) {
            (LocatedSource::Files(MountFiles::Path { path, .. }), Some(limit)) => {
                Some(Quota { paths: vec![path.clone()], unlinked: Unlinked::OfPath, limit: limit.bytes() })
            }
            _ => None,
        })
        .collect()
}

/// The disk usage of a sandbox's own files.
pub(crate) async fn used(host: &Host, id: &SandboxId) -> Result<Option<u64>, BackendError> {
    if let Ok(image) = fs::metadata(host.files(id).image) {
        return Ok(Some(image.blocks() * 512));
    }
    let own = Quota::of_own_files(host, id, u64::MAX);
    Ok(measure(host, id, &own).await?.map(|measured| measured.bytes))
}

async fn measure(host: &Host, id: &SandboxId, quota: &Quota) -> Result<Option<Measured>, BackendError> {
    let Quota { paths, unlinked, .. } = quota.clone();
    let guest = record::read_pid(&host.directories.place(id).pid());
    let processes = host.means.cgroups.process_lists(id.as_str());
    match host.ask(&Request::Measure { paths, guest, processes, unlinked }).await? {
        Reply::Measured { bytes, was_moved } => Ok(Some(Measured { bytes, was_moved })),
        _other => Ok(None),
    }
}

/// The step after a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    LetBe,
    /// The guest kills the workload, and reports the reason for each command.
    AskGuest,
    /// From outside: the guest claimed to have done it, and the workload still grows.
    Force,
}

#[derive(Debug, Default)]
struct Judge {
    last_bytes: u64,
    n_moved: u32,
    n_asked: u32,
}

impl Judge {
    fn judge(&mut self, measured: Measured, limit: u64) -> Verdict {
        self.n_moved = if measured.was_moved { self.n_moved + 1 } else { 0 };
        // A workload that cleans up is left alone, or it could never get below the limit again.
        let grew_past = measured.bytes > limit && measured.bytes > self.last_bytes;
        self.last_bytes = measured.bytes;
        if !grew_past && self.n_moved < MAX_MOVED {
            self.n_asked = 0;
            return Verdict::LetBe;
        }
        self.n_asked += 1;
        if self.n_asked > MAX_ASKED { Verdict::Force } else { Verdict::AskGuest }
    }
}

/// The duration of a measurement times its share, within bounds.
fn pause_after(took: Duration) -> Duration {
    (took * MEASURE_SHARE).clamp(MEASURE_EVERY, LONGEST_PAUSE)
}

/// The last of the moments that all sandboxes share, up to this one. A thousand sandboxes that are each looked at on
/// their own would wake the daemon two thousand times a second.
fn shared_moment(latest: Instant) -> Instant {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    let since = latest.saturating_duration_since(*FIRST);
    let past = Duration::from_nanos(u64::try_from(since.as_nanos() % SHARED_EVERY.as_nanos()).unwrap_or(0));
    latest.checked_sub(past).unwrap_or(latest)
}

/// Measures until it is aborted; kills the workload whenever it is past its limit and still growing.
pub(crate) async fn watch(host: Arc<Host>, id: SandboxId, quota: Quota) {
    let limit = quota.limit;
    let (mut pause, mut last_cpu, mut judge) = (MEASURE_EVERY, None, Judge::default());
    loop {
        tokio::time::sleep_until(shared_moment(Instant::now() + pause).into()).await;
        // A workload that has not run has not written.
        let cpu = host.means.cgroups.cpu_micros(id.as_str());
        if cpu.is_some() && cpu == last_cpu {
            continue;
        }
        let began = Instant::now();
        let measured = match measure(&host, &id, &quota).await {
            Ok(Some(measured)) => measured,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(sandbox = %id, %error, "its disk limit is not measured");
                pause = LONGEST_PAUSE;
                continue;
            }
        };
        last_cpu = cpu;
        pause = pause_after(began.elapsed());
        let verdict = judge.judge(measured, limit);
        if verdict == Verdict::LetBe {
            continue;
        }
        tracing::info!(sandbox = %id, bytes = measured.bytes, limit, was_moved = measured.was_moved, "past its disk limit");
        let answer = hello::tell(&host, &id, &GuestRequest::KillAll { disk: true }).await;
        if answer.is_none() {
            tracing::warn!(sandbox = %id, "the guest did not stop a workload past its disk limit");
            force(&host, &id, LastResort::Instance).await;
        } else if verdict == Verdict::Force {
            force(&host, &id, LastResort::Nothing).await;
        }
    }
}

/// The target to kill if no cgroup knows the workload's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastResort {
    Nothing,
    Instance,
}

/// Ends the workload without its guest.
async fn force(host: &Arc<Host>, id: &SandboxId, last_resort: LastResort) {
    let (worker, name) = (Arc::clone(host), id.clone());
    let killed = tokio::task::spawn_blocking(move || worker.means.cgroups.kill(name.as_str())).await;
    match killed {
        Ok(Ok(true)) => return,
        Ok(Err(error)) => {
            tracing::warn!(sandbox = %id, %error, "a workload past its disk limit does not end");
        }
        Ok(Ok(false)) | Err(_) => {}
    }
    let recorded = record::read_pid(&host.directories.place(id).pid());
    let guest = recorded.and_then(|(pid, start_time)| instance::find_process(pid, start_time));
    if let (LastResort::Instance, Some(guest)) = (last_resort, guest) {
        tracing::error!(sandbox = %id, "killed whole: it is past its disk limit and its guest does not answer");
        let _dead = pidfd_send_signal(&guest, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 100;

    fn judged(judge: &mut Judge, bytes: u64) -> Verdict {
        judge.judge(Measured { bytes, was_moved: false }, LIMIT)
    }

    #[test]
    fn one_that_grows_past_is_stopped_and_one_that_clears_up_is_not() {
        let mut judge = Judge::default();
        assert_eq!(judged(&mut judge, 100), Verdict::LetBe);
        assert_eq!(judged(&mut judge, 101), Verdict::AskGuest);
        assert_eq!(judged(&mut judge, 101), Verdict::LetBe);
        assert_eq!(judged(&mut judge, 99), Verdict::LetBe);
        assert_eq!(judged(&mut judge, 150), Verdict::AskGuest);
    }

    #[test]
    fn a_guest_that_only_says_so_is_not_asked_for_ever() {
        let mut judge = Judge::default();
        for asked in 1..=MAX_ASKED {
            assert_eq!(judged(&mut judge, LIMIT + u64::from(asked)), Verdict::AskGuest);
        }
        assert_eq!(judged(&mut judge, 200), Verdict::Force);
    }

    #[test]
    fn a_tree_that_cannot_be_measured_is_not_let_be_for_ever() {
        let (mut judge, moved) = (Judge::default(), Measured { bytes: 1, was_moved: true });
        for _time in 1..MAX_MOVED {
            assert_eq!(judge.judge(moved, LIMIT), Verdict::LetBe);
        }
        assert_eq!(judge.judge(moved, LIMIT), Verdict::AskGuest);
        assert_eq!(judge.judge(Measured { bytes: 1, was_moved: false }, LIMIT), Verdict::LetBe);
    }

    #[test]
    fn the_pause_is_bounded_however_long_measuring_takes() {
        assert_eq!(pause_after(Duration::ZERO), MEASURE_EVERY);
        assert_eq!(pause_after(Duration::from_millis(100)), Duration::from_secs(2));
        assert_eq!(pause_after(Duration::from_secs(50)), LONGEST_PAUSE);
    }
}
