//! From archives: what `docker save` writes, OCI layouts, and plain root file systems.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read,
    path::Path,
};

use oci_spec::image::{Descriptor, ImageIndex};
use serde::Deserialize;

use super::{Image, Images, Inner, Ready, layers::record, paired, staged::Members};
use crate::{
    compression::decompressed,
    config::{ConfigFile, ImageConfig},
    digest::Digest,
    error::{Error, Result},
    manifest::{self, Content, Parsed},
    platform::Platform,
    progress::Progress,
    reference::Reference,
    store::lease::{Lease, Thing},
};

const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// The comment in the history of an image that was made from a tar of files.
const IMPORTED: &str = "imported from a tar of files";
const OCI_NAME: &str = "org.opencontainers.image.ref.name";
/// Most images of an archive, and most names: each is kept in the index, which is written whole at every change.
const MAX_ARCHIVE_IMAGES: usize = 1000;
/// Lists of builds within lists of builds are followed this deep.
const MAX_NESTING: usize = 3;

/// The `manifest.json` of an archive by docker.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// An image whose blobs are in the store and whose layers are not unpacked yet.
#[derive(Debug)]
struct Loaded {
    ready: Ready,
    names: Vec<Reference>,
    lease: Lease,
}

impl Images {
    /// Takes in all images of an archive: a tar by `docker save` or of an OCI layout, compressed or not. Images that
    /// bring no name get one on `localhost`. A platform is meant as that of [`PullOptions`](super::PullOptions).
    pub async fn load(
        &self,
        archive: impl Read + Send + 'static,
        platform: impl Into<Option<Platform>>,
    ) -> Result<Vec<Image>> {
        let loaded = self.load_all(Box::new(archive), platform.into()).await;
        self.clear_if_full(loaded).await
    }

    #[crate::boxed]
    async fn load_all(
        &self,
        archive: Box<dyn Read + Send>,
        platform: Option<Platform>,
    ) -> Result<Vec<Image>> {
        let loaded = self.blocking(move |inner| inner.load(archive, platform.as_ref())).await?;
        // All of them before the first is seen: an archive is taken in or it is not.
        for layer in loaded.iter().flat_map(|image| &image.ready.layers) {
            self.unpacked_layer(&layer.stored, &layer.diff_id, &Progress::none()).await?;
        }
        self.blocking(move |inner| {
            let (leases, all): (Vec<_>, Vec<_>) =
                loaded.into_iter().map(|image| (image.lease, (image.ready, image.names))).unzip();
            let recorded = inner.record_all(all);
            drop(leases);
            recorded
        })
        .await
    }

    /// Makes an image of one layer from the tar of a root file system.
    pub async fn import(
        &self,
        root: impl Read + Send + 'static,
        config: ImageConfig,
        platform: Platform,
        name: Reference,
    ) -> Result<Image> {
        name.check_as_name()?;
        let root: Box<dyn Read + Send> = Box::new(root);
        let imported = self.blocking(move |inner| inner.import(root, &config, &platform, name)).await;
        self.clear_if_full(imported).await
    }
}

impl Inner {
    fn load(&self, archive: Box<dyn Read + Send>, platform: Option<&Platform>) -> Result<Vec<Loaded>> {
        let staged = Members::of(self, archive)?;
        // Newer versions of docker write both; the layout has the digests that a registry knows.
        let loaded = if staged.has("index.json") && staged.has("oci-layout") {
            self.load_layout(&staged, platform)?
        } else if staged.has("manifest.json") {
            self.load_docker(&staged, platform)?
        } else {
            return Err(Error::NoImages);
        };
        if loaded.is_empty() {
            return Err(Error::NotFound { what: "an image in the archive".to_owned() });
        }
        Ok(loaded)
    }

    fn load_docker(&self, staged: &Members<'_>, platform: Option<&Platform>) -> Result<Vec<Loaded>> {
        let most = self.options.limits.max_document_bytes;
        let images: Vec<DockerImage> =
            serde_json::from_slice(&staged.read("manifest.json", most)?).map_err(|error| {
                Error::corrupt("manifest.json in the archive", "a list of images", error.to_string())
            })?;
        let n_names = images.iter().filter_map(|image| image.repo_tags.as_ref()).map(Vec::len).sum::<usize>();
        check_count(images.len().max(n_names))?;
        images.iter().map(|image| self.load_docker_image(staged, image, platform)).collect()
    }

