//! To a registry.

use std::path::PathBuf;

use super::{Image, Images, Inner, PullOptions, save};
use crate::{
    digest::Digest,
    error::{Error, Result},
    progress::{Event, LayerState, Progress},
    reference::Reference,
    store::files::file_length,
};

/// The parts of an image in a registry.
#[derive(Debug)]
struct Parts {
    /// Keeps the files while they are sent.
    _image: Image,
    manifest: Vec<u8>,
    /// Layers and the configuration, with their lengths.
    blobs: Vec<(Digest, u64, PathBuf)>,
}

impl Images {
    /// Uploads the image called `name` here to where `target` names it, and returns the digest of its manifest there.
    /// Content that the registry has already is not sent again.
    #[crate::boxed]
    pub async fn push(
        &self,
        name: &str,
        target: &Reference,
        options: PullOptions,
        progress: Progress,
    ) -> Result<Digest> {
        target.check_as_name()?;
        if target.digest().is_some() {
            return Err(Error::invalid(format!(
                "{target} has a digest; an image is pushed to a name and a tag"
            )));
        }
        let name = name.to_owned();
        let parts = self.blocking(move |inner| inner.parts(&name)).await?;
        let session = self.inner.registries.session(target, &options)?;
        let manifest = Digest::of(&parts.manifest);
        let layers = parts.blobs.iter().map(|(digest, bytes, _)| (digest.clone(), *bytes)).collect();
        progress.tell(Event::Resolved { manifest: manifest.clone(), layers });
        for (digest, total, file) in &parts.blobs {
            let tell = |state| progress.tell(Event::Layer { blob: digest.clone(), state });
            if session.has_blob(digest).await? {
                tell(LayerState::Present);
                continue;
            }
            let sent = |bytes| tell(LayerState::Downloading { bytes, total: *total });
            session.upload_blob(digest, file, sent).await?;
            tell(LayerState::Done);
        }
        session.put_manifest(target.wanted(), &save::media_type(&parts.manifest), &parts.manifest).await?;
        Ok(manifest)
    }

    /// Whether a registry accepts these credentials.
    #[crate::boxed]
    pub async fn check_login(&self, registry: &str, options: PullOptions) -> Result<()> {
        // Any repository will do: none is asked for.
        let reference: Reference = format!("{registry}/library/any").parse()?;
        if reference.registry() != registry {
            return Err(Error::invalid(format!("{registry:?} is not the host of a registry")));
        }
        self.inner.registries.session(&reference, &options)?.check_login().await
    }
}

impl Inner {
    fn parts(&self, name: &str) -> Result<Parts> {
        let (digest, _) = self.store.index().find_named(name)?;
        let image = self.image(&digest)?;
        let record = self.known(&digest)?;
        let config = self.store.read_blob(&record.config)?;
        let manifest = self.manifest_of_stored(&digest, &record, &config)?;
        let stored = record.layers.iter().map(|layer| &layer.stored).chain([&record.config]);
        let blobs = stored.map(|blob| {
            let file = self.store.blob_path(blob);
            let bytes = file_length(&file).ok_or_else(|| Error::NotFound { what: format!("blob {blob}") })?;
            Ok((blob.clone(), bytes, file))
        });
        Ok(Parts { blobs: blobs.collect::<Result<_>>()?, manifest, _image: image })
    }
}
