//! To archives.

use std::{
    collections::{BTreeSet, HashSet},
    fs::File,
    io::{Read, Write},
};

use archive::{Kind, Member, Writer};

use super::{Image, Images, Inner};
use crate::{
    compression::decompressed,
    digest::Digest,
    error::{Error, Result},
    manifest::{self, Content, OCI_MANIFEST},
    reference::Reference,
    store::index::{LayerRecord, Record},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// The form that `docker save` writes and `docker load` reads.
    #[default]
    Docker,
    /// An OCI layout, as a tar.
    Oci,
}

/// An image for an archive, and what it is called there.
struct SavedImage {
    image: Image,
    names: BTreeSet<Reference>,
}

impl Images {
    /// Writes the image as an uncompressed tar, under `name` alone: the archive may go to somebody whose images have
    /// the others. By its digest it goes without a name. The same image gives the same bytes.
    pub async fn save(&self, name: &str, writer: impl Write + Send + 'static, format: Format) -> Result<()> {
        self.save_all(&[name], writer, format).await
    }

    /// The same for several in one archive. What they share is in it once.
    pub async fn save_all(
        &self,
        names: &[impl AsRef<str>],
        writer: impl Write + Send + 'static,
        format: Format,
    ) -> Result<()> {
        let writer: Box<dyn Write + Send> = Box::new(writer);
        let names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
        self.blocking(move |inner| inner.save(&inner.wanted(&names)?, writer, format)).await
    }

    /// The same for one image under all names that it has here.
    pub async fn save_with_names(
        &self,
        image: Image,
        writer: impl Write + Send + 'static,
        format: Format,
    ) -> Result<()> {
        let writer: Box<dyn Write + Send> = Box::new(writer);
        let names = image.names.iter().cloned().collect();
        self.blocking(move |inner| inner.save(&[SavedImage { image, names }], writer, format)).await
    }
}

impl Inner {
    /// Every image once, however often and by whatever it was asked for.
    fn wanted(&self, asked: &[String]) -> Result<Vec<SavedImage>> {
        let mut all: Vec<SavedImage> = Vec::with_capacity(asked.len());
        for asked in asked {
            let (manifest, name) = self.store.index().find_named(asked)?;
            match all.iter_mut().find(|known| known.image.digest == manifest) {
                Some(known) => known.names.extend(name),
                None => {
                    all.push(SavedImage { image: self.image(&manifest)?, names: name.into_iter().collect() });
                }
            }
        }
        Ok(all)
    }

    fn save(&self, images: &[SavedImage], writer: Box<dyn Write + Send>, format: Format) -> Result<()> {
        let recorded: Vec<_> = images
            .iter()
            .map(|wanted| Ok((wanted, self.known(&wanted.image.digest)?)))
            .collect::<Result<_>>()?;
        let mut tar = Tar { archive: Writer::new(writer), written: HashSet::new() };
        match format {
            Format::Docker => self.save_docker(&recorded, &mut tar)?,
            Format::Oci => self.save_oci(&recorded, &mut tar)?,
        }
        tar.archive.finish().map(drop).map_err(written)
    }

    fn save_docker(&self, images: &[(&SavedImage, Record)], tar: &mut Tar<impl Write>) -> Result<()> {
        let layer_name = |layer: &LayerRecord| format!("{}.tar", layer.diff_id.hex());
        let mut listed = Vec::with_capacity(images.len());
        for (wanted, record) in images {
            let config_name = format!("{}.json", record.config.hex());
            for layer in &record.layers {
                let bytes = self.store.layer_facts(&layer.diff_id)?.unpacked.tar_bytes;
                tar.add_once(&layer_name(layer), bytes, || {
                    Ok(decompressed(self.store.open_blob(&layer.stored)?)?.1)
                })?;
            }
            let config = self.store.read_blob(&record.config)?;
            tar.add_once(&config_name, config.len() as u64, || Ok(config.as_slice()))?;
            let tags = wanted.names.iter().filter(|name| name.digest().is_none());
            listed.push(serde_json::json!({
                "Config": config_name,
                "RepoTags": tags.map(Reference::familiar).collect::<Vec<_>>(),
                "Layers": record.layers.iter().map(layer_name).collect::<Vec<_>>(),
            }));
        }
        tar.add_bytes("manifest.json", serde_json::Value::from(listed).to_string().as_bytes())
    }

