//! One layer becomes part of the store, once.

use std::{path::Path, sync::Arc};

use super::{Images, Inner};
use crate::{
    blocking::blocking,
    digest::Digest,
    error::{Error, Result},
    manifest::Content,
    progress::{Event, LayerState, Progress},
    registry::{BlobDownload, Held, Session},
    store::{
        index::LayerRecord,
        lease::{Lease, Thing},
    },
};

/// A download reports its progress each time this much more has come, and when it is complete.
const TELL_BYTES: u64 = 256 * 1024;

impl Images {
    /// The layer from the registry, unless it is here. Whoever calls holds a lease on blob and layer.
    pub(super) async fn pulled_layer(
        &self,
        session: &Session,
        layer: &Content,
        diff_id: &Digest,
        progress: &Progress,
    ) -> Result<LayerRecord> {
        let inner = &self.inner;
        let tell = |state| progress.tell(Event::Layer { blob: layer.digest.clone(), state });
        // A second caller finds the blob, or resumes where the first one stopped.
        let held: Held = Arc::new(inner.locks.lock(&layer.digest, || tell(LayerState::Waiting)).await);
        if let Some(stored) = inner.present(&layer.digest, diff_id) {
            tell(LayerState::Present);
            return Ok(record(layer, diff_id, stored));
        }
        if !inner.store.has_blob(&layer.digest) {
            self.download(session, layer, Arc::clone(&held), progress).await?;
        }
        drop(held);
        self.unpacked_layer(&layer.digest, diff_id, progress).await?;
        tell(LayerState::Done);
        Ok(record(layer, diff_id, layer.digest.clone()))
    }

    async fn download(
        &self,
        session: &Session,
        layer: &Content,
        held: Held,
        progress: &Progress,
    ) -> Result<()> {
        let inner = &self.inner;
        let _turn = inner.downloads.acquire().await.map_err(|_closed| ending())?;
        let path = inner.store.partial_blob(&layer.digest);
        let told = std::sync::atomic::AtomicU64::new(0);
        let on_bytes = |bytes: u64| {
            use std::sync::atomic::Ordering::Relaxed;
            if bytes >= told.load(Relaxed) + TELL_BYTES || bytes == layer.size || bytes < told.load(Relaxed) {
                told.store(bytes, Relaxed);
                let state = LayerState::Downloading { bytes, total: layer.size };
                progress.tell(Event::Layer { blob: layer.digest.clone(), state });
            }
        };
        let on_retry = super::pull::on_retry(progress);
        let wanted = BlobDownload {
            digest: &layer.digest,
            size: layer.size,
            path: &path,
            held,
            on_bytes: &on_bytes,
            on_retry: &on_retry,
        };
        session.blob(&wanted).await?;
        let digest = layer.digest.clone();
        self.blocking(move |inner| inner.store.adopt_blob(&digest, &path)).await
    }

    /// Unpacks a blob of the store, unless its layer is there. Runs to the end even if nobody waits for it any more.
    pub(super) async fn unpacked_layer(
        &self,
        blob: &Digest,
        diff_id: &Digest,
        progress: &Progress,
    ) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let tell = |state| progress.tell(Event::Layer { blob: blob.clone(), state });
        let held = inner.locks.lock(diff_id, || tell(LayerState::Waiting)).await;
        if inner.store.has_layer(diff_id) {
            return Ok(());
        }
        let turn = Arc::clone(&inner.unpacks).acquire_owned().await.map_err(|_closed| ending())?;
        tell(LayerState::Unpacking);
        let (blob, diff_id) = (blob.clone(), diff_id.clone());
        let worker = Arc::clone(&inner);
        blocking(move || {
            let things = vec![Thing::Blob(blob.clone()), Thing::Layer(diff_id.clone())];
            let lease = worker.store.lease(things);
            let unpacked = worker.unpack(&worker.store.blob_path(&blob), Some(&diff_id));
            drop((held, lease, turn));
            let unpacked = unpacked?;
            for warning in &unpacked.warnings.texts {
                tracing::debug!(layer = %diff_id, warning);
            }
            Ok(())
        })
        .await
    }
}

impl Inner {
    /// The blob in which the layer is stored, when both blob and layer are here.
    pub(super) fn present(&self, blob: &Digest, diff_id: &Digest) -> Option<Digest> {
        if !self.store.has_layer(diff_id) {
            return None;
        }
        if self.store.has_blob(blob) {
            return Some(blob.clone());
        }
        // The same content in another compression will do.
        self.store.index().stored_blob(diff_id).filter(|stored| self.store.has_blob(stored))
    }

    /// Unpacks a blob of which only the bytes are known, and keeps both it and the layer.
    pub(super) fn unpack_held(&self, blob: &Path, digest: &Digest) -> Result<(Digest, Lease)> {
        loop {
            let diff_id = self.unpack(blob, None)?.diff_id;
            let lease = self.store.lease(vec![Thing::Blob(digest.clone()), Thing::Layer(diff_id.clone())]);
            // Which layer it would be was not known before: somebody may have collected it meanwhile.
            if self.store.has_layer(&diff_id) {
                return Ok((diff_id, lease));
            }
        }
    }
}

pub(super) fn record(layer: &Content, diff_id: &Digest, stored: Digest) -> LayerRecord {
    LayerRecord {
        diff_id: diff_id.clone(),
        blob: layer.digest.clone(),
        stored,
        media_type: layer.media_type.clone(),
        blob_bytes: layer.size,
    }
}

fn ending() -> Error {
    Error::Unavailable { what: "the store of images".to_owned(), why: "it is closed".to_owned() }
}
