//! Images on the wire.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Sandbox;
use crate::images::{ImageConfig, Password};

/// One image on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Of its manifest.
    pub digest: String,
    /// In full. Empty once they were taken away while something uses the image.
    pub references: Vec<String>,
    pub os: String,
    pub architecture: String,
    pub layer_count: usize,
    /// Size on disk, packed and unpacked. Layers are shared: the sum over images may be more than they take.
    pub size_bytes: u64,
    /// As the image says, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    pub added_at: Timestamp,
    pub last_used_at: Timestamp,
    /// Sandboxes and snapshots that need it; only for callers of every namespace.
    pub used_by: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageList {
    /// By their first name.
    pub images: Vec<Image>,
}

/// All about one image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageDetail {
    #[serde(flatten)]
    pub image: Image,
    pub config_digest: String,
    pub config: ImageConfig,
    /// Lowest first.
    pub layers: Vec<ImageLayer>,
    /// Oldest first. Each step that is not empty made one layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ImageStep>,
}

/// One step of how the image came about, as the image says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageStep {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// It changed no files.
    #[serde(default)]
    pub empty: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageLayer {
    /// Of the layer, uncompressed.
    pub diff_id: String,
    /// As it came.
    pub blob: String,
    pub media_type: String,
    pub blob_bytes: u64,
    /// Unpacked.
    pub disk_bytes: u64,
    /// The first warnings about parts of it that could not be kept unchanged, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The image to pull, and options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullRequest {
    #[schema(example = "python:3.12-slim")]
    pub reference: String,
    /// Default: this machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "linux/amd64")]
    pub platform: Option<String>,
    /// With `password`, instead of the daemon's own credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Password>,
    /// Without TLS; for callers of every namespace.
    #[serde(default)]
    pub insecure: bool,
}

/// The target of a push, and its options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PushRequest {
    /// The name there; default: the image's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// With `password`, instead of the daemon's own credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Password>,
    /// Without TLS.
    #[serde(default)]
    pub insecure: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pushed {
    /// In full.
    pub reference: String,
    /// Of the manifest in the registry.
    pub digest: String,
}

/// A user of a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginRequest {
    #[schema(example = "registry.example")]
    pub registry: String,
    pub username: String,
    pub password: Password,
    /// Without TLS.
    #[serde(default)]
    pub insecure: bool,
}

/// Events of a pull, one per line. If a layer changes its state several times between two lines, only the last is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PullEvent {
    /// The layers of the image are known.
    Resolved { digest: String, layers: Vec<PullLayer> },
    Layer {
        /// As in `resolved`.
        digest: String,
        state: PullState,
        /// Downloaded so far, of `total`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
    },
    /// The registry is asked again after a wait.
    Retrying { wait_ms: u64, why: String },
    /// Comes last: the image is here.
    Done { image: Box<ImageDetail> },
    /// Comes last if a sandbox was requested.
    Created { sandbox: Box<Sandbox> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullLayer {
    pub digest: String,
    /// As it is downloaded.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum PullState {
    /// Here already; nothing is downloaded.
    Present,
    /// Another pull is getting it, or others are before it.
    Waiting,
    Downloading,
    Unpacking,
    Done,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LoadQuery {
    /// Platform to load from a layout with several. Default: this machine's.
    pub platform: Option<String>,
}

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ImportQuery {
    /// Name of the image.
    pub reference: String,
    pub platform: Option<String>,
    /// An `ImageConfig`, as JSON.
    pub config: Option<String>,
}

/// The format of archives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArchiveFormat {
    /// What `docker save` writes and `docker load` reads.
    #[default]
    Docker,
    /// An OCI layout.
    Oci,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TagRequest {
    /// The new name; if another image has it, the name moves.
    pub target: String,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveImageQuery {
    /// Remove it even if it is in use; it is deleted with its last user.
    #[serde(default)]
    pub force: bool,
}

/// The freed space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagesFreed {
    /// Names that were taken away.
    pub references: Vec<String>,
    /// Images that are gone, by digest.
    pub images: Vec<String>,
    pub layers: u64,
    pub bytes: u64,
}

/// Disk usage of images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagesUsage {
    pub images: usize,
    /// Manifests, configurations, layers as they came.
    pub blob_bytes: u64,
    /// Layers, unpacked.
    pub layer_bytes: u64,
    /// Downloads that are going on or were broken off.
    pub partial_bytes: u64,
    /// Most that they may take; the least recently used go first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_bytes: Option<u64>,
}