    fn load_docker_image(
        &self,
        staged: &Members<'_>,
        image: &DockerImage,
        platform: Option<&Platform>,
    ) -> Result<Loaded> {
        let limits = &self.options.limits;
        if image.layers.len() > limits.max_layers {
            return Err(Error::TooLarge {
                what: "the number of layers".to_owned(),
                limit: "max_layers".into(),
                most: limits.max_layers as u64,
            });
        }
        let config = staged.read(&image.config, limits.max_document_bytes)?;
        ConfigFile::parse(&config)?.expect(platform)?;
        let mut leases = Vec::new();
        let mut layers = Vec::new();
        for name in &image.layers {
            let (compression, _) = decompressed(staged.open(name)?)?;
            // Held from before it is there: others collect meanwhile.
            let held = self.take_held(staged, name, staged.digest(name)?)?;
            layers.push(manifest::layer_content(held.digest, held.bytes, compression));
            leases.push(held.lease);
        }
        let config_content = manifest::config_content(&config);
        let bytes = manifest::build(&config_content, &layers)?;
        let tags = image.repo_tags.iter().flatten();
        let names = tags.map(|tag| tag.parse()).collect::<Result<Vec<Reference>>>()?;
        self.loaded(&bytes, &config, &layers, &[], names, None)
    }

    /// Takes a file of the archive into the store and keeps it there.
    fn take_held(&self, staged: &Members<'_>, name: &str, digest: &Digest) -> Result<HeldBlob> {
        let lease = self.store.lease(vec![Thing::Blob(digest.clone())]);
        let bytes = staged.take(name, digest)?;
        Ok(HeldBlob { digest: digest.clone(), bytes, lease })
    }

    fn load_layout(&self, staged: &Members<'_>, platform: Option<&Platform>) -> Result<Vec<Loaded>> {
        let most = self.options.limits.max_document_bytes;
        let index: ImageIndex = serde_json::from_slice(&staged.read("index.json", most)?)
            .map_err(|error| Error::corrupt("index.json in the archive", "an index", error.to_string()))?;
        check_count(index.manifests().len())?;
        index
            .manifests()
            .iter()
            .map(|descriptor| self.load_layout_image(staged, descriptor, platform))
            .collect()
    }

    fn load_layout_image(
        &self,
        staged: &Members<'_>,
        descriptor: &Descriptor,
        platform: Option<&Platform>,
    ) -> Result<Loaded> {
        let limits = &self.options.limits;
        let annotation = |key: &str| descriptor.annotations().as_ref().and_then(|all| all.get(key)).cloned();
        let mut wanted = manifest::content(descriptor)?;
        let mut indexes = Vec::new();
        for _level in 0..=MAX_NESTING {
            let bytes = document(staged, &wanted, limits.max_document_bytes)?;
            match manifest::parse(&bytes, limits)? {
                Parsed::Index(list) => {
                    indexes.push((wanted.digest, bytes));
                    wanted = manifest::choose(&list, &platform.cloned().unwrap_or_default())?;
                }
                Parsed::Image(image) => {
                    let config = document(staged, &image.config, limits.max_document_bytes)?;
                    // A list of builds says itself for what they are.
                    if indexes.is_empty() {
                        ConfigFile::parse(&config)?.expect(platform)?;
                    }
                    let mut leases = Vec::new();
                    for layer in &image.layers {
                        let held = self.take_held(staged, &blob_name(&layer.digest), &layer.digest)?;
                        if held.bytes != layer.size {
                            let expected = format!("{} bytes", layer.size);
                            return Err(Error::corrupt(
                                format!("layer {}", layer.digest),
                                expected,
                                held.bytes.to_string(),
                            ));
                        }
                        leases.push(held.lease);
                    }
                    let (name, tag) = layout_name(annotation(CONTAINERD_NAME), annotation(OCI_NAME));
                    let names = name.into_iter().collect();
                    return self.loaded(&bytes, &config, &image.layers, &indexes, names, tag);
                }
            }
        }
        Err(Error::unsupported("lists of builds within lists of builds"))
    }

