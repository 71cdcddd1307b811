//! Which images there are: one small file, written anew and whole at every change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    error::{Error, Result},
    reference::Reference,
};

/// Grows when older code could not read what newer code writes.
const VERSION: u32 = 1;

/// Shortest beginning of a digest that names an image.
const MIN_PREFIX: usize = 6;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Index {
    version: u32,
    /// By the digest of the manifest.
    pub(crate) images: BTreeMap<Digest, Record>,
}

impl Default for Index {
    fn default() -> Self {
        Self { version: VERSION, images: BTreeMap::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) names: BTreeSet<Reference>,
    pub(crate) config: Digest,
    /// Lists of builds for several platforms through which it was found.
    #[serde(default)]
    pub(crate) indexes: BTreeSet<Digest>,
    /// Lowest first.
    pub(crate) layers: Vec<LayerRecord>,
    /// The keys of builds that made it: each stands for what it was made from, and how.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) build_keys: BTreeSet<Digest>,
    pub(crate) added_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    pub(crate) diff_id: Digest,
    /// As the manifest has it.
    pub(crate) blob: Digest,
    /// The blob that we have: the same, or one with the same content in another compression.
    pub(crate) stored: Digest,
    pub(crate) media_type: String,
    pub(crate) blob_bytes: u64,
}

impl Index {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let bytes = match fs::read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            bytes => bytes.map_err(Error::io("read", file))?,
        };
        let corrupt = |error: serde_json::Error| {
            Error::corrupt(file.display().to_string(), "an index of images", error.to_string())
        };
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(corrupt)?;
        if version > VERSION {
            return Err(Error::unsupported(format!("{} of version {version}", file.display())));
        }
        serde_json::from_slice(&bytes).map_err(corrupt)
    }

    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self).map_err(|error| Error::invalid(format!("index of images: {error}")))
    }

    /// The image that people call this: a reference, a digest, or the beginning of one.
    pub(crate) fn find(&self, name: &str) -> Result<Digest> {
        self.find_named(name).map(|(manifest, _)| manifest)
    }

    /// The same, with the name by which it was found unless that was by a digest.
    pub(crate) fn find_named(&self, name: &str) -> Result<(Digest, Option<Reference>)> {
        let unknown = || Error::NotFound { what: format!("image {name}") };
        let reference = name.parse::<Reference>();
        // Names before short digests, which strangers can make images for: `facade` may be the beginning of one.
        // `sha256:…` is never a name.
        let named = reference.as_ref().ok().filter(|_| !name.starts_with("sha256:"));
        if let Some((reference, found)) =
            named.and_then(|reference| Some((reference, self.find_reference(reference)?)))
        {
            return Ok((found, Some(reference.clone()).filter(|name| name.digest().is_none())));
        }
        if let Some(found) = self.find_by_digest(name) {
            return Ok((found, None));
        }
        reference.and(Err(unknown()))
    }

    pub(crate) fn find_reference(&self, reference: &Reference) -> Option<Digest> {
        let named = self.images.iter().find(|(_, record)| record.names.contains(reference));
        let wanted = reference.digest();
        named
            .or_else(|| {
                self.images.iter().find(|(manifest, record)| {
                    let is_it = |digest: &Digest| *manifest == digest || record.indexes.contains(digest);
                    wanted.is_some_and(is_it)
                        && record.names.iter().any(|name| same_repository(name, reference))
                })
            })
            .map(|(digest, _)| digest.clone())
    }

    fn find_by_digest(&self, name: &str) -> Option<Digest> {
        let hex = name.strip_prefix("sha256:").unwrap_or(name);
        if hex.len() < MIN_PREFIX || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let mut found = self.images.iter().filter(|(manifest, record)| {
            manifest.hex().starts_with(hex)
                || record.config.hex().starts_with(hex)
                || record.indexes.iter().any(|index| index.hex() == hex)
        });
        // More than one is none: nobody should remove the wrong image for a short name.
        found.next().filter(|_| found.next().is_none()).map(|(digest, _)| digest.clone())
    }

    /// Adds an image without a name; one that is here keeps its names.
    pub(crate) fn add(
        &mut self,
        manifest: Digest,
        config: Digest,
        indexes: BTreeSet<Digest>,
        layers: Vec<LayerRecord>,
    ) {
        let record = self.images.entry(manifest).or_insert_with(|| Record {
            names: BTreeSet::new(),
            config,
            indexes: BTreeSet::new(),
            layers: Vec::new(),
            build_keys: BTreeSet::new(),
            added_at: Timestamp::now(),
        });
        record.indexes.extend(indexes);
        record.layers = layers;
    }

    /// Gives the image this name, and takes it from the one that had it.
    pub(crate) fn name(&mut self, manifest: &Digest, name: &Reference) {
        for record in self.images.values_mut() {
            record.names.remove(name);
        }
        if let Some(record) = self.images.get_mut(manifest) {
            record.names.insert(name.clone());
        }
    }

    /// Takes a name from the image again and gives it to the one that had it before, if that is still here.
    pub(crate) fn unname(&mut self, manifest: &Digest, name: &Reference, before: &Self) {
        let is_taken = self.images.get_mut(manifest).is_some_and(|record| record.names.remove(name));
        // Else somebody has given it to another one meanwhile.
        if !is_taken {
            return;
        }
        let owner = before.images.iter().find(|(_, record)| record.names.contains(name));
        if let Some(record) = owner.and_then(|(owner, _)| self.images.get_mut(owner)) {
            record.names.insert(name.clone());
        }
    }

    /// The image that a build made under this key.
    pub(crate) fn built(&self, key: &Digest) -> Option<Digest> {
        self.images
            .iter()
            .find(|(_, record)| record.build_keys.contains(key))
            .map(|(digest, _)| digest.clone())
    }

    /// A blob that holds the layer, whatever image it came with.
    pub(crate) fn stored_blob(&self, diff_id: &Digest) -> Option<Digest> {
        let mut layers = self.images.values().flat_map(|record| &record.layers);
        layers.find(|layer| layer.diff_id == *diff_id).map(|layer| layer.stored.clone())
    }
}

impl Record {
    /// Has neither a name nor a key of a build.
    pub(crate) fn is_nameless(&self) -> bool {
        self.names.is_empty() && self.build_keys.is_empty()
    }

    /// Kept for builds to come, and nothing else.
    pub(crate) fn is_of_builds(&self) -> bool {
        self.names.is_empty() && !self.build_keys.is_empty()
    }

    /// Everything in `blobs/` that belongs to the image.
    pub(crate) fn blobs<'a>(&'a self, manifest: &'a Digest) -> impl Iterator<Item = &'a Digest> {
        [manifest, &self.config]
            .into_iter()
            .chain(&self.indexes)
            .chain(self.layers.iter().map(|layer| &layer.stored))
    }
}

fn same_repository(a: &Reference, b: &Reference) -> bool {
    a.registry() == b.registry() && a.repository() == b.repository()
}
