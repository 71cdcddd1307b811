//! A sandbox's mounts: from the request to the back end's plan, at creation and again at every start, since host paths
//! and volumes may have changed in between.

use std::{
    collections::BTreeMap,
    fs::{File, Metadata},
    io::{self, ErrorKind as IoKind},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use sandbox::{
    ByteSize, Error, ErrorKind, FileIdentity, MountOrigin, MountPlan, MountSource, MountSpec, Namespace,
    Next, ResolvedVolume, Result, RootfsPlan, RootfsSpec, SandboxPlan, SandboxSpec, Thing, VolumeName,
    VolumeStorage, at_mount, check_guest_path,
};
use store::{SandboxRecord, VolumeRecord};
use tokio::task::spawn_blocking;

use crate::{EngineConfig, Principal, core::Core};

/// Offset of ext4's magic number, and its value.
const EXT4_MAGIC: (u64, [u8; 2]) = (1080, [0x53, 0xef]);

/// Finds the volumes that a spec names, and refuses host paths that may not be used. Errors name the mount.
pub(crate) async fn find(
    core: &Core,
    who: &Principal,
    spec: &SandboxSpec,
) -> Result<BTreeMap<VolumeName, ResolvedVolume>> {
    let mut volumes = BTreeMap::new();
    for mount in &spec.mounts {
        let looked = async {
            match &mount.source {
                MountSource::Named { name } => {
                    volumes.insert(name.clone(), find_volume(core, &spec.namespace, name)?);
                    Ok(())
                }
                MountSource::Tmpfs { .. } => Ok(()),
                MountSource::Bind { host_path, no_links, allowed } => {
                    may_use(who, host_path, *allowed)?;
                    let expected = HostFileKind::Any { no_links: *no_links };
                    look(core, host_path, *allowed, expected).await.map(drop)
                }
                MountSource::Disk { host_path, allowed } => {
                    may_use(who, host_path, *allowed)?;
                    look(core, host_path, *allowed, HostFileKind::Ext4).await.map(drop)
                }
            }
        };
        looked.await.map_err(|error| at_mount(&mount.guest_path, error))?;
    }
    Ok(volumes)
}

fn find_volume(core: &Core, namespace: &Namespace, name: &VolumeName) -> Result<ResolvedVolume> {
    let found = core.volumes.named(namespace, name).ok_or_else(|| {
        Error::no_such(Thing::Volume, name.as_str())
            .reworded(|words| format!("{words} in the namespace {namespace}"))
            .with_next(Next::Create(Thing::Volume))
    })?;
    Ok(ResolvedVolume { quota: measured_quota(&found), id: found.id })
}

/// The plan for the back end at this start: its volumes exist, and every host path has the identity that must be found
/// when it is opened.
pub(crate) async fn resolve(core: &Core, record: &SandboxRecord) -> Result<SandboxPlan> {
    let mut resolved = record.plan.clone();
    // Records of earlier versions say so in the spec only.
    let was_asked = matches!(record.spec.rootfs, Some(RootfsSpec::Directory { no_links: true, .. }));
    if let RootfsPlan::Directory { path, identity, no_links } = &mut resolved.rootfs
        && (*no_links || was_asked)
    {
        *identity = Some(look(core, path, *identity, HostFileKind::Any { no_links: true }).await?);
    }
    for mount in &mut resolved.mounts {
        let asked = record.spec.mounts.iter().find(|asked| is_same_place(asked, mount));
        let no_links =
            asked.is_some_and(|asked| matches!(asked.source, MountSource::Bind { no_links: true, .. }));
        let again = resolve_one(core, mount, no_links).await;
        (mount.source, mount.quota) = again.map_err(|error| at_mount(&mount.guest_path, error))?;
    }
    Ok(resolved)
}

fn is_same_place(asked: &MountSpec, planned: &MountPlan) -> bool {
    check_guest_path(&asked.guest_path).is_ok_and(|path| path == planned.guest_path)
}

async fn resolve_one(
    core: &Core,
    mount: &MountPlan,
    no_links: bool,
) -> Result<(MountOrigin, Option<ByteSize>)> {
    let origin = match &mount.source {
        MountOrigin::Volume { id } => {
            let found = core.volumes.get(id).ok_or_else(|| {
                let message = format!(
                    "its volume {id} was removed; a volume of the same name would be a different one"
                );
                Error::not_found(message)
                    .with_hint("Create another sandbox, which can mount the current volume.")
            })?;
            return Ok((mount.source.clone(), measured_quota(&found)));
        }
        MountOrigin::Tmpfs { size } => MountOrigin::Tmpfs { size: *size },
        MountOrigin::Path { path, identity } => {
            let identity = Some(look(core, path, *identity, HostFileKind::Any { no_links }).await?);
            MountOrigin::Path { path: path.clone(), identity }
        }
        MountOrigin::Image { path, identity } => {
            let identity = Some(look(core, path, *identity, HostFileKind::Ext4).await?);
            MountOrigin::Image { path: path.clone(), identity }
        }
    };
    Ok((origin, mount.quota))
}

/// The mounts requested when a sandbox was made, to request them again: the plan has what a front end allowed then.
pub(crate) fn asked_again(record: &SandboxRecord) -> Vec<MountSpec> {
    let mut mounts = record.spec.mounts.clone();
    for mount in &mut mounts {
        let planned = record.plan.mounts.iter().find(|planned| is_same_place(mount, planned));
        if let (
            MountSource::Bind { allowed, .. } | MountSource::Disk { allowed, .. },
            Some(MountOrigin::Path { identity, .. } | MountOrigin::Image { identity, .. }),
        ) = (&mut mount.source, planned.map(|planned| &planned.source))
        {
            *allowed = *identity;
        }
    }
    mounts
}

/// The quota of a volume, if it is enforced only by measuring.
fn measured_quota(volume: &VolumeRecord) -> Option<ByteSize> {
    volume.spec.quota.filter(|_| volume.storage == Some(VolumeStorage::Directory))
}

/// Host paths are for the daemon's owner, and for callers whose front end's policy has checked them.
fn may_use(who: &Principal, path: &Path, allowed: Option<FileIdentity>) -> Result<()> {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    if !path.is_absolute() || climbs || path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(Error::invalid(format!("the host path {} is not absolute", path.display()))
            .with_hint("Give a path that starts with / and does not contain `..`."));
    }
    if who.is_owner || allowed.is_some() {
        return Ok(());
    }
    let message = format!("{} may not use the host path {}", who.name, path.display());
    Err(Error::new(ErrorKind::Denied, message)
        .with_hint("Use a volume, or ask the daemon's operator to create the sandbox on its machine."))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostFileKind {
    /// A directory or a file, and whether links on the way to it are refused.
    Any {
        no_links: bool,
    },
    Ext4,
}

/// The file at a host path, if it fits a mount and is the allowed one.
async fn look(
    core: &Core,
    path: &Path,
    allowed: Option<FileIdentity>,
    expected: HostFileKind,
) -> Result<FileIdentity> {
    let (asked, config) = (path.to_owned(), core.config.clone());
    // A network path may be slow.
    let found = spawn_blocking(move || look_at(&asked, &config, expected)).await;
    let found = found.map_err(|error| {
        Error::new(ErrorKind::Internal, format!("could not inspect {}", path.display())).with_source(error)
    })??;
    match allowed {
        Some(allowed) if allowed != found => {
            let message = format!("the host path {} is no longer the file that was allowed", path.display());
            Err(Error::new(ErrorKind::Denied, message)
                .with_hint("Restore the old file, or create another sandbox."))
        }
        _ => Ok(found),
    }
}

fn look_at(path: &Path, config: &EngineConfig, expected: HostFileKind) -> Result<FileIdentity> {
    let failed = |error: io::Error| {
        let shown = path.display();
        let (kind, hint) = match error.kind() {
            IoKind::NotFound => {
                (ErrorKind::NotFound, "Create it on the daemon's machine first, or use a volume.")
            }
            _ => (ErrorKind::Unavailable, "The daemon's user must have access to it."),
        };
        Error::new(kind, format!("cannot use the host path {shown}: {error}")).with_hint(hint)
    };
    let metadata = match expected {
        HostFileKind::Any { no_links: true } => metadata_without_links(path)?,
        _ => std::fs::metadata(path),
    };
    let metadata = metadata.map_err(failed)?;
    let refused = |why: &str, hint: &str| {
        let message = format!("cannot mount the host path {}: {why}", path.display());
        Err(Error::invalid(message).with_hint(hint))
    };
    check_apart(path, config)?;
    match expected {
        HostFileKind::Any { .. } if !(metadata.is_dir() || metadata.is_file()) => {
            return refused("it is neither a directory nor a file", "Use a directory or a regular file.");
        }
        HostFileKind::Ext4 if !(metadata.is_file() && has_ext4(path).map_err(failed)?) => {
            return refused("it does not contain an ext4 file system", "Make one with mkfs.ext4.");
        }
        _ => {}
    }
    Ok(identity(&metadata))
}

/// Where the path leads if no part of it is a link.
fn metadata_without_links(path: &Path) -> Result<io::Result<Metadata>> {
    let refused = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), refused) {
        Ok(found) => Ok(File::from(found).metadata()),
        Err(Errno::LOOP) => {
            let message = format!("the host path {} now contains a link", path.display());
            Err(Error::new(ErrorKind::Denied, message)
                .with_hint("Remove the link, or create the sandbox again with the path that it leads to."))
        }
        Err(error) => Ok(Err(error.into())),
    }
}

