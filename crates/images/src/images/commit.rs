//! Images that are made here, one layer at a time: what builds keep and find again.
//!
//! An image that a build made on its way has no name but a *build key*, which says what it was made from and how. It is
//! kept like any other image that nobody uses, so the cache of builds has no index of its own that could be wrong: what
//! is collected is forgotten with its key.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use flate2::{Compression as Level, write::GzEncoder};
use serde::{Deserialize, Serialize};

use super::{Image, Images, Inner, Ready, layers::record};
use crate::{
    compression::Compression,
    config::ImageConfig,
    digest::{Digest, HashingWriter},
    error::{Error, Result},
    manifest::{self, Content},
    platform::Platform,
    reference::Reference,
    store::{index::LayerRecord, lease::Thing},
};

/// Most images without a name that are kept for builds; the least recently used go first.
const MAX_BUILD_IMAGES: usize = 1000;
/// Most entries of a history that are kept of an image which strangers made.
const MAX_HISTORY: usize = 1000;

/// One step that made an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The step changed the configuration only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub empty_layer: bool,
}

/// Where an image comes from, and when its last layer was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    pub created: Option<String>,
    pub history: Vec<History>,
}

/// The parts of an image besides its layers.
#[derive(Debug, Clone)]
pub struct Commit {
    pub config: ImageConfig,
    pub platform: Platform,
    pub origin: Origin,
    pub names: Vec<Reference>,
    /// The key by which [`Images::built`] finds it.
    pub build_key: Option<Digest>,
}

#[derive(Deserialize)]
struct OriginFile {
    created: Option<String>,
    history: Option<Vec<History>>,
}

impl Images {
    /// Makes an image of the layers of `base`, or of none, and one more on top: an uncompressed tar as OCI has it. The
    /// same input gives the same image. A failure leaves nothing behind.
    #[crate::boxed]
    pub async fn commit(
        &self,
        base: Option<&Image>,
        layer: Option<Box<dyn Read + Send>>,
        commit: Commit,
    ) -> Result<Image> {
        let base = base.cloned();
        self.blocking(move |inner| {
            let image = inner.commit(base.as_ref(), layer, commit);
            drop(base);
            image
        })
        .await
    }

    /// The image that was made under this key, if it is still here; this counts as a use of it.
    #[crate::boxed]
    pub async fn built(&self, key: &Digest) -> Result<Option<Image>> {
        let key = key.clone();
        self.blocking(move |inner| {
            let found = inner.store.index().built(&key);
            match found.map(|manifest| inner.image(&manifest)).transpose() {
                // It was removed between the two.
                Err(Error::NotFound { .. }) => Ok(None),
                image => image,
            }
        })
        .await
    }

    /// Returns the origin of an image, whose writer may have said nothing, or nonsense.
    #[crate::boxed]
    pub async fn origin(&self, image: &Image) -> Result<Origin> {
        let image = image.clone();
        self.blocking(move |inner| {
            let record = inner.known(&image.digest)?;
            let bytes = inner.store.read_blob(&record.config)?;
            let Ok(file) = serde_json::from_slice::<OriginFile>(&bytes) else { return Ok(Origin::default()) };
            let mut history = file.history.unwrap_or_default();
            history.truncate(MAX_HISTORY);
            Ok(Origin { created: file.created, history })
        })
        .await
    }
}

