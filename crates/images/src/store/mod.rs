//! Images on disk.
//!
//! ```text
//! images/index.json             which images there are, and their names
//! images/blobs/sha256/<hex>     manifests, configurations, layers as they came
//! images/partial/<hex>          a download, gone on with by the next pull of that blob
//! images/partial/…              half-made: archives being loaded, files being written
//! layers/sha256-<hex>/fs        a layer, unpacked; the name is the digest of its uncompressed archive
//! layers/sha256-<hex>/layer.json
//! layers/.unpacking-<random>    half-made
//! layers/.removed-<random>      half-gone
//! ```
//!
//! Whatever has a name without a dot in front is whole: it was made under another name, synced and renamed. What the
//! index does not name, directly or through an image, is garbage as soon as nobody in this process works with it. So a
//! crash at any point leaves either what was, or what should be, and some garbage, which the next opening takes away.

mod collect;
pub(crate) mod files;
pub(crate) mod index;
pub(crate) mod lease;

use std::{
    collections::HashMap,
    fs::{self, File, FileTimes},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};

pub use self::collect::Freed;
use self::{
    files::{publish, publish_bytes, scratch_name},
    index::{Index, Record},
    lease::{Lease, Leases, Thing},
};
use crate::{
    digest::Digest,
    error::{Error, Result},
    options::{Options, Users},
    unpack::{UnpackOptions, Unpacked, Unpacker},
};

const UNPACKING: &str = ".unpacking-";
const REMOVED: &str = ".removed-";
const LAYER_PREFIX: &str = "sha256-";
/// The directory of a layer that can be the lower layer of an overlay.
pub(crate) const LAYER_TREE: &str = "fs";
const LAYER_FILE: &str = "layer.json";
const INDEX_FILE: &str = "index.json";
/// Below the root, as all layers are.
pub(crate) const LAYERS: &str = "layers";
/// Most layers of which is remembered what they hide.
const MAX_KNOWN_LAYERS: usize = 4096;

/// The blocking half of [`Images`](crate::Images): every method may wait for the disk.
#[derive(Debug)]
pub(crate) struct Store {
    images: PathBuf,
    blobs: PathBuf,
    partial: PathBuf,
    layers: PathBuf,
    unpacker: Arc<dyn Unpacker>,
    users: Arc<dyn Users>,
    durable: bool,
    index: Mutex<Index>,
    leases: Arc<Leases>,
    /// By layer; it never changes, and every use of an image asks for all of its layers.
    hides_lower: Mutex<HashMap<Digest, bool>>,
}

/// The facts known about an unpacked layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LayerFacts {
    pub(crate) unpacked: Unpacked,
}

pub(crate) fn read_index(root: &Path) -> Result<Index> {
    Index::read(&root.join("images").join(INDEX_FILE))
}

pub(crate) fn layer_path(layers: &Path, diff_id: &Digest) -> PathBuf {
    layers.join(format!("{LAYER_PREFIX}{}", diff_id.hex()))
}

pub(crate) fn layer_facts(layers: &Path, diff_id: &Digest) -> Result<LayerFacts> {
    let file = layer_path(layers, diff_id).join(LAYER_FILE);
    let bytes = fs::read(&file).map_err(Error::io("read", &file))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::corrupt(file.display().to_string(), "facts of a layer", error.to_string()))
}

impl Store {
    /// Opens or makes a store, and takes away what a crash left in it.
    pub(crate) fn open(root: &Path, options: &Options) -> Result<Self> {
        let images = root.join("images");
        let store = Self {
            blobs: images.join("blobs/sha256"),
            partial: images.join("partial"),
            layers: root.join(LAYERS),
            images,
            unpacker: Arc::clone(&options.unpacker),
            users: Arc::clone(&options.users),
            durable: options.durable,
            index: Mutex::default(),
            leases: Arc::default(),
            hides_lower: Mutex::default(),
        };
        for directory in [&store.blobs, &store.partial, &store.layers] {
            fs::create_dir_all(directory).map_err(Error::io("make", directory))?;
        }
        *store.index() = read_index(root)?;
        store.sweep()?;
        Ok(store)
    }

    /// Poisoning is no reason to stop: what is in memory is what was written last, whole.
    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the index on disk, then in memory. Nothing changes when `change` or the disk fails.
    pub(crate) fn change_index<T>(&self, change: impl FnOnce(&mut Index) -> Result<T>) -> Result<T> {
        let mut index = self.index();
        let mut changed = index.clone();
        let result = change(&mut changed)?;
        publish_bytes(&self.partial, &self.images, INDEX_FILE, &changed.to_bytes()?)?;
        *index = changed;
        Ok(result)
    }

    /// Keeps `things` from being collected. What was there when this returns stays there.
    pub(crate) fn lease(&self, things: Vec<Thing>) -> Lease {
        // Collection holds the index while it decides and removes.
        let _index = self.index();
        Lease::new(&self.leases, things)
    }

    pub(crate) fn lease_image(&self, manifest: &Digest, record: &Record) -> Lease {
        let layers = record.layers.iter().map(|layer| Thing::Layer(layer.diff_id.clone()));
        let things = record.blobs(manifest).cloned().map(Thing::Blob);
        self.lease(things.chain(layers).chain([Thing::Image(manifest.clone())]).collect())
    }

