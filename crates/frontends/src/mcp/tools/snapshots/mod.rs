//! Snapshots, restores, forks and what a sandbox changed.

mod archives;
mod change;
mod fork;
mod look;
mod restore;
mod shapes;
#[cfg(test)]
mod tests;

use std::path::Path;

use engine::SnapshotRef;
use sandbox::{Error, ErrorKind, SnapshotId, SnapshotName};

use crate::mcp::{
    Call, Failure, Tool,
    envelope::DANGEROUS_OPERATION_DISABLED,
    hostfs::{self, Access},
    tools::telling::while_waiting,
};

pub(super) fn tools() -> Vec<Tool> {
    [taking(), archiving(), using()].into_iter().flatten().collect()
}

fn taking() -> Vec<Tool> {
    tools! { Snapshots;
        // With force it takes the name from another, which may go.
        "snapshot_create", "Create snapshot", DESTROYS_MORE, change::create:
            "Keep what a sandbox changed, running or stopped. One that runs stands still for the copy only; files only, no memory.";
        "snapshot_list", "List snapshots", READS, look::list:
            "List snapshots. Those without a name are kept for forks and go with the last of them.";
        "snapshot_inspect", "Inspect snapshot", READS, look::inspect:
            "Show one snapshot: image, parent, labels, size, and who uses it; with verify, read all of it.";
        "snapshot_verify", "Verify snapshot", READS, look::verify:
            "Read all of a snapshot and compare it with the digests that were recorded.";
        "snapshot_remove", "Remove snapshots", DESTROYS, change::remove:
            "Remove snapshots. One in use is refused; with force it loses its name now, and goes with its last user.";
        "snapshot_reindex", "Reindex snapshots", SETS, change::reindex:
            "Find snapshots on the daemon's disk that it does not list; with dir, load every archive in a host directory.";
    }
}

fn archiving() -> Vec<Tool> {
    let save =
        "Write a snapshot to an archive on the host (tar.zst), with its parents, and its image if asked.";
    let load = "Take in a snapshot from an archive on the host. An archive that was changed is refused.";
    // Saving replaces a file that is there.
    tools! { Snapshots;
        "snapshot_save", "Save snapshot", DESTROYS, archives::save: save;
        "snapshot_load", "Load snapshot", ADDS, archives::load: load;
        "snapshot_export", "Export snapshot (snapshot_save)", DESTROYS, archives::save: save;
        "snapshot_import", "Import snapshot (snapshot_load)", ADDS, archives::load: load;
    }
}

fn using() -> Vec<Tool> {
    tools! { Snapshots;
        "sandbox_restore", "Restore sandbox", ADDS, restore::restore:
            "Create a sandbox from a snapshot: its files, environment, user and limits. Nothing is copied.";
        "sandbox_fork", "Fork sandbox", ADDS, fork::fork:
            "Create one or many sandboxes with the files that a sandbox has now, running or stopped. All or none.";
        "sandbox_diff", "Changes of sandbox", READS, fork::diff:
            "List what a sandbox changed since its image or a snapshot on it; text as a patch too.";
    }
}

/// The snapshot that a caller means: a name, a digest, or the path that snapshot_list shows.
async fn named(call: &Call, path_or_name: &str) -> Result<SnapshotRef, Failure> {
    if !is_path(path_or_name) {
        return SnapshotRef::new(path_or_name, call.namespace.clone()).map_err(Failure::from);
    }
    match listed_at(call, path_or_name).await? {
        Some(id) => Ok(SnapshotRef::from(&id)),
        None => {
            // What lies elsewhere on the host is nobody's business who may not look there.
            hostfs::identify(call, path_or_name, Access::Read).await?;
            Err(none_at(path_or_name))
        }
    }
}

/// The same in words that the engine takes for what a new sandbox is made on.
pub(super) async fn in_engine_words(call: &Call, path_or_name: &str) -> Result<String, Failure> {
    if !is_path(path_or_name) {
        return Ok(path_or_name.to_owned());
    }
    named(call, path_or_name).await.map(|which| which.to_string())
}

/// The snapshot whose path this is.
async fn listed_at(call: &Call, path: &str) -> Result<Option<SnapshotId>, Failure> {
    let all = call.engine().snapshots(&call.who, None).await?;
    Ok(all.into_iter().find(|view| view.path == Path::new(path)).map(|view| view.id))
}

fn none_at(path: &str) -> Failure {
    let shown: String = path.chars().take(80).collect();
    Failure::from(Error::not_found(format!("no snapshot at the path {shown:?}"))).with_hint(
        "Give a name or digest of snapshot_list; call snapshot_load to take in an archive at a path.",
    )
}

/// A name for a snapshot.
fn new_name(text: &str) -> Result<SnapshotName, Failure> {
    Ok(text.parse().map_err(Error::from)?)
}

fn is_path(text: &str) -> bool {
    text.contains(['/', '\\']) || text.starts_with('~') || text == "." || text == ".."
}

fn confirmed(call: &Call, confirm: Option<bool>, tool: &str) -> Result<(), Failure> {
    // Whoever says no means it, whatever the settings allow.
    if confirm.unwrap_or(call.settings.dangerous_enabled) {
        return Ok(());
    }
    Err(Failure::new(DANGEROUS_OPERATION_DISABLED, format!("{tool} with force requires confirm: true"))
        .with_hint(format!("Call snapshot_list to see what is meant, then {tool} with confirm: true.")))
}

/// Works, tells a caller who wants to know that it does, and ends with a caller who cancels.
async fn waiting<T>(call: &Call, work: impl Future<Output = sandbox::Result<T>>) -> Result<T, Failure> {
    let cancelled = || Failure::from(Error::new(ErrorKind::Cancelled, "it was given up"));
    let done = call.cancelled.run_until_cancelled(while_waiting(call, None, work)).await;
    done.ok_or_else(cancelled)?.map_err(Failure::from)
}
