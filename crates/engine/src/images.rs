//! Images, for callers: who may do what with them, and what went wrong in words for people.
//!
//! Images are the host's: every namespace sees them, and only who may do everything names or removes them. Else one tenant
//! could put an image of theirs under the name that another one uses.

use std::io::{Read, Write};

use ::images::{
    Archive, DiskUsage, Format, Freed, Image, ImageConfig, ImageDetail, ImageSummary, Images, InUse,
    Platform, Progress, PullOptions, Reference,
};
use sandbox::{Error, ErrorKind, Result};

use crate::{Engine, Force, Principal, Scope, core::Core};

impl Engine {
    /// All images, by their first name.
    pub async fn images(&self, who: &Principal) -> Result<Vec<ImageSummary>> {
        self.core().images_of(who)?.list().await.map_err(from_images)
    }

    pub async fn image(&self, who: &Principal, name: &str) -> Result<ImageDetail> {
        self.core().images_of(who)?.inspect(name).await.map_err(from_images)
    }

    /// Gets what `reference` stands for in its registry now. Dropping the future gives it up; what was downloaded is kept.
    pub async fn pull_image(
        &self,
        who: &Principal,
        reference: &Reference,
        options: PullOptions,
        progress: Progress,
    ) -> Result<ImageDetail> {
        // Whoever sits between us and such a registry decides what all namespaces get under this name.
        let images = if options.insecure {
            self.core().images_to_name(who)?
        } else {
            self.core().images_to_change(who)?
        };
        let image = images.pull(reference, options, progress).await.map_err(from_images)?;
        detail(images, &image).await
    }

    pub async fn load_images(
        &self,
        who: &Principal,
        archive: Archive,
        platform: Platform,
    ) -> Result<Vec<ImageDetail>> {
        let images = self.core().images_to_name(who)?;
        let loaded = images.load(archive, platform).await.map_err(from_images)?;
        let mut details = Vec::with_capacity(loaded.len());
        for image in &loaded {
            details.push(detail(images, image).await?);
        }
        Ok(details)
    }

    /// An image of one layer from the tar of a root file system.
    pub async fn import_image(
        &self,
        who: &Principal,
        root: impl Read + Send + 'static,
        config: ImageConfig,
        platform: Platform,
        name: Reference,
    ) -> Result<ImageDetail> {
        let images = self.core().images_to_name(who)?;
        let image = images.import(root, config, platform, name).await.map_err(from_images)?;
        detail(images, &image).await
    }

    /// Writes images as one tar.
    pub async fn save_images(
        &self,
        who: &Principal,
        names: &[String],
        writer: impl Write + Send + 'static,
        format: Format,
    ) -> Result<()> {
        self.core().images_of(who)?.save_all(names, writer, format).await.map_err(from_images)
    }

    pub async fn tag_image(&self, who: &Principal, name: &str, further: &Reference) -> Result<()> {
        self.core().images_to_name(who)?.tag(name, further).await.map_err(from_images)
    }

    /// Takes a name away, and with its last one the image. By force also while it is used: then it goes with its last user.
    pub async fn remove_image(&self, who: &Principal, name: &str, force: Force) -> Result<Freed> {
        let in_use = match force {
            Force::Yes => InUse::Untag,
            Force::No => InUse::Refuse,
        };
        self.core().images_to_name(who)?.remove(name, in_use).await.map_err(from_images)
    }

    /// Removes every image that nobody uses.
    pub async fn prune_images(&self, who: &Principal) -> Result<Freed> {
        self.core().images_to_name(who)?.prune().await.map_err(from_images)
    }

    pub async fn images_usage(&self, who: &Principal) -> Result<DiskUsage> {
        self.core().images_of(who)?.disk_usage().await.map_err(from_images)
    }
}

async fn detail(images: &Images, image: &Image) -> Result<ImageDetail> {
    images.inspect(image.digest.as_str()).await.map_err(from_images)
}

impl Core {
    fn images(&self) -> Result<&Images> {
        self.config.images.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "this daemon keeps no images")
                .with_hint("Use the image `host`, or a daemon with the namespace back end.")
        })
    }

    fn images_of(&self, who: &Principal) -> Result<&Images> {
        self.keys.admit(who, self.clock.now())?;
        self.images()
    }

    fn images_to_change(&self, who: &Principal) -> Result<&Images> {
        who.may_change()?;
        self.images_of(who)
    }

    /// For what changes what a name stands for, in every namespace.
    fn images_to_name(&self, who: &Principal) -> Result<&Images> {
        who.may_change()?;
        if who.scope != Scope::All {
            let message = format!("{} may not name or remove images, which all namespaces share", who.name);
            return Err(Error::new(ErrorKind::Denied, message)
                .with_hint("Pull an image from a registry, or use a key for all namespaces."));
        }
        self.images_to_change(who)
    }
}

pub(crate) fn from_images(error: ::images::Error) -> Error {
    use ::images::Error as E;
    let (kind, hint) = match &error {
        E::Invalid { .. } => {
            (ErrorKind::InvalidRequest, "Write an image as alpine or registry.example/team/app:1.2.")
        }
        E::NotFound { .. } => {
            (ErrorKind::NotFound, "List images to see which are here, or pull it from its registry.")
        }
        E::Unauthorized { .. } => (
            ErrorKind::Denied,
            "Log in to the registry (docker login), or check the name: registries say the same of images that do not exist.",
        ),
        E::RateLimited { .. } => {
            (ErrorKind::LimitReached, "Try again later, log in to the registry, or use a mirror.")
        }
        E::Unavailable { .. } => (
            ErrorKind::Unavailable,
            "Check the registry's name and the network, then try again: what was downloaded is kept.",
        ),
        E::TimedOut { .. } => (ErrorKind::TimedOut, "Try again: what was downloaded is kept."),
        E::Corrupt { .. } | E::Refused { .. } => {
            (ErrorKind::InvalidRequest, "The image or archive is damaged or hostile; get it from elsewhere.")
        }
        E::TooLarge { .. } => (ErrorKind::LimitReached, "Use a smaller image."),
        E::InUse { .. } => (
            ErrorKind::WrongState,
            "Remove its users first, or remove it by force: then it goes with the last of them.",
        ),
        E::NoSpace { .. } => (
            ErrorKind::Unavailable,
            "Free space on the disk, or prune images and snapshots that are not needed.",
        ),
        E::Unsupported { .. } => (ErrorKind::Unsupported, "Use another image, or another platform of it."),
        E::Io { .. } => (ErrorKind::Unavailable, "Look at the daemon's data directory and its log."),
    };
    let mut message = error.to_string();
    if let E::Io { source, .. } = &error {
        message = format!("{message}: {source}");
    }
    Error::new(kind, message).with_hint(hint).with_source(error)
}
