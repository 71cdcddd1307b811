//! From here on images exist.

use super::{Image, Inner, Ready};
use crate::{
    digest::Digest,
    error::{Error, Result},
    reference::Reference,
    store::{index::Index, lease::Thing},
};

impl Inner {
    /// Makes the image visible under its names.
    pub(super) fn record(&self, ready: Ready, names: &[Reference]) -> Result<Image> {
        let what = format!("image {}", ready.manifest);
        let images = self.record_all(vec![(ready, names.to_vec())])?;
        images.into_iter().next().ok_or(Error::NotFound { what })
    }

    /// Makes all of them visible at once, or none.
    pub(super) fn record_all(&self, all: Vec<(Ready, Vec<Reference>)>) -> Result<Vec<Image>> {
        let manifests: Vec<Digest> = all.iter().map(|(ready, _)| ready.manifest.clone()).collect();
        let names: Vec<(Digest, Reference)> = all
            .iter()
            .flat_map(|(ready, names)| names.iter().map(|name| (ready.manifest.clone(), name.clone())))
            .collect();
        let lease = self.store.lease(manifests.iter().cloned().map(Thing::Image).collect());
        for manifest in &manifests {
            self.store.touch(manifest);
        }
        let before = self.store.change_index(|index| {
            let before = index.clone();
            for (ready, _) in all {
                index.add(ready.manifest, ready.config, ready.indexes, ready.layers);
            }
            for (manifest, name) in &names {
                index.name(manifest, name);
            }
            Ok(before)
        })?;
        let recorded = self.with_room(&manifests);
        if recorded.is_err() {
            drop(lease);
            self.take_back(&names, &before)?;
        }
        recorded
    }

    fn with_room(&self, manifests: &[Digest]) -> Result<Vec<Image>> {
        let images = manifests.iter().map(|manifest| self.image(manifest)).collect::<Result<Vec<_>>>()?;
        // A moved name may have been the last one of another image.
        self.store.collect()?;
        if self.make_room(0)? {
            return Ok(images);
        }
        let what = match manifests {
            [manifest] => format!("image {manifest}"),
            several => format!("{} images", several.len()),
        };
        Err(Error::NoSpace { what: format!("{what} below the cap on images") })
    }

    /// Those that were here before stay; the others go with their names.
    fn take_back(&self, names: &[(Digest, Reference)], before: &Index) -> Result<()> {
        self.store.change_index(|index| {
            for (manifest, name) in names {
                index.unname(manifest, name, before);
            }
            Ok(())
        })?;
        self.store.collect().map(drop)
    }
}