    fn loaded(
        &self,
        manifest: &[u8],
        config: &[u8],
        layers: &[Content],
        lists: &[(Digest, Vec<u8>)],
        mut names: Vec<Reference>,
        tag: Option<String>,
    ) -> Result<Loaded> {
        let parsed = ConfigFile::parse(config)?;
        let pairs = paired(layers, &parsed)?;
        let layers =
            pairs.iter().map(|(layer, diff_id)| record(layer, diff_id, layer.digest.clone())).collect();
        let indexes = lists.iter().map(|(digest, _)| digest.clone()).collect::<BTreeSet<_>>();
        let ready = Ready { manifest: Digest::of(manifest), config: Digest::of(config), indexes, layers };
        names.retain(is_usable);
        if names.is_empty() {
            let tag = tag.unwrap_or_else(|| ready.manifest.hex()[..12].to_owned());
            names.push(format!("localhost/loaded:{tag}").parse()?);
        }
        let things = ready
            .layers
            .iter()
            .flat_map(|layer| [Thing::Blob(layer.stored.clone()), Thing::Layer(layer.diff_id.clone())]);
        let documents = [&ready.manifest, &ready.config].into_iter().chain(&ready.indexes);
        let things = things.chain(documents.cloned().map(Thing::Blob)).collect();
        let lease = self.store.lease(things);
        self.store.put_document(&ready.manifest, manifest)?;
        self.store.put_document(&ready.config, config)?;
        for (digest, bytes) in lists {
            self.store.put_document(digest, bytes)?;
        }
        Ok(Loaded { ready, names, lease })
    }

    fn import(
        &self,
        root: Box<dyn Read + Send>,
        config: &ImageConfig,
        platform: &Platform,
        name: Reference,
    ) -> Result<Image> {
        let (file, path) = self.store.scratch_file()?;
        let imported = self.import_through(root, file, &path, config, platform, name);
        if imported.is_err() {
            let _the_first_error_counts = fs::remove_file(&path);
        }
        imported
    }

    fn import_through(
        &self,
        mut root: Box<dyn Read + Send>,
        file: File,
        path: &Path,
        config: &ImageConfig,
        platform: &Platform,
        name: Reference,
    ) -> Result<Image> {
        let mut writer = crate::digest::HashingWriter::new(file);
        let most = self.below_cap(self.options.limits.max_blob_bytes);
        let copied = std::io::copy(&mut root.by_ref().take(most + 1), &mut writer)
            .map_err(Error::io("write", path))?;
        if copied > most {
            return Err(Error::TooLarge {
                what: "the root file system".to_owned(),
                limit: "max_blob_bytes".into(),
                most,
            });
        }
        let digest = writer.hasher.finish();
        let (compression, _) = decompressed(File::open(path).map_err(Error::io("open", path))?)?;
        let (diff_id, held) = self.unpack_held(path, &digest)?;
        if self.store.layer_facts(&diff_id)?.unpacked.n_entries == 0 {
            drop(held);
            self.store.collect()?;
            return Err(Error::corrupt("the tar of the root file system", "files in it", "none"));
        }
        self.store.adopt_blob(&digest, path)?;
        let layers = [manifest::layer_content(digest, copied, compression)];
        // Without a time: the same tar gives the same image.
        let step = super::History { comment: Some(IMPORTED.to_owned()), ..super::History::default() };
        let origin = super::Origin { created: None, history: vec![step] };
        let config = config.to_file(platform, &[diff_id], &origin)?;
        let manifest = manifest::build(&manifest::config_content(&config), &layers)?;
        let loaded = self.loaded(&manifest, &config, &layers, &[], vec![name], None)?;
        drop(held);
        self.record(loaded.ready, &loaded.names)
    }
}

#[derive(Debug)]
struct HeldBlob {
    digest: Digest,
    bytes: u64,
    lease: Lease,
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn check_count(images: usize) -> Result<()> {
    if images <= MAX_ARCHIVE_IMAGES {
        return Ok(());
    }
    Err(Error::TooLarge {
        what: "the number of images and names in the archive".to_owned(),
        limit: "max_archive_images".into(),
        most: MAX_ARCHIVE_IMAGES as u64,
    })
}

/// Whether the image can be called what the archive calls it; if not, it keeps its other names, or gets one.
fn is_usable(name: &Reference) -> bool {
    let checked = name.check_as_name();
    if let Err(error) = &checked {
        tracing::warn!(%error, "left out a name of an archive");
    }
    checked.is_ok()
}

/// A verified small file of a layout.
fn document(staged: &Members<'_>, wanted: &Content, most: u64) -> Result<Vec<u8>> {
    let name = blob_name(&wanted.digest);
    let bytes = staged.read(&name, most)?;
    wanted.digest.expect(&Digest::of(&bytes), format!("{name} in the archive"))?;
    Ok(bytes)
}

/// Returns the name that a layout gives an image: in full, or a tag alone.
fn layout_name(containerd: Option<String>, oci: Option<String>) -> (Option<Reference>, Option<String>) {
    let full = containerd.and_then(|name| name.parse().ok());
    if full.is_some() {
        return (full, None);
    }
    match oci {
        Some(name) if name.contains(['/', ':']) => (name.parse().ok(), None),
        Some(tag) if format!("localhost/loaded:{tag}").parse::<Reference>().is_ok() => (None, Some(tag)),
        _ => (None, None),
    }
}
