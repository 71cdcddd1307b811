//! Finds and removes what belongs to no sandbox any more.

use std::{
    collections::BTreeSet,
    fs,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, PoisonError},
    time::Duration,
};

use rustix::process::{Signal, pidfd_send_signal};
use sandbox::{BackendError, SandboxId};

use tokio::task::JoinSet;

use super::{Host, error, instance, names::PlaceNames, orphans, record, watched};

/// How long a killed sandbox may take to end. In the middle of disk work it can take long; with a broken disk, forever.
pub(crate) const END_TIME: Duration = Duration::from_secs(10);
/// Most sandboxes swept at once.
const MAX_AT_ONCE: usize = 16;

/// Names in a directory that are ids of sandboxes.
pub(crate) fn ids_in(directory: &Path) -> Vec<SandboxId> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Whether a sandbox with a run directory belongs to this home. Without a readable record it does if we have files, a
/// cgroup or a guest of it, and also if nothing of it is alive: an interrupted removal leaves such a directory, which
/// is of no use to anyone.
fn is_ours(host: &Host, id: &SandboxId, in_kernel: &BTreeSet<SandboxId>) -> bool {
    let place = host.directories.place(id);
    match record::Record::read(&place).ok().and_then(|found| found.home) {
        Some(home) => home == host.home,
        None => in_kernel.contains(id) || host.directories.sandbox(id).exists() || !lives(&place),
    }
}

/// Whether the process that a run directory names is alive.
pub(crate) fn lives(place: &PlaceNames) -> bool {
    record::read_pid(&place.pid())
        .is_some_and(|(pid, start_time)| instance::find_process(pid, start_time).is_some())
}

/// Removes processes, cgroups and run directories of sandboxes not in `alive`, and files of those not in `known`.
pub(crate) async fn sweep(
    host: &Arc<Host>,
    alive: &[SandboxId],
    known: &[SandboxId],
) -> Result<Vec<SandboxId>, BackendError> {
    let worker = Arc::clone(host);
    let find = move || orphans::find(&worker.directories.cgroup_parent(), &worker.means.cgroups);
    let guests = tokio::task::spawn_blocking(find).await.map_err(error::from_join)?;
    let in_cgroups = host.means.cgroups.ids().into_iter().filter_map(|name| name.parse().ok());
    let in_kernel: BTreeSet<SandboxId> = in_cgroups.chain(guests.keys().cloned()).collect();
    let in_run = ids_in(&host.directories.run).into_iter().filter(|id| is_ours(host, id, &in_kernel));
    let leftovers: BTreeSet<SandboxId> = in_run
        .chain(in_kernel.iter().cloned())
        .filter(|id| !alive.contains(id) && !host.pool.knows(id))
        .collect();
    let (mut removed, mut stubborn) = (BTreeSet::new(), BTreeSet::new());
    let mut under_way = JoinSet::new();
    for id in leftovers {
        if under_way.len() >= MAX_AT_ONCE
            && let Some(cleared) = under_way.join_next().await
        {
            sort(cleared.map_err(error::from_join)?, &mut removed, &mut stubborn);
        }
        let guests = guests.get(&id).cloned().unwrap_or_default();
        under_way.spawn(clear(Arc::clone(host), id, guests));
    }
    while let Some(cleared) = under_way.join_next().await {
        sort(cleared.map_err(error::from_join)?, &mut removed, &mut stubborn);
    }
    let strangers = ids_in(&host.directories.sandboxes());
    let is_kept = |id: &SandboxId| known.contains(id) || alive.contains(id) || stubborn.contains(id);
    for id in strangers.into_iter().filter(|id| !is_kept(id)) {
        match host.remove(host.directories.sandbox(&id)).await {
            Err(error) => tracing::warn!(sandbox = %id, %error, "files of an unknown sandbox stay"),
            Ok(()) => {
                removed.insert(id);
            }
        }
    }
    Ok(removed.into_iter().collect())
}

/// Removes everything of one sandbox. The cleanup after a stop continues in the background.
pub(crate) async fn remove(host: &Arc<Host>, id: &SandboxId) -> Result<(), BackendError> {
    let guests = host.inherited_guests.get(id).cloned().unwrap_or_default();
    if (!guests.is_empty() || lives(&host.directories.place(id)))
        && clear(Arc::clone(host), id.clone(), guests).await.1 == Ended::No
    {
        let what = format!("the end of sandbox {id}, which was killed,");
        return Err(BackendError::TimedOut { what, after: END_TIME });
    }
    host.remove(host.directories.sandbox(id)).await
}

fn sort(
    (id, ended): (SandboxId, Ended),
    removed: &mut BTreeSet<SandboxId>,
    stubborn: &mut BTreeSet<SandboxId>,
) {
    match ended {
        Ended::Yes => removed.insert(id),
        Ended::No => stubborn.insert(id),
    };
}

/// Ends one sandbox and removes its resources. One that does not end keeps its resources and its ids.
async fn clear(host: Arc<Host>, id: SandboxId, guests: Vec<(i32, u64)>) -> (SandboxId, Ended) {
    instance::wait_for_cleaning(&host, &id).await;
    if kill(&host, &id, guests).await == Ended::No {
        tracing::error!(sandbox = %id, after = ?END_TIME, "a sandbox that was killed does not end; it stays until the next sweep");
        return (id, Ended::No);
    }
    let (worker, gone) = (Arc::clone(&host), id.clone());
    drop(tokio::task::spawn_blocking(move || instance::clean(&worker, &gone)).await);
    drop(host.inherited.lock().unwrap_or_else(PoisonError::into_inner).remove(&id));
    (id, Ended::Yes)
}

/// Whether a killed process has ended in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Yes,
    No,
}

/// Kills the process that the run directory names, if it is still the same, and the guests found without it; waits for
/// their end.
async fn kill(host: &Host, id: &SandboxId, mut guests: Vec<(i32, u64)>) -> Ended {
    guests.extend(record::read_pid(&host.directories.place(id).pid()));
    guests.sort_unstable();
    guests.dedup();
    let _thawed = host.means.cgroups.freeze(id.as_str(), false);
    orphans::end(&guests).await
}

/// Kills a process and waits for its end, but not forever.
pub(crate) async fn kill_and_wait(handle: OwnedFd) -> Ended {
    let _dead = pidfd_send_signal(&handle, Signal::KILL);
    let Ok(handle) = watched::readable(handle) else { return Ended::No };
    match tokio::time::timeout(END_TIME, handle.readable()).await {
        Ok(_ended) => Ended::Yes,
        Err(_elapsed) => Ended::No,
    }
}
