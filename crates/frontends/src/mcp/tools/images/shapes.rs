//! Images as callers see them: the shapes of microsandbox, and some facts more.

use std::collections::BTreeMap;

use engine::{Freed, ImageConfig, ImageDetail, ImageSummary, LayerDetail};
use schemars::JsonSchema;
use serde::Serialize;

use crate::mcp::Nullable;

/// The most warnings given about an image's files that could not be kept as they were.
const MAX_WARNINGS: usize = 8;

/// Returns sentences about what was left out when the image was unpacked.
pub(super) fn warnings(detail: &ImageDetail) -> Vec<String> {
    let all = || detail.layers.iter().map(|layer| &layer.warnings);
    let n_all: u64 = all().map(|warnings| warnings.texts.len() as u64 + warnings.more).sum();
    let mut told: Vec<String> =
        all().flat_map(|warnings| &warnings.texts).take(MAX_WARNINGS).cloned().collect();
    if n_all > told.len() as u64 {
        told.push(format!("{} more of the kind.", n_all - told.len() as u64));
    }
    told
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageHandle {
    /// In full; the digest of an image that has lost its names.
    pub(super) reference: String,
    /// On disk, as it came and unpacked. Layers are shared between images.
    size_bytes: u64,
    manifest_digest: String,
    architecture: String,
    os: String,
    layer_count: usize,
    last_used_at: String,
    /// When it came here.
    created_at: String,
    /// Sandboxes and snapshots
    used_by: Vec<String>,
}

impl ImageHandle {
    /// By each of its names.
    pub(super) fn all(summary: &ImageSummary) -> Vec<Self> {
        if summary.names.is_empty() {
            return vec![Self::named(summary, summary.digest.to_string())];
        }
        summary.names.iter().map(|name| Self::named(summary, name.to_string())).collect()
    }

    /// By the name it was asked for, where that is one of its own.
    pub(super) fn asked(summary: &ImageSummary, asked: &str) -> Self {
        let asked = asked.parse::<engine::Reference>().ok().filter(|asked| summary.names.contains(asked));
        let name = asked.as_ref().or(summary.names.first());
        Self::named(summary, name.map_or_else(|| summary.digest.to_string(), ToString::to_string))
    }

    fn named(summary: &ImageSummary, reference: String) -> Self {
        Self {
            reference,
            size_bytes: summary.size_bytes,
            manifest_digest: summary.digest.to_string(),
            architecture: summary.architecture.clone(),
            os: summary.os.clone(),
            layer_count: summary.n_layers,
            last_used_at: summary.last_used_at.to_string(),
            created_at: summary.added_at.to_string(),
            used_by: summary.used_by.clone(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Detail {
    handle: ImageHandle,
    /// All its names.
    references: Vec<String>,
    config: Config,
    /// Lowest first.
    layers: Vec<Layer>,
}

impl Detail {
    pub(super) fn of(detail: ImageDetail, asked: &str) -> Self {
        let ImageDetail { summary, config, layers, history: _ } = detail;
        Self {
            handle: ImageHandle::asked(&summary, asked),
            references: summary.names.iter().map(ToString::to_string).collect(),
            config: Config::of(summary.config_digest.to_string(), config),
            layers: layers
                .into_iter()
                .enumerate()
                .map(|(position, layer)| Layer::of(position, &layer))
                .collect(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Config {
    digest: String,
    env: Vec<String>,
    cmd: Nullable<Vec<String>>,
    entrypoint: Nullable<Vec<String>>,
    working_dir: Nullable<String>,
    user: Nullable<String>,
    labels: BTreeMap<String, String>,
    stop_signal: Nullable<String>,
    exposed_ports: Vec<String>,
}

impl Config {
    fn of(digest: String, config: ImageConfig) -> Self {
        let some = |words: Vec<String>| Nullable((!words.is_empty()).then_some(words));
        Self {
            digest,
            env: config.env,
            cmd: some(config.cmd),
            entrypoint: some(config.entrypoint),
            working_dir: Nullable(config.working_dir),
            user: Nullable(config.user),
            labels: config.labels,
            stop_signal: Nullable(config.stop_signal),
            exposed_ports: config.exposed_ports,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Layer {
    diff_id: String,
    blob_digest: String,
    media_type: String,
    compressed_size_bytes: u64,
    /// Always null: layers are directories here, not images of a file system.
    erofs_size_bytes: Nullable<u64>,
    /// Unpacked.
    disk_size_bytes: u64,
    position: usize,
}

impl Layer {
    fn of(position: usize, layer: &LayerDetail) -> Self {
        Self {
            diff_id: layer.diff_id.to_string(),
            blob_digest: layer.blob.to_string(),
            media_type: layer.media_type.clone(),
            compressed_size_bytes: layer.blob_bytes,
            erofs_size_bytes: Nullable(None),
            disk_size_bytes: layer.disk_bytes,
            position,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PruneReport {
    image_refs_removed: usize,
    manifests_removed: usize,
    layers_removed: u64,
    /// Always 0, as vmdkRemoved: there are no such files here.
    fsmeta_removed: u64,
    vmdk_removed: u64,
    bytes_reclaimed: u64,
}

impl From<Freed> for PruneReport {
    fn from(freed: Freed) -> Self {
        Self {
            image_refs_removed: freed.names.len(),
            manifests_removed: freed.images.len(),
            layers_removed: freed.n_layers,
            fsmeta_removed: 0,
            vmdk_removed: 0,
            bytes_reclaimed: freed.bytes,
        }
    }
}
