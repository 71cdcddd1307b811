//! The images of one host, and everything that can be done with them.

mod commit;
mod keyed;
mod layers;
mod load;
mod pull;
mod push;
mod recorded;
mod room;
mod save;
mod staged;
mod views;

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex},
};

use tokio::sync::Semaphore;

use self::keyed::KeyedLocks;
pub use self::{
    commit::{Commit, History, Origin},
    pull::PullOptions,
    save::Format,
    views::{DiskUsage, Image, ImageDetail, ImageSummary, LayerDetail, lower_directories},
};
use crate::{
    blocking::blocking,
    config::ConfigFile,
    digest::Digest,
    error::{Error, Result},
    manifest::Content,
    options::Options,
    reference::Reference,
    registry::Registries,
    store::{Freed, Store, index::LayerRecord},
};

/// Stands in for users that cannot be listed.
const UNKNOWN_USERS: &str = "users whose records cannot be read";

/// A store of images below one directory, for one process at a time; the caller sees to that. Cheap to clone.
///
/// An image is named by a reference (`alpine`), by its digest, or by the beginning of that. A value of [`Image`] keeps
/// the image from being collected as long as it exists; so does everybody whom [`Options::users`] tells of.
#[derive(Debug, Clone)]
pub struct Images {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    registries: Registries,
    options: Arc<Options>,
    locks: KeyedLocks,
    downloads: Semaphore,
    unpacks: Arc<Semaphore>,
    /// Where there is a cap, whoever unpacks holds this: what is left below it is for one at a time.
    room: Mutex<()>,
}

/// How [`Images::remove`] treats an image that somebody uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// Fails with [`Error::InUse`].
    Refuse,
    /// Takes its names away; its content goes with its last user.
    Untag,
}

impl Images {
    /// Opens the store in `root/images` and `root/layers`, and removes whatever a crash left there.
    #[crate::boxed]
    pub async fn open(root: &Path, options: Options) -> Result<Self> {
        let options = Arc::new(options);
        let root = root.to_owned();
        let settings = Arc::clone(&options);
        let store = blocking(move || Store::open(&root, &settings)).await?;
        let inner = Inner {
            store,
            registries: Registries::new(Arc::clone(&options))?,
            locks: KeyedLocks::default(),
            downloads: Semaphore::new(options.downloads.max(1)),
            unpacks: Arc::new(Semaphore::new(options.unpacks.max(1))),
            room: Mutex::default(),
            options,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        blocking(move || work(&inner)).await
    }

    /// Clears up at once after a disk that filled up in the middle: half-made files are in everybody's way, downloaded
    /// ones too.
    async fn clear_if_full<T>(&self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Error::NoSpace { .. })) {
            let cleared = self
                .blocking(|inner| {
                    inner.store.drop_partial()?;
                    inner.store.collect().map(drop)
                })
                .await;
            if let Err(error) = cleared {
                tracing::warn!(%error, "what was half-made when the disk was full stays until the next start");
            }
        }
        result
    }

    /// The image called `name`, which counts as a use of it.
    #[crate::boxed]
    pub async fn get(&self, name: &str) -> Result<Image> {
        let name = name.to_owned();
        self.blocking(move |inner| {
            let manifest = inner.store.index().find(&name)?;
            inner.image(&manifest)
        })
        .await
    }

    /// All images, by their first name.
    #[crate::boxed]
    pub async fn list(&self) -> Result<Vec<ImageSummary>> {
        self.blocking(Inner::summaries).await
    }

    #[crate::boxed]
    pub async fn inspect(&self, name: &str) -> Result<ImageDetail> {
        let name = name.to_owned();
        self.blocking(move |inner| inner.detail(&name)).await
    }

    /// Gives the image a further name, which it takes from any other image.
    #[crate::boxed]
    pub async fn tag(&self, name: &str, further: &Reference) -> Result<()> {
        if further.digest().is_some() {
            return Err(Error::invalid(format!("{further} has a digest, and so cannot be given as a name")));
        }
        further.check_as_name()?;
        let (name, further) = (name.to_owned(), further.clone());
        self.blocking(move |inner| {
            inner.store.change_index(|index| {
                let manifest = index.find(&name)?;
                index.name(&manifest, &further);
                Ok(())
            })?;
            inner.store.collect().map(drop)
        })
        .await
    }

    /// Takes a name away; with its last one, or when it was named by digest, the image goes.
    #[crate::boxed]
    pub async fn remove(&self, name: &str, in_use: InUse) -> Result<Freed> {
        let name = name.to_owned();
        self.blocking(move |inner| inner.remove(&name, in_use)).await
    }

    /// Removes every image that nobody uses, and interrupted downloads.
    #[crate::boxed]
    pub async fn prune(&self) -> Result<Freed> {
        self.blocking(|inner| {
            let mut freed = inner.store.evict(|| Ok(false))?;
            freed.add(inner.store.collect()?);
            freed.bytes += inner.store.drop_partial()?;
            Ok(freed)
        })
        .await
    }

    /// Removes images that have lost their last name and their last user, and downloads that were broken off days ago.
    /// To be called when users have gone; quick when there is nothing to do.
    #[crate::boxed]
    pub async fn collect(&self) -> Result<Freed> {
        self.blocking(|inner| inner.store.collect_nameless()).await
    }

    #[crate::boxed]
    pub async fn disk_usage(&self) -> Result<DiskUsage> {
        self.blocking(Inner::disk_usage).await
    }
}

/// An image that is complete and only needs to be recorded.
#[derive(Debug)]
struct Ready {
    manifest: Digest,
    config: Digest,
    indexes: BTreeSet<Digest>,
    layers: Vec<LayerRecord>,
}

impl Inner {
    fn users_of(&self, manifest: &Digest) -> Vec<String> {
        match self.options.users.of_images() {
            Some(mut users) => users.remove(manifest).unwrap_or_default(),
            None => vec![UNKNOWN_USERS.to_owned()],
        }
    }

    fn remove(&self, name: &str, in_use: InUse) -> Result<Freed> {
        let reference = name.parse::<Reference>().ok();
        let names = self.store.change_index(|index| {
            let manifest = index.find(name)?;
            let Some(record) = index.images.get_mut(&manifest) else { return Ok(Vec::new()) };
            let taken: Vec<Reference> = match reference.filter(|reference| record.names.contains(reference)) {
                Some(reference) => vec![reference],
                None => record.names.iter().cloned().collect(),
            };
            let is_last = taken.len() == record.names.len();
            let users = self.users_of(&manifest);
            if is_last && in_use == InUse::Refuse && !users.is_empty() {
                return Err(Error::InUse { what: format!("image {name}"), by: users });
            }
            record.names.retain(|name| !taken.contains(name));
            Ok(taken)
        })?;
        let mut freed = Freed { names, ..Freed::default() };
        freed.add(self.store.collect()?);
        Ok(freed)
    }
}

/// The layers of a manifest and of a configuration, in pairs.
fn paired<'a>(layers: &'a [Content], config: &'a ConfigFile) -> Result<Vec<(&'a Content, &'a Digest)>> {
    let diff_ids = config.diff_ids();
    if layers.len() != diff_ids.len() {
        return Err(Error::corrupt(
            "the image's configuration",
            format!("{} layers as in the manifest", layers.len()),
            diff_ids.len().to_string(),
        ));
    }
    Ok(layers.iter().zip(diff_ids).collect())
}
