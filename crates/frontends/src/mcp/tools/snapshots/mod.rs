//! Snapshots, restores, forks and what a sandbox changed.

mod archives;
mod change;
mod diff;
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
            "Save the files of a running or stopped sandbox, without memory. A running one is paused only during the copy.";
        "snapshot_list", "List snapshots", READS, look::list:
            "List snapshots. Those without a name belong to forks and are deleted with the last of them.";
        "snapshot_inspect", "Inspect snapshot", READS, look::inspect:
            "Show one snapshot: image, parent, labels, size and users; with verify, also check all its data.";
        "snapshot_verify", "Verify snapshot", READS, look::verify:
            "Read a whole snapshot and compare it with its recorded digests.";
        "snapshot_remove", "Remove snapshots", DESTROYS, change::remove:
            "Remove snapshots. Fails for one in use; with force it loses its name now and is deleted with its last user.";
        "snapshot_reindex", "Reindex snapshots", SETS, change::reindex:
            "Register snapshots on the daemon's disk that are missing from its list; with dir, load every archive in a host directory.";
    }
}

fn archiving() -> Vec<Tool> {
    let save =
        "Save a snapshot to an archive on the host (tar.zst), with its parents and, if asked, its image.";
    let load = "Load a snapshot from an archive on the host. Refuses an archive that was changed.";
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
        // With replace it removes a sandbox.
        "sandbox_restore", "Restore sandbox", DESTROYS_MORE, restore::restore:
            "Create a sandbox from a snapshot, or with replace return an existing one to it. Nothing is copied.";
        "sandbox_fork", "Fork sandbox", ADDS, fork::fork, core:
            "Create one or more copies of a running or stopped sandbox with its current files. All or none.";
        "sandbox_diff", "Show sandbox changes", READS, diff::diff:
            "List the files that a sandbox changed since its image, a snapshot or its fork; optionally as a patch.";
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
            // Whether other files of the host exist is nobody's business who may not look there.
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
        "Give a name or digest from snapshot_list; call snapshot_load to load an archive from a path.",
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
    Err(Failure::unconfirmed(format!("{tool} with force requires confirm: true"))
        .with_hint(format!("Call snapshot_list to check what is affected, then {tool} with confirm: true.")))
}

/// Works, tells a caller who wants to know that it does, and ends with a caller who cancels.
async fn waiting<T>(call: &Call, work: impl Future<Output = sandbox::Result<T>>) -> Result<T, Failure> {
    let cancelled = || Failure::new(ErrorKind::Cancelled, "the call was cancelled");
    let done = call.cancelled.run_until_cancelled(while_waiting(call, None, work)).await;
    done.ok_or_else(cancelled)?.map_err(Failure::from)
}
