//! Finding and clearing what belongs to no sandbox any more.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use jail::{Reply, Request};
use rustix::process::{Signal, pidfd_send_signal};
use sandbox::{BackendError, SandboxId};

use super::{Host, error, instance, record, watched};

/// Names in a directory that are ids of sandboxes.
pub(crate) fn ids_in(directory: &Path) -> Vec<SandboxId> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Takes away processes, cgroups and run directories of sandboxes not in `alive`, and files of those not in `known`.
pub(crate) async fn sweep(
    host: &Arc<Host>,
    alive: &[SandboxId],
    known: &[SandboxId],
) -> Result<Vec<SandboxId>, BackendError> {
    let mut removed = BTreeSet::new();
    let in_cgroups = host.means.cgroups.ids().into_iter().filter_map(|name| name.parse().ok());
    let leftovers: BTreeSet<SandboxId> = ids_in(&host.directories.run)
        .into_iter()
        .chain(in_cgroups)
        .filter(|id| !alive.contains(id))
        .collect();
    for id in leftovers {
        instance::wait_for_cleaning(host, &id).await;
        kill(host, &id).await;
        let (worker, gone) = (Arc::clone(host), id.clone());
        tokio::task::spawn_blocking(move || instance::clean(&worker, &gone))
            .await
            .map_err(error::from_join)?;
        drop(host.inherited.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&id));
        removed.insert(id);
    }
    let strangers = ids_in(&host.directories.sandboxes());
    for id in strangers.into_iter().filter(|id| !known.contains(id) && !alive.contains(id)) {
        let path = host.directories.sandboxes().join(id.as_str());
        match host.ask(&Request::Remove { path }).await? {
            Reply::Failed(failure) => {
                tracing::warn!(sandbox = %id, %failure, "files of an unknown sandbox stay");
            }
            _done => {
                removed.insert(id);
            }
        }
    }
    Ok(removed.into_iter().collect())
}

/// Kills the process that the run directory names, if it is still the same, and waits for its end.
async fn kill(host: &Host, id: &SandboxId) {
    let recorded = record::read_pid(&host.directories.place(id).pid());
    let process = recorded.and_then(|(pid, start_time)| instance::find_process(pid, start_time));
    let Some(handle) = process else { return };
    let _thawed = host.means.cgroups.freeze(id.as_str(), false);
    let _dead = pidfd_send_signal(&handle, Signal::KILL);
    if let Ok(handle) = watched::readable(handle) {
        drop(handle.readable().await);
    }
}
