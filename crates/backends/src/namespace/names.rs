//! Names derived from a sandbox's id, so that everything of it can be found from the id alone.

use std::path::{Path, PathBuf};

use sandbox::{BackendError, RootfsPlan, SandboxId, SandboxPlan, SnapshotId, VolumeId, network::NAMESERVER};

/// Where this back end keeps things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// `$WARREN_HOME`.
    pub home: PathBuf,
    /// Run directory: `<run>/<id>/` for each live sandbox.
    pub run: PathBuf,
}

impl Directories {
    pub(crate) fn layers(&self) -> PathBuf {
        self.home.join("layers")
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.home.join("snapshots")
    }

    /// The content of a snapshot: `root/upper`, and for image `host` `usr/upper`.
    pub(crate) fn tree(&self, id: &SnapshotId) -> PathBuf {
        self.snapshots().join(id.as_str()).join("tree")
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.home.join("sandboxes")
    }

    /// The sandbox's own files, and the daemon's files about it.
    pub(crate) fn sandbox(&self, id: &SandboxId) -> PathBuf {
        self.sandboxes().join(id.as_str())
    }

    /// Files of places that wait for their sandboxes.
    pub(crate) fn waiting(&self) -> PathBuf {
        self.home.join("waiting")
    }

    pub(crate) fn volumes(&self) -> PathBuf {
        self.home.join("volumes")
    }

    pub(crate) fn volume(&self, id: &VolumeId) -> PathBuf {
        self.volumes().join(id.as_str())
    }

    /// Locked by the spawner and all its work in progress.
    pub(crate) fn spawner_lock(&self) -> PathBuf {
        self.home.join("spawner.lock")
    }

    /// Name of the cgroup above all sandboxes of this home, and the mark of their guests: a second daemon with another
    /// home has another.
    pub fn cgroup_parent(&self) -> String {
        let home = self.home.canonicalize().unwrap_or_else(|_missing| self.home.clone());
        format!("warren-{:016x}", fnv1a(home.as_os_str().as_encoded_bytes()))
    }

    pub(crate) fn place(&self, id: &SandboxId) -> PlaceNames {
        PlaceNames { run: self.run.join(id.as_str()) }
    }
}

/// The hash FNV-1a of 64 bits. The standard library's may change with its version, and a later daemon must find the
/// same name.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Files of one live sandbox in the run directory.
#[derive(Debug, Clone)]
pub(crate) struct PlaceNames {
    pub(crate) run: PathBuf,
}

impl PlaceNames {
    pub(crate) fn socket(&self) -> PathBuf {
        self.run.join("guest.sock")
    }

    /// Pid and start time of the guest, written by the guest itself on its way in.
    pub(crate) fn pid(&self) -> PathBuf {
        self.run.join("pid")
    }

    /// Facts for a later daemon; see [`super::record::Record`].
    pub(crate) fn record(&self) -> PathBuf {
        self.run.join("place.json")
    }
}

/// The sandbox's own files, below its directory.
#[derive(Debug, Clone)]
pub(crate) struct FileNames {
    /// Everything that is mounted inside, and nothing else (the logs are beside it).
    pub(crate) own: PathBuf,
    /// A file system of a fixed size, in place of `own`.
    pub(crate) image: PathBuf,
}

impl FileNames {
    pub(crate) fn of(directory: &Path) -> Self {
        Self { own: directory.join("fs"), image: directory.join("disk.img") }
    }
}

/// Below `own`, or at the top of the image, with their modes: layers of `/` and, for image `host`, of `/usr`. The last
/// one is made last.
pub(crate) fn own_directories(plan: &SandboxPlan) -> Vec<(String, u32)> {
    let plain = |name: &str| (name.to_owned(), 0o755);
    if plan.rootfs == RootfsPlan::Host {
        let names = ["root", "root/upper", "root/upper/etc", "root/work", "usr", "usr/upper", "usr/work"];
        return names.map(plain).to_vec();
    }
    let mut directories = ["root", "root/upper"].map(plain).to_vec();
    // An image may lack a mount point, or have a link there that leads anywhere: ours is above it.
    directories.extend(MOUNT_POINTS.map(|(name, mode)| (format!("root/upper/{name}"), mode)));
    directories.push(plain("root/work"));
    directories
}

/// Directories of a plan's image, the topmost first; none if it has no image. May block.
pub(crate) fn image_layers(home: &Path, plan: &SandboxPlan) -> Result<Vec<PathBuf>, BackendError> {
    let digest = plan.image_digest.as_deref().filter(|_| plan.rootfs == RootfsPlan::Image);
    let Some(digest) = digest else { return Ok(Vec::new()) };
    digest
        .parse()
        .and_then(|digest| images::lower_directories(home, &digest))
        .map_err(|error| BackendError::failed(format!("image {digest} cannot be used: {error}"), error))
}

/// Mount points in every image.
pub(crate) const MOUNT_POINTS: [(&str, u32); 6] =
    [("etc", 0o755), ("dev", 0o755), ("proc", 0o755), ("sys", 0o755), ("run", 0o755), ("tmp", 0o1777)];

/// Where programs inside find a resolver. Without a network nobody is there, and they learn that at once.
pub(crate) fn resolv_conf() -> String {
    format!("nameserver {NAMESERVER}\n")
}

/// A new sandbox's own files.
pub(crate) fn own_files(hostname: &str) -> Vec<(String, String)> {
    let mut files = files_with_the_name(hostname);
    files.push(("root/upper/etc/resolv.conf".to_owned(), resolv_conf()));
    files
}

/// The files with a sandbox's name, so that programs that look themselves up find something.
pub(crate) fn files_with_the_name(hostname: &str) -> Vec<(String, String)> {
    let hosts = format!("127.0.0.1\tlocalhost {hostname}\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    vec![
        ("root/upper/etc/hostname".to_owned(), format!("{hostname}\n")),
        ("root/upper/etc/hosts".to_owned(), hosts),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_cgroup_never_changes() {
        // Values published with the algorithm.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        let home = PathBuf::from("/no/such/home-of-warren");
        let directories = Directories { run: home.join("run"), home };
        assert_eq!(directories.cgroup_parent(), "warren-190300c5c2ac9c1b");
    }
}
