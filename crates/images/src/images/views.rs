//! Descriptions of images.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use serde::Serialize;

use super::{Inner, commit::History};
use crate::{
    config::{ConfigFile, ImageConfig},
    digest::Digest,
    error::{Error, Result},
    platform::Platform,
    reference::Reference,
    store::{self, index::Record, lease::Lease},
    unpack::Warnings,
};

/// An image that is complete on this host. Nothing of it is removed while a value of this type exists.
#[derive(Debug, Clone)]
pub struct Image {
    /// The manifest's digest.
    pub digest: Digest,
    pub names: Vec<Reference>,
    pub platform: Platform,
    pub config: ImageConfig,
    /// Directories to be the lower layers of an overlay, the topmost first. Empty for an image without layers.
    pub lowers: Vec<PathBuf>,
    _lease: Arc<Lease>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageSummary {
    pub digest: Digest,
    pub config_digest: Digest,
    pub names: Vec<Reference>,
    pub os: String,
    pub architecture: String,
    pub n_layers: usize,
    /// On disk, both as it came and unpacked. Layers are shared: the sum over images may be more than what they take.
    pub size_bytes: u64,
    /// As the image says, if it does.
    pub created_at: Option<String>,
    pub added_at: Timestamp,
    pub last_used_at: Timestamp,
    pub used_by: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageDetail {
    pub summary: ImageSummary,
    pub config: ImageConfig,
    /// Lowest first.
    pub layers: Vec<LayerDetail>,
    /// Oldest first. Each step that is not empty made one layer.
    pub history: Vec<History>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerDetail {
    pub diff_id: Digest,
    pub blob: Digest,
    pub media_type: String,
    /// As it came.
    pub blob_bytes: u64,
    /// Unpacked.
    pub disk_bytes: u64,
    /// Warnings about whatever could not be kept as it was.
    pub warnings: Warnings,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DiskUsage {
    pub n_images: usize,
    /// Manifests, configurations, layers as they came.
    pub blob_bytes: u64,
    /// Layers, unpacked.
    pub layer_bytes: u64,
    /// Downloads that are under way or were interrupted.
    pub partial_bytes: u64,
    pub cap_bytes: Option<u64>,
}

/// Finds the directories that [`Image::lowers`] has, for whoever knows an image by its digest alone and that it stays.
pub fn lower_directories(root: &Path, manifest: &Digest) -> Result<Vec<PathBuf>> {
    let index = store::read_index(root)?;
    let missing = || Error::NotFound { what: format!("image {manifest}") };
    let record = index.images.get(manifest).ok_or_else(missing)?;
    let layers = root.join(store::LAYERS);
    lowers(&layers, record, |layer| Ok(store::layer_facts(&layers, layer)?.unpacked.hides_lower))
}

/// The kernel takes no directory twice. Of a layer that comes twice the upper one counts: all that the lower one could
/// add is in it as well.
fn lowers(
    layers: &Path,
    record: &Record,
    mut hides_lower: impl FnMut(&Digest) -> Result<bool>,
) -> Result<Vec<PathBuf>> {
    let mut seen = HashSet::new();
    let mut lowers = Vec::new();
    for layer in record.layers.iter().rev() {
        if !seen.insert(&layer.diff_id) {
            continue;
        }
        let directory = store::layer_path(layers, &layer.diff_id);
        if !directory.is_dir() {
            return Err(Error::NotFound { what: format!("layer {}", layer.diff_id) });
        }
        lowers.push(directory.join(store::LAYER_TREE));
        if hides_lower(&layer.diff_id)? {
            break;
        }
    }
    Ok(lowers)
}

impl Inner {
    /// The image with this manifest, which counts as a use of it.
    pub(super) fn image(&self, manifest: &Digest) -> Result<Image> {
        let record = self.known(manifest)?;
        let lease = self.store.lease_image(manifest, &record);
        // It may have been removed between the two.
        let record = self.known(manifest)?;
        let config = self.config_of(&record)?;
        self.store.touch(manifest);
        Ok(Image {
            digest: manifest.clone(),
            names: record.names.iter().cloned().collect(),
            platform: config.platform(),
            config: config.config(),
            lowers: self.lowers(&record)?,
            _lease: Arc::new(lease),
        })
    }

    pub(super) fn known(&self, manifest: &Digest) -> Result<Record> {
        let record = self.store.index().images.get(manifest).cloned();
        record.ok_or_else(|| Error::NotFound { what: format!("image {manifest}") })
    }

    fn config_of(&self, record: &Record) -> Result<ConfigFile> {
        ConfigFile::parse(&self.store.read_blob(&record.config)?)
    }

    fn lowers(&self, record: &Record) -> Result<Vec<PathBuf>> {
        lowers(self.store.layers(), record, |layer| self.store.hides_lower(layer))
    }

    pub(super) fn summaries(&self) -> Result<Vec<ImageSummary>> {
        let images = self.store.index().images.clone();
        let mut users = self.options.users.of_images().unwrap_or_default();
        let mut summaries = images
            .iter()
            .filter(|(_, record)| !record.is_of_builds())
            .map(|(manifest, record)| {
                self.summary(manifest, record, users.remove(manifest).unwrap_or_default())
            })
            .collect::<Result<Vec<_>>>()?;
        summaries.sort_by(|a, b| a.names.first().cmp(&b.names.first()));
        Ok(summaries)
    }

    fn summary(&self, manifest: &Digest, record: &Record, used_by: Vec<String>) -> Result<ImageSummary> {
        let config = self.config_of(record)?;
        let platform = config.platform();
        let stored: HashSet<&Digest> = record.blobs(manifest).collect();
        let blobs: u64 = stored
            .into_iter()
            .filter_map(|blob| crate::store::files::file_length(&self.store.blob_path(blob)))
            .sum();
        let layers: HashSet<&Digest> = record.layers.iter().map(|layer| &layer.diff_id).collect();
        let layers: u64 = layers.into_iter().map(|diff_id| self.layer_bytes(diff_id)).sum();
        let last_used_at = Timestamp::try_from(self.store.last_used(manifest)).unwrap_or(record.added_at);
        Ok(ImageSummary {
            digest: manifest.clone(),
            config_digest: record.config.clone(),
            names: record.names.iter().cloned().collect(),
            os: platform.os,
            architecture: platform.architecture,
            n_layers: record.layers.len(),
            size_bytes: blobs + layers,
            created_at: config.created,
            added_at: record.added_at,
            last_used_at,
            used_by,
        })
    }

    fn layer_bytes(&self, diff_id: &Digest) -> u64 {
        self.store.layer_facts(diff_id).map_or(0, |facts| facts.unpacked.disk_bytes)
    }

    pub(super) fn detail(&self, name: &str) -> Result<ImageDetail> {
        let manifest = self.store.index().find(name)?;
        let record = self.known(&manifest)?;
        let layers = record.layers.iter().map(|layer| LayerDetail {
            diff_id: layer.diff_id.clone(),
            blob: layer.blob.clone(),
            media_type: layer.media_type.clone(),
            blob_bytes: layer.blob_bytes,
            disk_bytes: self.layer_bytes(&layer.diff_id),
            warnings: self
                .store
                .layer_facts(&layer.diff_id)
                .map_or_else(|_| Warnings::default(), |facts| facts.unpacked.warnings),
        });
        let used_by = self.users_of(&manifest);
        Ok(ImageDetail {
            summary: self.summary(&manifest, &record, used_by)?,
            config: self.config_of(&record)?.config(),
            layers: layers.collect(),
            history: self.config_of(&record)?.history(),
        })
    }

    pub(super) fn disk_usage(&self) -> Result<DiskUsage> {
        let (blob_bytes, layer_bytes, partial_bytes) = self.store.usage()?;
        Ok(DiskUsage {
            n_images: self.store.index().images.len(),
            blob_bytes,
            layer_bytes,
            partial_bytes,
            cap_bytes: self.options.disk_cap,
        })
    }
}
