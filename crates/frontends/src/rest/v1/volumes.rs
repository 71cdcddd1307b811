//! Volumes on the wire.

use std::collections::BTreeMap;

pub use engine::VolumeView as Volume;
use sandbox::{ByteSize, Namespace, VolumeKind, VolumeName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request for a new volume.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeRequest {
    /// Letters, digits, `-`, `_` and `.`, at most 63.
    pub name: VolumeName,
    /// Default: the caller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    #[serde(default)]
    pub kind: VolumeKind,
    /// Bytes of a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// Most bytes in a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<ByteSize>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeList {
    pub volumes: Vec<Volume>,
}
