//! Volumes: their storage, their disk usage, and an instance that shows one and runs nothing.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::Path,
    sync::Arc,
    time::Instant,
};

use jail::{Cage, MountFlag, Reply, Request, StagePath, Step, Unlinked};
use sandbox::{BackendError, ByteSize, Defaults, Next, SandboxId, VolumeId, VolumeKind, VolumeStorage};

use super::{
    Host,
    cage::{self, Ground},
    create::{self, Begun, HalfMade},
    disk, error,
    instance::NamespaceInstance,
    make_private,
    mounts::{self, MountFiles},
    statement::DiskHold,
    unexpected,
};

/// In a volume's directory: its files, or a file system of a fixed size in their place.
const DATA: &str = "data";
const IMAGE: &str = "disk.img";

/// Makes a volume's storage. On a thread that may block.
pub(crate) fn make(
    host: &Host,
    id: &VolumeId,
    kind: VolumeKind,
    limit: Option<ByteSize>,
) -> Result<VolumeStorage, BackendError> {
    let storage = match (kind, limit, &host.disk_tools) {
        (VolumeKind::Directory, None, _) | (VolumeKind::Directory, Some(_), Err(_)) => {
            VolumeStorage::Directory
        }
        (_, Some(_), Ok(_)) => VolumeStorage::Image,
        (VolumeKind::Disk, _, Err(why)) => {
            let what = format!("a volume of the kind disk cannot be made here: {why}");
            let next = Some(Next::Advice(
                "Use the kind directory, with a quota that is held by measuring.".to_owned(),
            ));
            return Err(BackendError::Unsupported { what, next });
        }
        (VolumeKind::Disk, None, Ok(_)) => {
            return Err(BackendError::Failed { what: "a disk without a size".to_owned(), source: None });
        }
    };
    let directory = host.directories.volume(id);
    let make = || {
        make_private(&directory)?;
        match (storage, &host.disk_tools, limit) {
            (VolumeStorage::Image, Ok(mkfs), Some(size)) => {
                disk::make_image(mkfs, &host.directories.layers(), size, &directory.join(IMAGE))
            }
            _ => make_data(&directory.join(DATA)),
        }
    };
    make()
        .map_err(|error| error::from_io(format!("could not make {}: {error}", directory.display()), error))?;
    Ok(storage)
}

/// Where a volume's files are.
pub(crate) fn files(host: &Host, id: &VolumeId) -> MountFiles {
    let directory = host.directories.volume(id);
    let image = directory.join(IMAGE);
    match image.exists() {
        true => MountFiles::Image { path: image, identity: None },
        false => MountFiles::Path { path: directory.join(DATA), identity: None },
    }
}

/// Belongs to root inside: that is us, whether we are root or not.
fn make_data(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(path)?;
    // Whatever umask we were started with.
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}

pub(crate) async fn used(host: &Host, id: &VolumeId) -> Result<u64, BackendError> {
    match &files(host, id) {
        MountFiles::Path { path, .. } => {
            let request = Request::Measure {
                paths: vec![path.clone()],
                guest: None,
                processes: Vec::new(),
                unlinked: Unlinked::OfPath,
            };
            match host.ask(&request).await? {
                Reply::Measured { bytes, .. } => Ok(bytes),
                other => Err(unexpected(&other)),
            }
        }
        MountFiles::Image { path, .. } => {
            let found = fs::metadata(path);
            let found =
                found.map_err(|error| error::from_io(format!("could not read {}", path.display()), error))?;
            Ok(found.blocks() * 512)
        }
    }
}

/// Makes an instance whose root is the volume.
pub(crate) async fn open(
    host: &Arc<Host>,
    id: &SandboxId,
    volume: &VolumeId,
) -> Result<NamespaceInstance, BackendError> {
    let began = Instant::now();
    let turn = host.turn(id).await;
    host.spawner.at_hand().await?;
    let half_made = HalfMade::new(Arc::clone(host), id.clone(), turn);
    let (worker, files) = (Arc::clone(host), files(host, volume));
    let begun = tokio::task::spawn_blocking(move || begin(&worker, half_made, &files));
    let begun = begun.await.map_err(error::from_join)??;
    let made = create::conclude(host, began, begun, Vec::new()).await;
    made.map(|(instance, _costs)| instance)
}

fn begin(host: &Arc<Host>, mut half_made: HalfMade, files: &MountFiles) -> Result<Begun, BackendError> {
    let limits = Defaults::default().limits;
    let first_id = half_made.take_range(host)?;
    let mut cage = build(half_made.id(), files, &host.ground, first_id);
    cage.rlimits = host.means.holds(&limits).rlimits;
    // Data written there belongs to the volume; the instance has no files of its own.
    let isolation = host.means.isolation(&limits, &DiskHold::FileSystem, sandbox::NetworkHold::Loopback);
    create::send(host, half_made, cage, isolation, &limits, None)
}

/// The cage of an instance that shows a volume: only that is mounted, and nothing in it can be run.
fn build(id: &SandboxId, files: &MountFiles, ground: &Ground, first_id: Option<u32>) -> Cage {
    let root = StagePath::new(&ground.stage, "root");
    let flags = vec![MountFlag::NoSuid, MountFlag::NoDev, MountFlag::NoExec];
    let mount = mounts::handed(files, ground.ids, flags);
    let mut steps = cage::apart("volume", None);
    steps.extend([Step::PlaceRoot { mount: 0, at: root.clone() }, Step::Pivot { root }]);
    steps.extend(cage::sealed());
    let id_map = cage::id_map(ground.ids, first_id);
    Cage {
        name: id.to_string(),
        id_map,
        owner: first_id,
        layers: Vec::new(),
        mounts: vec![mount],
        steps,
        rlimits: Vec::new(),
        // Nothing runs there.
        internet: cage::internet_budget(0),
    }
}
