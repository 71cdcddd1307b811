//! Mounts besides the root file system: as requested, and as decided.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{ByteSize, Error, Result, VolumeId, VolumeName};

/// Most mounts of one sandbox: each is a descriptor in one message to the spawner.
pub const MAX_MOUNTS: usize = 64;
const MAX_PATH_BYTES: usize = 4095;
/// Kernel file systems of the sandbox: nothing may be mounted on or below them.
const KERNEL_PLACES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// One mount, as it was asked. Devices and set-user-id programs never work on one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MountSpec {
    /// Mount point inside: an absolute path. Missing parents are created.
    pub guest_path: String,
    #[serde(flatten)]
    pub source: MountSource,
    #[serde(default)]
    pub readonly: bool,
    #[serde(default)]
    pub noexec: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase", rename_all_fields = "camelCase", tag = "kind")]
pub enum MountSource {
    /// A directory or a file of the host: for the daemon's owner, and for those whom the policy lets use it.
    // `allowed`: what the policy of a front end has seen there and lets callers use who do not own the daemon. Never
    // read from a caller's text.
    Bind {
        #[schema(rename = "hostPath", value_type = String)]
        host_path: PathBuf,
        /// Refuse the path if a link is on it, now or at a later start.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[schema(rename = "noLinks")]
        no_links: bool,
        #[serde(skip)]
        allowed: Option<FileIdentity>,
    },
    /// A volume of the sandbox's namespace.
    Named { name: VolumeName },
    /// Memory, gone when the sandbox stops.
    Tmpfs {
        /// Bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<ByteSize>,
    },
    /// An ext4 file system in a file of the host, as `bind`.
    Disk {
        #[schema(rename = "hostPath", value_type = String)]
        host_path: PathBuf,
        #[serde(skip)]
        allowed: Option<FileIdentity>,
    },
}

/// One mount, as decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "StoredMount")]
pub struct MountPlan {
    /// Absolute and without `.` or `..`; links inside may still lead elsewhere inside.
    pub guest_path: String,
    pub source: MountOrigin,
    pub readonly: bool,
    pub noexec: bool,
    /// Most bytes it may hold, if the back end has to enforce that by measuring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<ByteSize>,
}

/// A [`MountPlan`] as stored: records of earlier versions have a volume's path as the source, and its id next to it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMount {
    guest_path: String,
    source: MountOrigin,
    readonly: bool,
    noexec: bool,
    quota: Option<ByteSize>,
    volume: Option<VolumeId>,
}

impl From<StoredMount> for MountPlan {
    fn from(stored: StoredMount) -> Self {
        let StoredMount { guest_path, source, readonly, noexec, quota, volume } = stored;
        let source = volume.map_or(source, |id| MountOrigin::Volume { id });
        Self { guest_path, source, readonly, noexec, quota }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum MountOrigin {
    Volume {
        id: VolumeId,
    },
    /// A directory or a file of the host. `identity`: what the opened path must turn out to be, so that nobody can swap
    /// it after it was allowed.
    Path {
        path: PathBuf,
        identity: Option<FileIdentity>,
    },
    /// An ext4 file system in a host file, shared by every sandbox that uses it.
    Image {
        path: PathBuf,
        identity: Option<FileIdentity>,
    },
    Tmpfs {
        size: ByteSize,
    },
}

/// Identifies a file regardless of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

/// `path` without redundant slashes, if something may be mounted there.
pub fn check_guest_path(path: &str) -> Result<String> {
    let refuse = |why: &str| {
        let shown: String = path.chars().take(80).collect();
        Err(Error::invalid(format!("nothing can be mounted at {shown:?}: {why}"))
            .with_hint("Give an absolute path such as /data."))
    };
    if !path.starts_with('/') || path.len() > MAX_PATH_BYTES || path.contains(char::is_control) {
        return refuse("it is not an absolute path");
    }
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return refuse("it is the root");
    }
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return refuse("it contains . or ..");
    }
    if KERNEL_PLACES.iter().any(|place| parts[0] == &place[1..]) {
        return refuse("/proc, /sys and /dev belong to the sandbox");
    }
    Ok(format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_in_a_record_of_an_earlier_version_is_found_by_its_id() {
        let text = r#"{"guestPath":"/data","source":{"type":"path","path":"/h/volumes/vol-0000000000000/data","identity":null},
            "readonly":false,"noexec":true,"volume":"vol-0000000000000"}"#;
        let mount: MountPlan = serde_json::from_str(text).unwrap();
        let id: VolumeId = "vol-0000000000000".parse().unwrap();
        assert_eq!((mount.source.clone(), mount.noexec), (MountOrigin::Volume { id }, true));
        let again = serde_json::to_string(&mount).unwrap();
        assert_eq!(serde_json::from_str::<MountPlan>(&again).unwrap(), mount);
    }

    #[test]
    fn only_places_of_the_workload_can_be_mounted_on() {
        assert_eq!(check_guest_path("//data//x/").unwrap(), "/data/x");
        for path in ["", "/", "data", "/a/../b", "/./a", "/proc", "/proc/self", "/dev/shm", "/sys/x", "/a\0b"]
        {
            assert!(check_guest_path(path).is_err(), "{path:?}");
        }
        check_guest_path("/devices").unwrap();
    }

    #[test]
    fn a_mount_reads_as_callers_write_it() {
        let text = r#"{"kind":"named","guestPath":"/data","name":"models","readonly":true}"#;
        let mount: MountSpec = serde_json::from_str(text).unwrap();
        assert!(mount.readonly && !mount.noexec);
        assert_eq!(mount.source, MountSource::Named { name: "models".parse().unwrap() });
        // A caller who could write `allowed` would set their own policy.
        let text = r#"{"kind":"bind","guestPath":"/x","hostPath":"/etc","allowed":{"device":1,"inode":2}}"#;
        let mount: MountSpec = serde_json::from_str(text).unwrap();
        assert_eq!(
            mount.source,
            MountSource::Bind { host_path: "/etc".into(), no_links: false, allowed: None }
        );
    }
}
