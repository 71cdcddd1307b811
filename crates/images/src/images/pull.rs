//! From a registry.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future;

use super::{Image, Images, Inner, Ready, paired};
use crate::{
    config::ConfigFile,
    digest::Digest,
    error::{Error, Result},
    manifest::{self, Content, Manifest, Parsed},
    options::{Credentials, Reach},
    platform::Platform,
    progress::{Event, Progress},
    reference::Reference,
    registry::{Document, Session},
    store::{
        files::file_length,
        index::LayerRecord,
        lease::{Lease, Thing},
    },
};

#[derive(Debug, Clone, Default)]
pub struct PullOptions {
    /// Refused where the image has no build for it. Where none is named: this machine's out of several, or whichever
    /// there is.
    pub platform: Option<Platform>,
    /// For the image's registry, in place of configured ones.
    pub credentials: Option<Credentials>,
    /// Speaks to the registry without TLS, even if it is not configured so.
    pub insecure: bool,
    pub reach: Reach,
}

/// The image that a reference stands for, as its registry says.
#[derive(Debug)]
struct Resolved {
    manifest: Manifest,
    document: Document,
    index: Option<Document>,
}

impl Images {
    /// Gets the image that `reference` stands for in its registry now, with whatever of it is not here yet.
    ///
    /// May be given up at any time by dropping the future: what was downloaded is gone on with by the next pull of it,
    /// in this process or the next. Two pulls of one layer share its download.
    #[crate::boxed]
    pub async fn pull(
        &self,
        reference: &Reference,
        options: PullOptions,
        progress: Progress,
    ) -> Result<Image> {
        let pulled = self.pull_all(reference, options, progress).await;
        self.clear_if_full(pulled).await
    }

    async fn pull_all(
        &self,
        reference: &Reference,
        options: PullOptions,
        progress: Progress,
    ) -> Result<Image> {
        reference.check_as_name()?;
        let session = self.inner.registries.session(reference, &options)?;
        let platform = options.platform.clone().unwrap_or_default();
        let resolved = self.resolve(&session, reference, &platform, &progress).await?;
        let layers =
            resolved.manifest.layers.iter().map(|layer| (layer.digest.clone(), layer.size)).collect();
        progress.tell(Event::Resolved { manifest: resolved.document.digest.clone(), layers });

        let Manifest { config: wanted, layers } = &resolved.manifest;
        let on_retry = on_retry(&progress);
        let config = session.config(&wanted.digest, wanted.size, &on_retry).await?;
        let parsed = ConfigFile::parse(&config.bytes)?;
        // A list of builds says itself for what they are.
        if resolved.index.is_none() {
            parsed.expect(options.platform.as_ref())?;
        }
        let pairs = paired(layers, &parsed)?;

        let documents = [&resolved.document, &config].into_iter().chain(&resolved.index);
        let documents = documents.map(|document| document.digest.clone()).collect();
        let wanted =
            pairs.iter().map(|(layer, diff_id)| (layer.digest.clone(), (*diff_id).clone())).collect();
        let _lease = self.blocking(move |inner| Ok(inner.lease_parts(documents, wanted))).await?;
        self.make_room_for(&resolved.manifest, reference).await?;

        // All at once: how many work at a time is decided over all pulls.
        let pulled =
            pairs.iter().map(|(layer, diff_id)| self.pulled_layer(&session, layer, diff_id, &progress));
        let layers = future::try_join_all(pulled).await?;

        let reference = reference.clone();
        self.blocking(move |inner| inner.publish(resolved, &config, layers, &reference)).await
    }

    async fn resolve(
        &self,
        session: &Session,
        reference: &Reference,
        platform: &Platform,
        progress: &Progress,
    ) -> Result<Resolved> {
        let limits = &self.inner.options.limits;
        let on_retry = on_retry(progress);
        let document = session.manifest(reference.wanted(), &on_retry).await?;
        let list = match manifest::parse(&document.bytes, limits)? {
            Parsed::Image(manifest) => return Ok(Resolved { manifest, document, index: None }),
            Parsed::Index(list) => list,
        };
        let chosen = manifest::choose(&list, platform)?;
        let build = session.manifest(chosen.digest.as_str(), &on_retry).await?;
        match manifest::parse(&build.bytes, limits)? {
            Parsed::Image(manifest) => Ok(Resolved { manifest, document: build, index: Some(document) }),
            Parsed::Index(_) => {
                Err(Error::unsupported(format!("a list of lists of builds, as {reference} is,")))
            }
        }
    }

    async fn make_room_for(&self, manifest: &Manifest, reference: &Reference) -> Result<()> {
        let layers = manifest.layers.clone();
        let fits = self
            .blocking(move |inner| {
                let missing = layers.iter().filter(|layer| !inner.store.has_blob(&layer.digest));
                inner.make_room_to_download(missing)
            })
            .await?;
        if fits {
            Ok(())
        } else {
            Err(Error::NoSpace { what: format!("image {reference} below the cap on images") })
        }
    }
}

impl Inner {
    fn make_room_to_download<'a>(&self, layers: impl Iterator<Item = &'a Content>) -> Result<bool> {
        let (mut whole, mut rest) = (0_u64, 0_u64);
        for layer in layers {
            // What came of it earlier is on the disk and counted there.
            let begun = file_length(&self.store.partial_blob(&layer.digest)).unwrap_or(0);
            whole = whole.saturating_add(layer.size);
            rest = rest.saturating_add(layer.size.saturating_sub(begun));
        }
        // However much of it is here: what could never fit drives nothing out.
        if self.options.disk_cap.is_some_and(|cap| whole > cap) {
            return Ok(false);
        }
        self.make_room(rest)
    }

    /// Keeps what is here of an image, and what is about to come.
    fn lease_parts(&self, documents: Vec<Digest>, layers: Vec<(Digest, Digest)>) -> Lease {
        let mut things: Vec<Thing> = documents.into_iter().map(Thing::Blob).collect();
        for (blob, diff_id) in layers {
            let in_another_compression = self.store.index().stored_blob(&diff_id);
            things.extend(in_another_compression.map(Thing::Blob));
            things.extend([Thing::Blob(blob), Thing::Layer(diff_id)]);
        }
        self.store.lease(things)
    }

    fn publish(
        &self,
        resolved: Resolved,
        config: &Document,
        layers: Vec<LayerRecord>,
        name: &Reference,
    ) -> Result<Image> {
        let documents = [&resolved.document, config].into_iter().chain(&resolved.index);
        for document in documents {
            self.store.put_document(&document.digest, &document.bytes)?;
        }
        let ready = Ready {
            manifest: resolved.document.digest,
            config: config.digest.clone(),
            indexes: resolved.index.into_iter().map(|index| index.digest).collect::<BTreeSet<_>>(),
            layers,
        };
        self.record(ready, std::slice::from_ref(name))
    }
}

pub(super) fn on_retry(progress: &Progress) -> impl Fn(Duration, &Error) + Send + Sync {
    let progress = progress.clone();
    move |wait, error| progress.tell(Event::Retrying { wait, why: error.to_string() })
}
