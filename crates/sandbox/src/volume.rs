//! Volumes: named files that outlive the sandboxes that mount them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ByteSize, Error, Namespace, Next, Result, VolumeName, plan::check_labels};

/// Below this size a file system has little room for anything but itself.
const MIN_VOLUME: ByteSize = ByteSize::mib(4);
const MAX_VOLUME: ByteSize = ByteSize::gib(4 * 1024);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeKind {
    /// Limited by the host's disk or its own quota.
    #[default]
    Directory,
    /// A file system of a fixed size.
    Disk,
}

/// The request for a new volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeSpec {
    pub name: VolumeName,
    #[serde(default)]
    pub namespace: Namespace,
    #[serde(default)]
    pub kind: VolumeKind,
    /// Required for a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// Most bytes in a directory; absent means no limit but the host's disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<ByteSize>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// How a volume's files are kept on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeStorage {
    /// In a directory. A quota is enforced by measuring.
    Directory,
    /// In an ext4 file system in a file: no write can exceed its size.
    Image,
}

/// Refuses an impossible volume. Pure, like [`crate::plan`].
pub fn check_volume(spec: &VolumeSpec) -> Result<()> {
    check_labels(&spec.labels)?;
    let (what, value) = match (spec.kind, spec.size, spec.quota) {
        (VolumeKind::Directory, None, None) => return Ok(()),
        (VolumeKind::Directory, None, Some(quota)) => ("quota", quota),
        (VolumeKind::Disk, Some(size), None) => ("size", size),
        (VolumeKind::Directory, Some(_), _) => {
            return Err(Error::invalid(format!("volume {} is a directory, which has no size", spec.name))
                .with_next(Next::VolumeQuota));
        }
        (VolumeKind::Disk, _, Some(_)) => {
            return Err(Error::invalid(format!("volume {} is a disk, which has no quota", spec.name))
                .with_next(Next::VolumeSize));
        }
        (VolumeKind::Disk, None, None) => {
            return Err(Error::invalid(format!("volume {} is a disk and has no size", spec.name))
                .with_next(Next::VolumeSize));
        }
    };
    if value < MIN_VOLUME {
        return Err(Error::invalid(format!(
            "the {what} of volume {} is {value}; the minimum is {MIN_VOLUME}",
            spec.name
        ))
        .with_next(match spec.kind {
            VolumeKind::Directory => Next::VolumeQuota,
            VolumeKind::Disk => Next::VolumeSize,
        }));
    }
    if value > MAX_VOLUME {
        return Err(Error::invalid(format!(
            "the {what} of volume {} is {value}; the maximum is {MAX_VOLUME}",
            spec.name
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(kind: VolumeKind, size: Option<u64>, quota: Option<u64>) -> Result<()> {
        check_volume(&VolumeSpec {
            name: "models".parse().unwrap(),
            namespace: Namespace::default(),
            kind,
            size: size.map(ByteSize::mib),
            quota: quota.map(ByteSize::mib),
            labels: BTreeMap::new(),
        })
    }

    #[test]
    fn a_directory_has_a_quota_and_a_disk_a_size() {
        checked(VolumeKind::Directory, None, None).unwrap();
        checked(VolumeKind::Directory, None, Some(4)).unwrap();
        checked(VolumeKind::Disk, Some(4), None).unwrap();
        for (kind, size, quota) in [
            (VolumeKind::Directory, Some(64), None),
            (VolumeKind::Directory, None, Some(3)),
            (VolumeKind::Disk, None, None),
            (VolumeKind::Disk, Some(64), Some(64)),
            (VolumeKind::Disk, Some(1), None),
            (VolumeKind::Disk, Some(u64::MAX >> 20), None),
        ] {
            let error = checked(kind, size, quota).unwrap_err();
            assert!(error.to_string().contains("models"), "{error}");
        }
    }
}
