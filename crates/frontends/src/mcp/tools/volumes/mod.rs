//! `volume_*` and `volume_fs_*`: volumes and the files in them, with or without a sandbox.

mod files;
mod manage;
#[cfg(test)]
mod tests;

use engine::VolumeRef;
use sandbox::Error;

use crate::mcp::{
    Toolset,
    call::Call,
    envelope::Failure,
    tool::{Hints, Tool},
    tools::files::explained_by,
};

pub(super) fn tools() -> Vec<Tool> {
    let mut all = vec![
        Tool::new(
            Toolset::Volumes,
            "volume_create",
            "Create volume",
            "Create a volume: named storage that outlives sandboxes. sandbox_create can mount it.",
            Hints::ADDS,
            manage::create,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_list",
            "List volumes",
            "List volumes: kind, size, usage, and the sandboxes that mount them.",
            Hints::READS,
            manage::list,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_inspect",
            "Inspect volume",
            "Show one volume: kind, size, usage, labels, and the sandboxes that mount it.",
            Hints::READS,
            manage::inspect,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_remove",
            "Remove volumes",
            "Remove volumes and all their files. Fails for one that a sandbox mounts, running or not.",
            Hints::DESTROYS,
            manage::remove,
        ),
    ];
    all.extend(files::tools());
    all
}

/// The volume that a caller means.
fn meant(call: &Call, name: &str) -> Result<VolumeRef, Failure> {
    let name = name.parse().map_err(Error::from).map_err(explained)?;
    Ok(VolumeRef { namespace: call.namespace.clone(), name })
}

/// What cannot be done, with the next call.
fn explained(error: Error) -> Failure {
    explained_by("volume_fs", error)
}
