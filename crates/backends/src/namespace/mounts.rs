//! The mounts of a plan, as steps of its cage.

use std::path::{Path, PathBuf};

use jail::{HandedMount, MountFlag, NewMount, Step};
use sandbox::{ByteSize, FileIdentity, MountOrigin, MountPlan, Next};

use super::cage::{Ground, Ids};

/// Like `/tmp`: everybody may write to it.
const TMPFS_MODE: u32 = 0o1777;

/// A mount of a plan, with the place of its files on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocatedMount {
    pub(crate) guest_path: String,
    pub(crate) source: LocatedSource,
    pub(crate) readonly: bool,
    pub(crate) noexec: bool,
    pub(crate) quota: Option<ByteSize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LocatedSource {
    Files(MountFiles),
    Tmpfs { size: ByteSize },
}

/// Files of this host that are mounted. `identity`: what the opened path must turn out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MountFiles {
    Path { path: PathBuf, identity: Option<FileIdentity> },
    Image { path: PathBuf, identity: Option<FileIdentity> },
}

impl LocatedMount {
    /// `volume`: where the files of a volume are.
    pub(crate) fn new(plan: &MountPlan, volume: impl FnOnce(&sandbox::VolumeId) -> MountFiles) -> Self {
        let source = match plan.source.clone() {
            MountOrigin::Volume { id } => LocatedSource::Files(volume(&id)),
            MountOrigin::Path { path, identity } => LocatedSource::Files(MountFiles::Path { path, identity }),
            MountOrigin::Image { path, identity } => {
                LocatedSource::Files(MountFiles::Image { path, identity })
            }
            MountOrigin::Tmpfs { size } => LocatedSource::Tmpfs { size },
        };
        let MountPlan { guest_path, readonly, noexec, quota, .. } = plan.clone();
        Self { guest_path, source, readonly, noexec, quota }
    }
}

/// Adds a step for every mount. The spawner opens those from the host.
pub(crate) fn place_all(mounts: &[LocatedMount], ids: Ids, steps: &mut Vec<Step>) -> Vec<HandedMount> {
    let mut all = Vec::new();
    for mount in mounts {
        let what = match &mount.source {
            LocatedSource::Tmpfs { size } => {
                NewMount::Tmpfs { bytes: size.bytes(), mode: TMPFS_MODE, flags: flags(mount) }
            }
            LocatedSource::Files(files) => {
                all.push(handed(files, ids, flags(mount)));
                NewMount::Handed(all.len() - 1)
            }
        };
        steps.push(Step::Place { what, at: mount.guest_path.clone() });
    }
    all
}

fn flags(mount: &LocatedMount) -> Vec<MountFlag> {
    let mut flags = vec![MountFlag::NoSuid, MountFlag::NoDev];
    flags.extend(mount.readonly.then_some(MountFlag::ReadOnly));
    flags.extend(mount.noexec.then_some(MountFlag::NoExec));
    flags
}

/// The mount for the spawner to open.
pub(crate) fn handed(files: &MountFiles, ids: Ids, flags: Vec<MountFlag>) -> HandedMount {
    let (origin, identity) = match files {
        MountFiles::Path { path, identity } => {
            // Without root the kernel shows a directory only with its submounts. Volumes have none.
            let recursive = identity.is_some();
            (jail::MountOrigin::Path { path: path.clone(), recursive }, identity)
        }
        MountFiles::Image { path, identity } => {
            (jail::MountOrigin::Image { path: path.clone(), is_ours: identity.is_none() }, identity)
        }
    };
    let identity = identity.map(|file| jail::FileIdentity { device: file.device, inode: file.inode });
    HandedMount { origin, identity, is_mapped: ids == Ids::OwnRange, flags }
}

/// Why a host path cannot be shown to any sandbox. Links lead there as well as names do.
pub(crate) fn why_hidden(path: &Path, ground: &Ground) -> Option<String> {
    let is_hidden = path.canonicalize().as_deref().unwrap_or(path).starts_with(&ground.stage);
    is_hidden.then(|| format!("sandboxes are put together over {}, which hides it", ground.stage.display()))
}

/// Refuses a mount that this host cannot provide, before anything is made.
pub(crate) fn check(
    mounts: &[LocatedMount],
    ground: &Ground,
    disk_tools: &Result<std::path::PathBuf, String>,
) -> Result<(), sandbox::BackendError> {
    for mount in mounts {
        let (path, why) = match (&mount.source, disk_tools) {
            (LocatedSource::Files(MountFiles::Image { path, .. }), Err(why)) => (path, Some(why.clone())),
            (LocatedSource::Files(MountFiles::Path { path, .. } | MountFiles::Image { path, .. }), _) => {
                (path, why_hidden(path, ground))
            }
            (LocatedSource::Tmpfs { .. }, _) => continue,
        };
        let Some(why) = why else { continue };
        let what = format!("mount {}: {} cannot be mounted: {why}", mount.guest_path, path.display());
        let hint = "Use a directory elsewhere, or a volume of the kind directory.".to_owned();
        return Err(sandbox::BackendError::Unsupported { what, next: Some(Next::Advice(hint)) });
    }
    Ok(())
}