    fn save_oci(&self, images: &[(&SavedImage, Record)], tar: &mut Tar<impl Write>) -> Result<()> {
        let mut manifests = Vec::with_capacity(images.len());
        for (wanted, record) in images {
            let config = self.store.read_blob(&record.config)?;
            manifests.push((self.manifest_of_stored(&wanted.image.digest, record, &config)?, config));
        }
        let named = images.iter().zip(&manifests);
        let named: Vec<_> =
            named.flat_map(|((wanted, _), (manifest, _))| descriptors(&wanted.names, manifest)).collect();
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": named });

        tar.add_bytes("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        tar.add_bytes("index.json", index.to_string().as_bytes())?;
        for directory in ["blobs/", "blobs/sha256/"] {
            tar.add_directory(directory)?;
        }
        let blob = |digest: &Digest| format!("blobs/sha256/{}", digest.hex());
        for ((_, record), (manifest, config)) in images.iter().zip(&manifests) {
            tar.add_once(&blob(&Digest::of(manifest)), manifest.len() as u64, || Ok(manifest.as_slice()))?;
            tar.add_once(&blob(&record.config), config.len() as u64, || Ok(config.as_slice()))?;
            for layer in &record.layers {
                let bytes = length(&self.store.open_blob(&layer.stored)?)?;
                tar.add_once(&blob(&layer.stored), bytes, || self.store.open_blob(&layer.stored))?;
            }
        }
        Ok(())
    }

    /// The image's manifest, or one that names the blobs we have where those are not the ones it names.
    pub(super) fn manifest_of_stored(
        &self,
        manifest: &Digest,
        record: &Record,
        config: &[u8],
    ) -> Result<Vec<u8>> {
        if record.layers.iter().all(|layer| layer.stored == layer.blob) {
            return self.store.read_blob(manifest);
        }
        let layers = record.layers.iter().map(|layer| {
            let file = self.store.open_blob(&layer.stored)?;
            let size = length(&file)?;
            let (compression, _) = decompressed(file)?;
            Ok(manifest::layer_content(layer.stored.clone(), size, compression))
        });
        let layers = layers.collect::<Result<Vec<Content>>>()?;
        manifest::build(&manifest::config_content(config), &layers)
    }
}

/// How an index names the image: once by each name.
fn descriptors(names: &BTreeSet<Reference>, manifest: &[u8]) -> Vec<serde_json::Value> {
    let descriptor = |annotations: serde_json::Value| {
        serde_json::json!({
            "mediaType": media_type(manifest),
            "digest": Digest::of(manifest),
            "size": manifest.len(),
            "annotations": annotations,
        })
    };
    let named = names.iter().map(|name| {
        descriptor(serde_json::json!({
            "io.containerd.image.name": name.to_string(),
            "org.opencontainers.image.ref.name": name.tag().unwrap_or("latest"),
        }))
    });
    let named: Vec<_> = named.collect();
    if named.is_empty() { vec![descriptor(serde_json::json!({}))] } else { named }
}

/// Returns the media type that the manifest states for itself; a registry may have known it by a name of docker's.
pub(super) fn media_type(manifest: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(manifest).ok();
    let own =
        parsed.and_then(|value| value.get("mediaType").and_then(|text| text.as_str().map(str::to_owned)));
    own.unwrap_or_else(|| OCI_MANIFEST.to_owned())
}

fn length(file: &File) -> Result<u64> {
    file.metadata().map(|metadata| metadata.len()).map_err(Error::io("look at", "a blob"))
}

struct Tar<W: Write> {
    archive: Writer<W>,
    /// The names of files that several images may share; each goes in once.
    written: HashSet<String>,
}

impl<W: Write> Tar<W> {
    fn add_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.add(name, bytes.len() as u64, bytes)
    }

    fn add_once<R: Read>(
        &mut self,
        name: &str,
        bytes: u64,
        content: impl FnOnce() -> Result<R>,
    ) -> Result<()> {
        if !self.written.insert(name.to_owned()) {
            return Ok(());
        }
        self.add(name, bytes, content()?)
    }

    /// Some readers take a directory without an entry for one that belongs to somebody else.
    fn add_directory(&mut self, name: &str) -> Result<()> {
        self.archive.begin(&Member::new(name, Kind::Directory, 0o755)).map_err(written)
    }

    fn add(&mut self, name: &str, bytes: u64, content: impl Read) -> Result<()> {
        let member = Member::new(name, Kind::File(archive::Content::whole(bytes)), 0o644);
        match self.archive.add(&member, content) {
            Err(error @ archive::Error::OtherLength) => {
                Err(Error::corrupt(name, format!("{bytes} bytes"), error.to_string()))
            }
            added => added.map_err(written),
        }
    }
}

fn written(error: archive::Error) -> Error {
    Error::io("write", "the archive")(error.into())
}