    pub(crate) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.blobs.join(digest.hex())
    }

    pub(crate) fn has_blob(&self, digest: &Digest) -> bool {
        self.blob_path(digest).is_file()
    }

    pub(crate) fn open_blob(&self, digest: &Digest) -> Result<File> {
        let path = self.blob_path(digest);
        File::open(&path).map_err(Error::io("open", path))
    }

    pub(crate) fn read_blob(&self, digest: &Digest) -> Result<Vec<u8>> {
        let path = self.blob_path(digest);
        fs::read(&path).map_err(Error::io("read", path))
    }

    /// Keeps a manifest or a configuration.
    pub(crate) fn put_document(&self, digest: &Digest, bytes: &[u8]) -> Result<()> {
        if self.has_blob(digest) {
            return Ok(());
        }
        publish_bytes(&self.partial, &self.blobs, digest.hex(), bytes)
    }

    /// Where the download of a blob is kept until it is whole.
    pub(crate) fn partial_blob(&self, digest: &Digest) -> PathBuf {
        self.partial.join(digest.hex())
    }

    pub(crate) fn scratch_file(&self) -> Result<(File, PathBuf)> {
        let path = self.partial.join(scratch_name("scratch-"));
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        Ok((file.map_err(Error::io("make", &path))?, path))
    }

    /// Turns a file whose digest was verified into a blob.
    pub(crate) fn adopt_blob(&self, digest: &Digest, half_made: &Path) -> Result<()> {
        File::open(half_made).and_then(|file| file.sync_all()).map_err(Error::io("sync", half_made))?;
        publish(half_made, &self.blob_path(digest))
    }

    pub(crate) fn layers(&self) -> &Path {
        &self.layers
    }

    pub(crate) fn has_layer(&self, diff_id: &Digest) -> bool {
        layer_path(&self.layers, diff_id).is_dir()
    }

    pub(crate) fn layer_facts(&self, diff_id: &Digest) -> Result<LayerFacts> {
        layer_facts(&self.layers, diff_id)
    }

    /// Whether nothing of the layers beneath is seen through it.
    pub(crate) fn hides_lower(&self, diff_id: &Digest) -> Result<bool> {
        if let Some(hides) = self.known_layers().get(diff_id) {
            return Ok(*hides);
        }
        let hides = self.layer_facts(diff_id)?.unpacked.hides_lower;
        let mut known = self.known_layers();
        if known.len() >= MAX_KNOWN_LAYERS {
            known.clear();
        }
        known.insert(diff_id.clone(), hides);
        Ok(hides)
    }

    fn known_layers(&self) -> MutexGuard<'_, HashMap<Digest, bool>> {
        self.hides_lower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unpacks a blob as the layer `expected`, or as whatever it turns out to be.
    pub(crate) fn unpack(
        &self,
        blob: File,
        expected: Option<&Digest>,
        options: &UnpackOptions,
    ) -> Result<Unpacked> {
        let half_made = self.layers.join(scratch_name(UNPACKING));
        let unpacked = self.unpack_into(&half_made, blob, expected, options);
        if unpacked.is_err() {
            self.remove_tree(&half_made);
        }
        unpacked
    }

    fn unpack_into(
        &self,
        half_made: &Path,
        blob: File,
        expected: Option<&Digest>,
        options: &UnpackOptions,
    ) -> Result<Unpacked> {
        let tree = half_made.join(LAYER_TREE);
        fs::create_dir_all(&tree).map_err(Error::io("make", &tree))?;
        let unpacked = self.unpacker.unpack(blob, &tree, options)?;
        if let Some(expected) = expected {
            expected.expect(&unpacked.diff_id, "the unpacked layer")?;
        }
        let facts = LayerFacts { unpacked: unpacked.clone() };
        let facts = serde_json::to_vec(&facts).map_err(|error| Error::invalid(error.to_string()))?;
        publish_bytes(half_made, half_made, LAYER_FILE, &facts)?;
        if self.durable {
            let open = File::open(half_made).map_err(Error::io("open", half_made))?;
            rustix::fs::syncfs(open).map_err(|errno| Error::io("sync", half_made)(errno.into()))?;
        }
        let _index = self.index();
        let layer = layer_path(&self.layers, &unpacked.diff_id);
        if layer.exists() {
            // Somebody else was quicker; theirs is in use, and the same.
            self.remove_tree(half_made);
            return Ok(unpacked);
        }
        publish(half_made, &layer)?;
        Ok(unpacked)
    }

    fn remove_tree(&self, directory: &Path) {
        match self.unpacker.remove(directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(directory = %directory.display(), %error, "could not remove a layer; the next start tries again");
            }
            _ => {}
        }
    }

    /// Remembers that the image was used now: the time of its manifest's file says when.
    pub(crate) fn touch(&self, manifest: &Digest) {
        let now = FileTimes::new().set_modified(SystemTime::now());
        // Not worth failing for: at worst it is collected a little early.
        let _untouched = self.open_blob(manifest).map(|file| file.set_times(now));
    }

    pub(crate) fn last_used(&self, manifest: &Digest) -> SystemTime {
        let modified = fs::metadata(self.blob_path(manifest)).and_then(|metadata| metadata.modified());
        modified.unwrap_or(SystemTime::UNIX_EPOCH)
    }
}
