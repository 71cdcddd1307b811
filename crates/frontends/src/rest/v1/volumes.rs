//! Volumes on the wire.

use std::collections::BTreeMap;

use engine::VolumeView;
use jiff::Timestamp;
use sandbox::{ByteSize, Namespace, SandboxName, VolumeKind, VolumeName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// A request for a new volume.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeRequest {
    /// Letters, digits, `-`, `_` and `.`, at most 63.
    #[schema(value_type = String)]
    pub name: VolumeName,
    /// Default: the caller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    #[serde(default)]
    #[schema(schema_with = schema::volume_kind)]
    pub kind: VolumeKind,
    /// Bytes of a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub size: Option<ByteSize>,
    /// Most bytes in a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub quota: Option<ByteSize>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Named storage that outlives sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    #[schema(value_type = String)]
    pub name: VolumeName,
    #[schema(value_type = String)]
    pub namespace: Namespace,
    #[schema(schema_with = schema::volume_kind)]
    pub kind: VolumeKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub size: Option<ByteSize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub quota: Option<ByteSize>,
    /// Bytes it takes; absent if it was not measured in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub used: Option<ByteSize>,
    /// How its quota is enforced, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_held: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Sandboxes that mount it, running or not.
    #[schema(value_type = Vec<String>)]
    pub used_by: Vec<SandboxName>,
}

impl From<VolumeView> for Volume {
    fn from(view: VolumeView) -> Self {
        Self {
            name: view.name,
            namespace: view.namespace,
            kind: view.kind,
            size: view.size,
            quota: view.quota,
            used: view.used,
            quota_held: view.quota_held,
            labels: view.labels,
            created_at: view.created_at,
            used_by: view.used_by,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeList {
    pub volumes: Vec<Volume>,
}
