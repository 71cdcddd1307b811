//! Removes whatever nobody needs.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use super::{
    LAYER_PREFIX, REMOVED, Store, UNPACKING,
    files::{self, names, remove_file, scratch_name},
    index::{Index, Record},
    lease::Thing,
};
use crate::{digest::Digest, error::Result, reference::Reference};

/// How long an interrupted download is kept to be resumed.
const BROKEN_OFF_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The result of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Freed {
    pub names: Vec<Reference>,
    /// By the digest of their manifest.
    pub images: Vec<Digest>,
    pub n_layers: u64,
    pub n_blobs: u64,
    pub bytes: u64,
}

impl Store {
    /// Removes what a crash may have left. Nobody works with the store yet, so everything half-made is nobody's.
    pub(super) fn sweep(&self) -> Result<()> {
        for (name, path) in names(&self.partial)? {
            if path.is_dir() {
                self.remove_tree(&path);
            } else if digest_of(&name).is_none() {
                remove_file(&path)?;
            }
            // Downloads are kept to be resumed, unless they are old.
        }
        for (name, path) in names(&self.layers)? {
            if name.starts_with(UNPACKING) || name.starts_with(REMOVED) {
                self.remove_tree(&path);
            }
        }
        let freed = self.collect()?;
        if freed.bytes > 0 {
            tracing::info!(bytes = freed.bytes, "removed what an earlier run left behind");
        }
        Ok(())
    }

    /// Removes what no image needs: images without a name and a user, then blobs and layers without an image.
    pub(crate) fn collect(&self) -> Result<Freed> {
        let mut freed = Freed::default();
        if !self.nameless(&self.index()).is_empty() {
            freed.images = self.change_index(|index| Ok(self.forget_nameless(index)))?;
        }
        let trash = self.unlink_garbage(&mut freed)?;
        for directory in trash {
            self.remove_tree(&directory);
        }
        Ok(freed)
    }

    /// As [`Self::collect`], when there is an image without a name and a user; else only what grows old by itself.
    pub(crate) fn collect_nameless(&self) -> Result<Freed> {
        let has_some = !self.nameless(&self.index()).is_empty();
        if has_some {
            return self.collect();
        }
        let _index = self.index();
        Ok(Freed { bytes: self.drop_old_partial()?, ..Freed::default() })
    }

    fn forget_nameless(&self, index: &mut Index) -> Vec<Digest> {
        let garbage = self.nameless(index);
        for digest in &garbage {
            index.images.remove(digest);
        }
        garbage
    }

    fn nameless(&self, index: &Index) -> Vec<Digest> {
        let nameless = index.images.iter().filter(|(_, record)| record.is_nameless());
        self.unused(nameless.map(|(digest, _)| digest))
    }