fn identity(metadata: &Metadata) -> FileIdentity {
    FileIdentity { device: metadata.dev(), inode: metadata.ino() }
}

pub(crate) fn has_ext4(path: &Path) -> io::Result<bool> {
    let (at, magic) = EXT4_MAGIC;
    let mut found = [0; 2];
    // A user who can write beside it may replace it by a pipe at any time: that must not make us wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    match file.read_exact_at(&mut found, at) {
        Err(error) if error.kind() == IoKind::UnexpectedEof => Ok(false),
        read => read.map(|()| found == magic),
    }
}

/// Refuses the daemon's own directories, and every directory that contains them: its records and secrets, the files of
/// all sandboxes, and its sockets, on which a sandbox's processes would count as the owner without root.
pub(crate) fn check_apart(path: &Path, config: &EngineConfig) -> Result<()> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_gone| PathBuf::from(path));
    let shown = real(path);
    for own in [Some(&config.home), config.run.as_ref()].into_iter().flatten() {
        let own = real(own);
        let (why, hint) = if shown.starts_with(&own) {
            ("it belongs to the daemon".to_owned(), "Use a volume to share files between sandboxes.")
        } else if own.starts_with(&shown) {
            let why = format!("it contains the daemon's own directory {}", own.display());
            (why, "Mount only the directories in it that the sandbox needs.")
        } else {
            continue;
        };
        let message = format!("cannot mount the host path {} in a sandbox: {why}", path.display());
        return Err(Error::invalid(message).with_hint(hint));
    }
    Ok(())
}
