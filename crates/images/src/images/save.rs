//! To archives.

use std::{
    fs::File,
    io::{self, Read, Write},
};

use super::{Image, Images, Inner};
use crate::{
    compression::decompressed,
    digest::Digest,
    error::{Error, Result},
    manifest::{self, Content, OCI_MANIFEST},
    store::index::{LayerRecord, Record},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// What `docker save` writes and `docker load` reads.
    #[default]
    Docker,
    /// An OCI layout, as a tar.
    Oci,
}

impl Images {
    /// Writes the image as an uncompressed tar. The same image gives the same bytes.
    pub async fn save(&self, name: &str, writer: impl Write + Send + 'static, format: Format) -> Result<()> {
        let image = self.get(name).await?;
        self.blocking(move |inner| inner.save(&image, writer, format)).await
    }
}

impl Inner {
    fn save(&self, image: &Image, writer: impl Write, format: Format) -> Result<()> {
        let record = self.store.index().images.get(&image.digest).cloned();
        let record = record.ok_or_else(|| Error::NotFound { what: format!("image {}", image.digest) })?;
        let mut tar = Tar { builder: tar::Builder::new(writer) };
        match format {
            Format::Docker => self.save_docker(image, &record, &mut tar)?,
            Format::Oci => self.save_oci(image, &record, &mut tar)?,
        }
        tar.builder.into_inner().and_then(|mut writer| writer.flush()).map_err(written)
    }

    fn save_docker(&self, image: &Image, record: &Record, tar: &mut Tar<impl Write>) -> Result<()> {
        let config_name = format!("{}.json", record.config.hex());
        let layer_name = |layer: &LayerRecord| format!("{}.tar", layer.diff_id.hex());
        let mut saved = std::collections::HashSet::new();
        for layer in &record.layers {
            if saved.insert(&layer.diff_id) {
                let bytes = self.store.layer_facts(&layer.diff_id)?.unpacked.tar_bytes;
                let (_, reader) = decompressed(self.store.open_blob(&layer.stored)?)?;
                tar.add(&layer_name(layer), bytes, reader)?;
            }
        }
        tar.add_bytes(&config_name, &self.store.read_blob(&record.config)?)?;
        let tags = image.names.iter().filter(|name| name.digest().is_none());
        let manifest = serde_json::json!([{
            "Config": config_name,
            "RepoTags": tags.map(|name| name.familiar()).collect::<Vec<_>>(),
            "Layers": record.layers.iter().map(layer_name).collect::<Vec<_>>(),
        }]);
        tar.add_bytes("manifest.json", manifest.to_string().as_bytes())
    }

    fn save_oci(&self, image: &Image, record: &Record, tar: &mut Tar<impl Write>) -> Result<()> {
        let config = self.store.read_blob(&record.config)?;
        let manifest = self.manifest_of_stored(&image.digest, record, &config)?;
        let digest = Digest::of(&manifest);
        let descriptor = |annotations: serde_json::Value| {
            serde_json::json!({
                "mediaType": media_type(&manifest),
                "digest": digest,
                "size": manifest.len(),
                "annotations": annotations,
            })
        };
        let mut named: Vec<_> = image
            .names
            .iter()
            .map(|name| {
                let tag = name.tag().unwrap_or("latest");
                descriptor(serde_json::json!({
                    "io.containerd.image.name": name.to_string(),
                    "org.opencontainers.image.ref.name": tag,
                }))
            })
            .collect();
        if named.is_empty() {
            named.push(descriptor(serde_json::json!({})));
        }
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": named });

        tar.add_bytes("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        tar.add_bytes("index.json", index.to_string().as_bytes())?;
        for directory in ["blobs/", "blobs/sha256/"] {
            tar.add_directory(directory)?;
        }
        let blob = |digest: &Digest| format!("blobs/sha256/{}", digest.hex());
        tar.add_bytes(&blob(&digest), &manifest)?;
        tar.add_bytes(&blob(&record.config), &config)?;
        let mut saved = std::collections::HashSet::new();
        for layer in &record.layers {
            if saved.insert(&layer.stored) {
                let file = self.store.open_blob(&layer.stored)?;
                tar.add(&blob(&layer.stored), length(&file)?, file)?;
            }
        }
        Ok(())
    }

    /// The image's manifest, or one that names the blobs we have where those are not the ones it names.
    fn manifest_of_stored(&self, manifest: &Digest, record: &Record, config: &[u8]) -> Result<Vec<u8>> {
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

/// What the manifest calls itself; a registry may have known it by a name of docker's.
fn media_type(manifest: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(manifest).ok();
    let own =
        parsed.and_then(|value| value.get("mediaType").and_then(|text| text.as_str().map(str::to_owned)));
    own.unwrap_or_else(|| OCI_MANIFEST.to_owned())
}

fn length(file: &File) -> Result<u64> {
    file.metadata().map(|metadata| metadata.len()).map_err(Error::io("look at", "a blob"))
}

struct Tar<W: Write> {
    builder: tar::Builder<W>,
}

impl<W: Write> Tar<W> {
    fn add_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.add(name, bytes.len() as u64, bytes)
    }

    /// Some readers take a directory without an entry for one that belongs to somebody else.
    fn add_directory(&mut self, name: &str) -> Result<()> {
        let mut header = header(0, 0o755);
        header.set_entry_type(tar::EntryType::Directory);
        self.builder.append_data(&mut header, name, io::empty()).map_err(written)
    }

    fn add(&mut self, name: &str, bytes: u64, content: impl Read) -> Result<()> {
        let mut header = header(bytes, 0o644);
        let mut counted = Counted { inner: content, read: 0 };
        self.builder.append_data(&mut header, name, &mut counted).map_err(written)?;
        if counted.read != bytes {
            return Err(Error::corrupt(name, format!("{bytes} bytes"), counted.read.to_string()));
        }
        Ok(())
    }
}

fn header(bytes: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

struct Counted<R> {
    inner: R,
    read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.read += read as u64;
        Ok(read)
    }
}

fn written(error: io::Error) -> Error {
    Error::io("write", "the archive")(error)
}