impl Inner {
    fn commit(
        &self,
        base: Option<&Image>,
        layer: Option<Box<dyn Read + Send>>,
        commit: Commit,
    ) -> Result<Image> {
        let mut layers = match base {
            Some(base) => self.known(&base.digest)?.layers,
            None => Vec::new(),
        };
        let mut held = None;
        if let Some(layer) = layer {
            if layers.len() >= self.options.limits.max_layers {
                return Err(Error::TooLarge {
                    what: "the number of layers".to_owned(),
                    limit: "max_layers".into(),
                    most: self.options.limits.max_layers as u64,
                });
            }
            let (new, lease) = self.take_layer(layer)?;
            layers.push(new);
            held = Some(lease);
        }
        let diff_ids: Vec<Digest> = layers.iter().map(|layer| layer.diff_id.clone()).collect();
        let config = commit.config.to_file(&commit.platform, &diff_ids, &commit.origin)?;
        let contents: Vec<Content> = layers.iter().map(content).collect();
        let manifest = manifest::build(&manifest::config_content(&config), &contents)?;
        let ready = Ready {
            manifest: Digest::of(&manifest),
            config: Digest::of(&config),
            indexes: BTreeSet::new(),
            layers,
        };
        let things = ready
            .layers
            .iter()
            .flat_map(|layer| [Thing::Blob(layer.stored.clone()), Thing::Layer(layer.diff_id.clone())]);
        let documents = [&ready.manifest, &ready.config].map(|digest| Thing::Blob(digest.clone()));
        let lease = self.store.lease(things.chain(documents).collect());
        self.store.put_document(&ready.manifest, &manifest)?;
        self.store.put_document(&ready.config, &config)?;
        let image = self.record(ready, &commit.names)?;
        drop((held, lease));
        if let Some(key) = commit.build_key {
            self.keep_built(&image.digest, key)?;
        }
        Ok(image)
    }

    fn take_layer(&self, layer: Box<dyn Read + Send>) -> Result<(LayerRecord, crate::store::lease::Lease)> {
        let (file, path) = self.store.scratch_file()?;
        let taken = self.take_layer_through(layer, file, &path);
        if taken.is_err() {
            let _the_first_error_counts = fs::remove_file(&path);
        }
        taken
    }

    fn take_layer_through(
        &self,
        layer: Box<dyn Read + Send>,
        file: File,
        path: &Path,
    ) -> Result<(LayerRecord, crate::store::lease::Lease)> {
        // Quick rather than small: it is written once and seldom read.
        let mut writer = GzEncoder::new(HashingWriter::new(file), Level::fast());
        let most = self.options.limits.max_layer_bytes;
        let copied = io::copy(&mut layer.take(most + 1), &mut writer).map_err(Error::io("write", path))?;
        if copied > most {
            let what = "the new layer".to_owned();
            return Err(Error::TooLarge { what, limit: "max_layer_bytes".into(), most });
        }
        let written = writer.finish().map_err(Error::io("write", path))?;
        let bytes = written.hasher.bytes();
        let digest = written.hasher.finish();
        let (diff_id, lease) = self.unpack_held(path, &digest)?;
        self.store.adopt_blob(&digest, path)?;
        let content = manifest::layer_content(digest.clone(), bytes, Compression::Gzip);
        Ok((record(&content, &diff_id, digest), lease))
    }

    /// Gives the image its key, and takes away what is too much.
    fn keep_built(&self, manifest: &Digest, key: Digest) -> Result<()> {
        let is_full = self.store.change_index(|index| {
            for record in index.images.values_mut() {
                record.build_keys.remove(&key);
            }
            if let Some(record) = index.images.get_mut(manifest) {
                record.build_keys.insert(key);
            }
            Ok(index.images.values().filter(|record| record.is_of_builds()).count() > MAX_BUILD_IMAGES)
        })?;
        if !is_full {
            return Ok(());
        }
        self.store.change_index(|index| {
            let of_builds = index.images.iter().filter(|(_, record)| record.is_of_builds());
            let oldest =
                of_builds.map(|(digest, _)| digest).min_by_key(|digest| self.store.last_used(digest));
            if let Some(oldest) = oldest.cloned()
                && let Some(record) = index.images.get_mut(&oldest)
            {
                record.build_keys.clear();
            }
            Ok(())
        })?;
        self.store.collect().map(drop)
    }
}

/// As the manifest has it.
fn content(layer: &LayerRecord) -> Content {
    Content { digest: layer.blob.clone(), size: layer.blob_bytes, media_type: layer.media_type.clone() }
}
