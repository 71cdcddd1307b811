//! Manifests and indexes: what a registry or an archive says an image consists of.

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest};
use serde::Deserialize;

use crate::{
    compression::Compression,
    digest::Digest,
    error::{Error, Result},
    options::Limits,
    platform::Platform,
};

const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// How layers are called by OCI and Docker; what follows names the compression, which the bytes themselves tell.
const LAYER_PREFIXES: &[&str] = &[
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];

/// One content, by its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) media_type: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) config: Content,
    /// Lowest first.
    pub(crate) layers: Vec<Content>,
}

#[derive(Debug)]
pub(crate) enum Parsed {
    Image(Manifest),
    /// Builds of one image for several platforms.
    Index(Box<ImageIndex>),
}

/// The fields by which kinds of documents are told apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Probe {
    schema_version: Option<u64>,
    manifests: Option<serde::de::IgnoredAny>,
    layers: Option<serde::de::IgnoredAny>,
}

pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Result<Parsed> {
    let corrupt = |error: serde_json::Error| Error::unreadable("the manifest", "a manifest", &error);
    let probe: Probe = serde_json::from_slice(bytes).map_err(corrupt)?;
    match probe {
        Probe { schema_version: Some(1), .. } => Err(Error::unsupported("a manifest of schema version 1")),
        Probe { manifests: Some(_), layers: None, .. } => {
            Ok(Parsed::Index(serde_json::from_slice(bytes).map_err(corrupt)?))
        }
        Probe { layers: Some(_), manifests: None, .. } => {
            let manifest: ImageManifest = serde_json::from_slice(bytes).map_err(corrupt)?;
            image(&manifest, limits).map(Parsed::Image)
        }
        // Both at once is a trick: readers would differ about what the image is.
        _ => Err(Error::corrupt("the manifest", "either layers or manifests", "neither or both")),
    }
}

fn image(manifest: &ImageManifest, limits: &Limits) -> Result<Manifest> {
    let config = content(manifest.config())?;
    if config.media_type != OCI_CONFIG && config.media_type != DOCKER_CONFIG {
        return Err(Error::unsupported(format!(
            "an artifact of type {}, which is not an image,",
            config.media_type
        )));
    }
    if manifest.layers().len() > limits.max_layers {
        return Err(Error::TooLarge {
            what: "the number of layers".to_owned(),
            limit: "max_layers".into(),
            most: limits.max_layers as u64,
        });
    }
    if config.size > limits.max_document_bytes {
        return Err(Error::TooLarge {
            what: "the image's configuration".to_owned(),
            limit: "max_document_bytes".into(),
            most: limits.max_document_bytes,
        });
    }
    let layers = manifest.layers().iter().map(content).collect::<Result<Vec<_>>>()?;
    for layer in &layers {
        if !LAYER_PREFIXES.iter().any(|known| layer.media_type.starts_with(known))
            || layer.media_type.ends_with("+encrypted")
        {
            return Err(Error::unsupported(format!("a layer of type {}", layer.media_type)));
        }
        if layer.size > limits.max_blob_bytes {
            return Err(Error::TooLarge {
                what: format!("layer {}", layer.digest),
                limit: "max_blob_bytes".into(),
                most: limits.max_blob_bytes,
            });
        }
    }
    Ok(Manifest { config, layers })
}

pub(crate) fn content(descriptor: &Descriptor) -> Result<Content> {
    Ok(Content {
        digest: descriptor.digest().to_string().parse()?,
        size: descriptor.size(),
        media_type: descriptor.media_type().to_string(),
    })
}

/// The build for `platform`; an error names those there are.
pub(crate) fn choose(index: &ImageIndex, platform: &Platform) -> Result<Content> {
    let mut others = Vec::new();
    for descriptor in index.manifests() {
        let Some(built) = descriptor.platform() else { continue };
        let (os, architecture) = (built.os().to_string(), built.architecture().to_string());
        if platform.suits(&os, &architecture, built.variant().as_deref()) {
            return content(descriptor);
        }
        // Attestations hide behind platforms that nobody has.
        if os != "unknown" {
            others.push(format!("{os}/{architecture}"));
        }
    }
    // A list without platforms has nothing to choose by.
    if let [only] = &index.manifests()[..]
        && only.platform().is_none()
    {
        return content(only);
    }
    others.dedup();
    Err(Error::no_build(platform, &others.join(", ")))
}

/// A manifest for parts that came without one. The same input gives the same bytes.
pub(crate) fn build(config: &Content, layers: &[Content]) -> Result<Vec<u8>> {
    let descriptor = |content: &Content| serde_json::json!({ "mediaType": content.media_type, "digest": content.digest, "size": content.size });
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": descriptor(config),
        "layers": layers.iter().map(descriptor).collect::<Vec<_>>(),
    });
    serde_json::to_vec(&manifest).map_err(|error| Error::invalid(format!("manifest: {error}")))
}

pub(crate) fn config_content(bytes: &[u8]) -> Content {
    Content { digest: Digest::of(bytes), size: bytes.len() as u64, media_type: OCI_CONFIG.to_owned() }
}

pub(crate) fn layer_content(digest: Digest, size: u64, compression: Compression) -> Content {
    Content { digest, size, media_type: compression.layer_media_type().to_owned() }
}