    /// Returns those of `images` that nobody holds or uses. Whoever calls has the index, so that nobody begins to hold
    /// one meanwhile.
    fn unused<'a>(&self, images: impl Iterator<Item = &'a Digest>) -> Vec<Digest> {
        let mut unheld: Vec<Digest> =
            images.filter(|digest| !self.leases.holds(&Thing::Image((*digest).clone()))).cloned().collect();
        if !unheld.is_empty() {
            // After the leases: who had one before and let go of it is among the users by now.
            let users = self.users.of_images();
            unheld.retain(|digest| users.as_ref().is_some_and(|users| !users.contains_key(digest)));
        }
        unheld
    }

    /// Takes the names of garbage away while nobody can begin to use it; answers directories still to be emptied.
    fn unlink_garbage(&self, freed: &mut Freed) -> Result<Vec<PathBuf>> {
        let index = self.index();
        let needed = Needed::by(index.images.iter());
        for (name, path) in names(&self.blobs)? {
            if !self.is_blob_needed(&needed, &name) {
                freed.bytes += remove_file(&path)?;
                freed.n_blobs += 1;
            }
        }
        freed.bytes += self.drop_old_partial()?;
        let mut trash = Vec::new();
        for (name, path) in names(&self.layers)? {
            // Others keep things here too; a layer of ours has a digest for its name.
            let Some(diff_id) = name.strip_prefix(LAYER_PREFIX).and_then(digest_of) else { continue };
            if self.is_layer_needed(&needed, &diff_id) {
                continue;
            }
            freed.bytes += self.layer_facts(&diff_id).map_or(0, |facts| facts.unpacked.disk_bytes);
            freed.n_layers += 1;
            let removed = self.layers.join(scratch_name(REMOVED));
            fs::rename(&path, &removed).map_err(crate::Error::io("remove", &path))?;
            trash.push(removed);
        }
        Ok(trash)
    }

    fn is_blob_needed(&self, needed: &Needed<'_>, hex: &str) -> bool {
        needed.blobs.contains(hex)
            || digest_of(hex).is_some_and(|digest| self.leases.holds(&Thing::Blob(digest)))
    }

    fn is_layer_needed(&self, needed: &Needed<'_>, diff_id: &Digest) -> bool {
        needed.layers.contains(diff_id.hex()) || self.leases.holds(&Thing::Layer(diff_id.clone()))
    }

    /// Removes interrupted downloads that nobody is resuming.
    pub(crate) fn drop_partial(&self) -> Result<u64> {
        let _index = self.index();
        self.broken_off()?.iter().map(|(_, path)| remove_file(path)).sum()
    }

    /// The same for those that are too old. The caller holds the index.
    fn drop_old_partial(&self) -> Result<u64> {
        let broken_off = self.broken_off()?;
        broken_off.iter().filter(|(_, path)| is_old(path)).map(|(_, path)| remove_file(path)).sum()
    }

    /// Downloads that nobody is resuming. The caller holds the index, so that nobody begins to meanwhile.
    fn broken_off(&self) -> Result<Vec<(Digest, PathBuf)>> {
        let downloads = names(&self.partial)?.into_iter();
        let downloads = downloads.filter_map(|(name, path)| Some((digest_of(&name)?, path)));
        Ok(downloads.filter(|(digest, _)| !self.leases.holds(&Thing::Blob(digest.clone()))).collect())
    }

    /// Forgets unused images, the least recently used first, while `enough` says no.
    pub(crate) fn evict(&self, mut enough: impl FnMut() -> Result<bool>) -> Result<Freed> {
        let mut freed = Freed::default();
        while !enough()? {
            let Some((victim, names)) = self.forget_least_recently_used()? else { break };
            tracing::info!(image = %victim, "removed the least recently used image");
            freed.names.extend(names);
            freed.images.push(victim);
            freed.add(self.collect()?);
        }
        Ok(freed)
    }

    /// Forgets the least recently used of the images that nobody uses.
    fn forget_least_recently_used(&self) -> Result<Option<(Digest, Vec<Reference>)>> {
        let has_some = !self.unused(self.index().images.keys()).is_empty();
        if !has_some {
            return Ok(None);
        }
        self.change_index(|index| {
            let unused = self.unused(index.images.keys());
            let victim = unused.into_iter().min_by_key(|digest| self.last_used(digest));
            Ok(victim.and_then(|victim| {
                let record = index.images.remove(&victim)?;
                Some((victim, record.names.into_iter().collect()))
            }))
        })
    }

    /// Bytes that stay even if every unused image goes.
    pub(crate) fn bytes_in_use(&self) -> Result<u64> {
        let index = self.index();
        let unused: HashSet<Digest> = self.unused(index.images.keys()).into_iter().collect();
        let needed = Needed::by(index.images.iter().filter(|(digest, _)| !unused.contains(digest)));
        let blobs = names(&self.blobs)?.into_iter().filter(|(name, _)| self.is_blob_needed(&needed, name));
        let blobs: u64 = blobs.filter_map(|(_, path)| files::file_length(&path)).sum();
        let layers = names(&self.layers)?.into_iter();
        let layers = layers.filter_map(|(name, _)| name.strip_prefix(LAYER_PREFIX).and_then(digest_of));
        let layers = layers.filter(|diff_id| self.is_layer_needed(&needed, diff_id));
        let layers: u64 =
            layers.filter_map(|id| self.layer_facts(&id).ok()).map(|facts| facts.unpacked.disk_bytes).sum();
        let broken_off: HashSet<PathBuf> = self.broken_off()?.into_iter().map(|(_, path)| path).collect();
        let partial = names(&self.partial)?.into_iter().filter(|(_, path)| !broken_off.contains(path));
        let partial: u64 = partial.filter_map(|(_, path)| files::file_length(&path)).sum();
        Ok(blobs + layers + partial)
    }

    /// Bytes in blobs, in unpacked layers, and half-made.
    pub(crate) fn usage(&self) -> Result<(u64, u64, u64)> {
        let total = |directory| -> Result<u64> {
            Ok(names(directory)?.iter().filter_map(|(_, path)| files::file_length(path)).sum())
        };
        let mut layers = 0;
        for (name, _) in names(&self.layers)? {
            if let Some(diff_id) = name.strip_prefix(LAYER_PREFIX).and_then(digest_of) {
                layers += self.layer_facts(&diff_id).map_or(0, |facts| facts.unpacked.disk_bytes);
            }
        }
        Ok((total(&self.blobs)?, layers, total(&self.partial)?))
    }
}

/// The files on disk that some images need, by the hexadecimal part of their digests.
struct Needed<'a> {
    blobs: HashSet<&'a str>,
    layers: HashSet<&'a str>,
}

impl<'a> Needed<'a> {
    fn by(images: impl Iterator<Item = (&'a Digest, &'a Record)>) -> Self {
        let mut needed = Self { blobs: HashSet::new(), layers: HashSet::new() };
        for (manifest, record) in images {
            needed.blobs.extend(record.blobs(manifest).map(Digest::hex));
            needed.layers.extend(record.layers.iter().map(|layer| layer.diff_id.hex()));
        }
        needed
    }
}

impl Freed {
    pub(crate) fn add(&mut self, more: Self) {
        self.names.extend(more.names);
        self.images.extend(more.images);
        self.n_layers += more.n_layers;
        self.n_blobs += more.n_blobs;
        self.bytes += more.bytes;
    }
}

/// By a clock that was set back everything is old, which costs a download and nothing else.
fn is_old(download: &Path) -> bool {
    let written = fs::metadata(download).and_then(|metadata| metadata.modified()).ok();
    written.is_none_or(|written| written.elapsed().map_or(true, |age| age > BROKEN_OFF_KEPT))
}

fn digest_of(hex: &str) -> Option<Digest> {
    format!("sha256:{hex}").parse().ok()
}
