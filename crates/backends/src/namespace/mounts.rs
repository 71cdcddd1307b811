//! The mounts of a plan, as steps of its cage.

use std::path::Path;

use jail::{HandedMount, MountFlag, NewMount, Step};
use sandbox::{MountOrigin, MountPlan, Next};

use super::cage::{Ground, Ids};

/// Like `/tmp`: everybody may write to it.
const TMPFS_MODE: u32 = 0o1777;

/// Adds a step for every mount of the plan. The spawner opens those from the host.
pub(crate) fn place_all(mounts: &[MountPlan], ids: Ids, steps: &mut Vec<Step>) -> Vec<HandedMount> {
    let mut all = Vec::new();
    for mount in mounts {
        let what = match &mount.source {
            MountOrigin::Tmpfs { size } => {
                NewMount::Tmpfs { bytes: size.bytes(), mode: TMPFS_MODE, flags: flags(mount) }
            }
            origin => {
                all.extend(handed(origin, ids, flags(mount)));
                NewMount::Handed(all.len() - 1)
            }
        };
        steps.push(Step::Place { what, at: mount.guest_path.clone() });
    }
    all
}

fn flags(mount: &MountPlan) -> Vec<MountFlag> {
    let mut flags = vec![MountFlag::NoSuid, MountFlag::NoDev];
    flags.extend(mount.readonly.then_some(MountFlag::ReadOnly));
    flags.extend(mount.noexec.then_some(MountFlag::NoExec));
    flags
}

/// The mount for the spawner to open; `None` for a tmpfs, which the child makes, and for a volume that was not located.
pub(crate) fn handed(origin: &MountOrigin, ids: Ids, flags: Vec<MountFlag>) -> Option<HandedMount> {
    let (origin, identity) = match origin {
        MountOrigin::Path { path, identity } => {
            // Without root the kernel shows a directory only with its submounts. Volumes have none.
            let recursive = identity.is_some();
            (jail::MountOrigin::Path { path: path.clone(), recursive }, identity)
        }
        MountOrigin::Image { path, identity } => {
            (jail::MountOrigin::Image { path: path.clone(), is_ours: identity.is_none() }, identity)
        }
        MountOrigin::Tmpfs { .. } | MountOrigin::Volume { .. } => return None,
    };
    let identity = identity.map(|file| jail::FileIdentity { device: file.device, inode: file.inode });
    Some(HandedMount { origin, identity, is_mapped: ids == Ids::OwnRange, flags })
}

/// Why a host path cannot be shown to any sandbox. Links lead there as well as names do.
pub(crate) fn why_hidden(path: &Path, ground: &Ground) -> Option<String> {
    let is_hidden = path.canonicalize().as_deref().unwrap_or(path).starts_with(&ground.stage);
    is_hidden.then(|| format!("sandboxes are put together over {}, which hides it", ground.stage.display()))
}

/// Refuses a mount that this host cannot provide, before anything is made.
pub(crate) fn check(
    mounts: &[MountPlan],
    ground: &Ground,
    disk_tools: &Result<std::path::PathBuf, String>,
) -> Result<(), sandbox::BackendError> {
    for mount in mounts {
        let (path, why) = match (&mount.source, disk_tools) {
            (MountOrigin::Image { path, .. }, Err(why)) => (path, Some(why.clone())),
            (MountOrigin::Path { path, .. } | MountOrigin::Image { path, .. }, _) => {
                (path, why_hidden(path, ground))
            }
            (MountOrigin::Tmpfs { .. } | MountOrigin::Volume { .. }, _) => continue,
        };
        let Some(why) = why else { continue };
        let what = format!("mount {}: {} cannot be mounted: {why}", mount.guest_path, path.display());
        let hint = "Use a directory elsewhere, or a volume of the kind directory.".to_owned();
        return Err(sandbox::BackendError::Unsupported { what, next: Some(Next::Advice(hint)) });
    }
    Ok(())
}
