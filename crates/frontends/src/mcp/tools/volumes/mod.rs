//! `volume_*` and `volume_fs_*`: volumes and the files in them, with or without a sandbox.

mod files;
mod manage;
#[cfg(test)]
mod tests;

use engine::VolumeRef;
use sandbox::Error;

use crate::mcp::{Call, Failure, Tool, tools::files::explained_by};

pub(super) fn tools() -> Vec<Tool> {
    let mut all = tools! { Volumes;
        "volume_create", "Create volume", ADDS, manage::create:
            "Create a volume: named storage that outlives sandboxes. sandbox_create can mount it.";
        "volume_list", "List volumes", READS, manage::list:
            "List volumes: kind, size, usage, and the sandboxes that mount them.";
        "volume_inspect", "Inspect volume", READS, manage::inspect:
            "Show one volume: kind, size, usage, labels, and the sandboxes that mount it.";
        "volume_remove", "Remove volumes", DESTROYS, manage::remove:
            "Remove volumes and all their files. Fails for one that a sandbox mounts, running or not.";
    };
    all.extend(files::tools());
    all
}

/// The volume that a caller means.
fn meant(call: &Call, name: &str) -> Result<VolumeRef, Failure> {
    let name = name.parse().map_err(Error::from).map_err(explained)?;
    Ok(VolumeRef { namespace: call.namespace.clone(), name })
}

/// Returns the failure for something that cannot be done, with the next call.
fn explained(error: Error) -> Failure {
    explained_by("volume_fs", error)
}
