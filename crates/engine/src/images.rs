//! Images, for callers: permissions, and errors in words for people.
//!
//! Images belong to the host: every namespace sees them, and only callers with full access name or remove them.
//! Otherwise one tenant could put its own image under a name that another one uses.

use std::{
    collections::{BTreeMap, HashMap},
    io::{Read, Write},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use ::images::{
    Credentials, Digest, DiskUsage, Format, Freed, Image, ImageConfig, ImageDetail, ImageSummary, Images,
    InUse, Platform, Progress, PullOptions, Reference, Users,
};
use sandbox::{Error, ErrorKind, Next, Result, Setting, Thing};
use tokio::sync::OnceCell;

use crate::{
    Engine, Force, Principal, Scope,
    core::{Core, until},
    shared::Shared,
};

impl Engine {
    /// All images, by their first name.
    #[crate::boxed]
    pub async fn images(&self, who: &Principal) -> Result<Vec<ImageSummary>> {
        let mut images = self.core().images_of(who).await?.list().await.map_err(from_images)?;
        images.iter_mut().for_each(|image| hide_strangers(who, image));
        Ok(images)
    }

    #[crate::boxed]
    pub async fn image(&self, who: &Principal, name: &str) -> Result<ImageDetail> {
        let mut image = self.core().images_of(who).await?.inspect(name).await.map_err(from_images)?;
        hide_strangers(who, &mut image.summary);
        Ok(image)
    }

    /// Pulls the image that `reference` names in its registry now. Dropping the future cancels it; downloaded data is
    /// kept.
    #[crate::boxed]
    pub async fn pull_image(
        &self,
        who: &Principal,
        reference: &Reference,
        options: PullOptions,
        progress: Progress,
    ) -> Result<ImageDetail> {
        // An attacker between us and such a registry would decide what all namespaces get under this name.
        let images = if options.insecure {
            self.core().images_to_name(who).await?
        } else {
            self.core().images_to_change(who).await?
        };
        let options = PullOptions { reach: who.reach(), ..options };
        let image = images.pull(reference, options, progress).await.map_err(from_registry)?;
        let mut image = detail(images, &image).await?;
        hide_strangers(who, &mut image.summary);
        Ok(image)
    }

    /// Uploads an image of this host to where `target` names it. Returns the digest of its manifest there.
    #[crate::boxed]
    pub async fn push_image(
        &self,
        who: &Principal,
        name: &str,
        target: &Reference,
        options: PullOptions,
        progress: Progress,
    ) -> Result<Digest> {
        let images = self.core().images_to_name(who).await?;
        let options = PullOptions { reach: who.reach(), ..options };
        images.push(name, target, options, progress).await.map_err(from_images)
    }

    /// Whether a registry accepts these credentials. They are not kept.
    #[crate::boxed]
    pub async fn check_registry_login(
        &self,
        who: &Principal,
        registry: &str,
        credentials: Credentials,
        insecure: bool,
    ) -> Result<()> {
        let images = self.core().images_to_name(who).await?;
        let credentials = Some(credentials);
        let options = PullOptions { credentials, insecure, reach: who.reach(), ..PullOptions::default() };
        images.check_login(registry, options).await.map_err(from_images)
    }

    pub async fn load_images(
        &self,
        who: &Principal,
        archive: impl Read + Send + 'static,
        platform: Option<Platform>,
    ) -> Result<Vec<ImageDetail>> {
        let images = self.core().images_to_name(who).await?;
        let loaded = images.load(archive, platform).await.map_err(from_images)?;
        let mut details: Vec<ImageDetail> = Vec::with_capacity(loaded.len());
        for image in &loaded {
            // An image with several names may come once for each.
            if details.iter().all(|known| known.summary.digest != image.digest) {
                details.push(detail(images, image).await?);
            }
        }
        Ok(details)
    }

    /// Makes an image of one layer from the tar of a root file system.
    pub async fn import_image(
        &self,
        who: &Principal,
        root: impl Read + Send + 'static,
        config: ImageConfig,
        platform: Platform,
        name: Reference,
    ) -> Result<ImageDetail> {
        let images = self.core().images_to_name(who).await?;
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
        self.core().images_of(who).await?.save_all(names, writer, format).await.map_err(from_images)
    }

    #[crate::boxed]
    pub async fn tag_image(&self, who: &Principal, name: &str, further: &Reference) -> Result<()> {
        self.core().images_to_name(who).await?.tag(name, further).await.map_err(from_images)
    }

    /// Removes a name, and with the last name the image. By force even while it is in use: then it goes with its last
    /// user.
    #[crate::boxed]
    pub async fn remove_image(&self, who: &Principal, name: &str, force: Force) -> Result<Freed> {
        let in_use = match force {
            Force::Yes => InUse::Untag,
            Force::No => InUse::Refuse,
        };
        self.core().images_to_name(who).await?.remove(name, in_use).await.map_err(from_images)
    }

    /// Removes every image that nobody uses.
    #[crate::boxed]
    pub async fn prune_images(&self, who: &Principal) -> Result<Freed> {
        self.core().images_to_name(who).await?.prune().await.map_err(from_images)
    }

    #[crate::boxed]
    pub async fn images_usage(&self, who: &Principal) -> Result<DiskUsage> {
        self.core().images_of(who).await?.disk_usage().await.map_err(from_images)
    }
}

/// Hides an image's users from callers of one namespace.
fn hide_strangers(who: &Principal, image: &mut ImageSummary) {
    if who.scope != Scope::All {
        image.used_by.clear();
    }
}

async fn detail(images: &Images, image: &Image) -> Result<ImageDetail> {
    images.inspect(image.digest.as_str()).await.map_err(from_images)
}

/// How long an unreachable registry is not asked again for an image that the host can stand in for.
const UNREACHABLE_FOR: Duration = Duration::from_secs(60);
/// Most registries remembered as unreachable.
const MAX_UNREACHABLE: usize = 16;

/// The image store, opened on first use.
#[derive(Debug, Default)]
pub(crate) struct ImageStore {
    opened: OnceCell<Images>,
    /// Registries that could not be reached, and when.
    unreachable: Mutex<HashMap<String, Instant>>,
}

impl ImageStore {
    /// Returns the store's disk usage, unless nobody has needed the store yet: then it stays closed.
    pub(crate) async fn usage_if_open(&self) -> Option<DiskUsage> {
        self.opened.get()?.disk_usage().await.ok()
    }

    /// Whether this registry need not be asked now. Why it could not be reached is not kept: the reason names the image
    /// that was asked for then.
    pub(crate) fn is_unreachable(&self, registry: &str) -> bool {
        let noted = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner);
        noted.get(registry).is_some_and(|since| since.elapsed() < UNREACHABLE_FOR)
    }

    pub(crate) fn note_unreachable(&self, registry: &str) {
        let mut noted = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_registry, since| since.elapsed() < UNREACHABLE_FOR);
        if noted.len() < MAX_UNREACHABLE {
            noted.insert(registry.to_owned(), Instant::now());
        }
    }
}

/// Reports the users of images, from the engine's records, to the image store.
#[derive(Debug)]
struct Records(Weak<Core>);

impl Users for Records {
    fn of_images(&self) -> Option<BTreeMap<Digest, Vec<String>>> {
        // Without the engine, or while a sandbox is unknown, the users are unknown.
        let core = self.0.upgrade()?;
        core.knows_all_sandboxes().then(|| core.image_users())
    }
}

/// Removes images that an earlier daemon left half-made. Only when every sandbox is known, so that nothing in use is
/// removed.
pub(crate) async fn open_behind(core: &Arc<Core>) {
    if core.config.images.is_none() || !core.config.home.join("images").exists() {
        return;
    }
    if let Err(error) = core.images().await {
        tracing::warn!(%error, "the images cannot be opened; will retry when they are needed");
    }
}

/// Removes an unnamed image with its last user, in the background: the removal of a sandbox does not wait for that.
pub(crate) fn user_gone(core: &Arc<Core>, shared: &Shared) {
    if shared.image_digest.is_some() {
        collect_behind(core);
    }
}

/// Removes every image without a name and a user, in the background.
pub(crate) fn collect_behind(core: &Arc<Core>) {
    let Some(images) = core.images.opened.get().cloned() else { return };
    let closing = core.closing.clone();
    core.drivers.spawn(async move {
        until(&closing, async {
            if let Err(error) = images.collect().await {
                tracing::warn!(%error, "an image that nobody uses could not be removed");
            }
        })
        .await;
    });
}

impl Core {
    /// Whether there can be images other than `host`.
    pub(crate) fn keeps_images(&self) -> bool {
        self.config.images.is_some()
    }

    pub(crate) async fn images(self: &Arc<Self>) -> Result<&Images> {
        let options = self.config.images.as_ref().ok_or_else(no_images)?;
        let open = || {
            let users = Arc::new(Records(Arc::downgrade(self)));
            Images::open(&self.config.home, ::images::Options { users, ..options.clone() })
        };
        self.images.opened.get_or_try_init(open).await.map_err(from_images)
    }

    /// The image with exactly this manifest, if it is stored here.
    pub(crate) async fn image_by_digest(self: &Arc<Self>, digest: &str) -> Result<Image> {
        self.images().await?.get(digest).await.map_err(from_images)
    }

    /// Writes the image with this digest, and its name, for a snapshot made on it.
    pub(crate) async fn save_image_to(
        self: &Arc<Self>,
        digest: &str,
        writer: impl Write + Send + 'static,
    ) -> Result<()> {
        let image = self.image_by_digest(digest).await?;
        let images = self.images().await?;
        images.save_with_names(image, writer, Format::Oci).await.map_err(from_images)
    }

    /// Loads the image with this digest, for a snapshot made on it.
    pub(crate) async fn load_image_from(
        self: &Arc<Self>,
        who: &Principal,
        digest: &str,
        reader: impl Read + Send + 'static,
    ) -> Result<()> {
        let images = self.images_to_name(who).await?;
        let loaded = images.load(reader, None::<Platform>).await;
        let loaded = loaded.map_err(from_images)?;
        match loaded.iter().any(|image| image.digest.as_str() == digest) {
            true => Ok(()),
            false => {
                Err(Error::invalid(format!("image {digest} is listed in the archive but missing from it")))
            }
        }
    }

    /// All users of each image, by digest. Sandboxes in the making count: once registered, nothing else needs to hold
    /// the image for them.
    fn image_users(&self) -> BTreeMap<Digest, Vec<String>> {
        let mut users: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
        let mut uses = |digest: &str, user: String| {
            if let Ok(digest) = digest.parse() {
                users.entry(digest).or_default().push(user);
            }
        };
        self.each(|shared| {
            if let Some(digest) = &shared.image_digest {
                uses(digest, shared.label().to_string());
            }
        });
        self.snapshots.each_image(&mut uses);
        users.values_mut().for_each(|users| users.sort_unstable());
        users
    }

    async fn images_of(self: &Arc<Self>, who: &Principal) -> Result<&Images> {
        self.keys.admit(who, self.clock.now())?;
        who.may_see_images()?;
        self.images().await
    }

    async fn images_to_change(self: &Arc<Self>, who: &Principal) -> Result<&Images> {
        who.may_change()?;
        self.images_of(who).await
    }

    /// For changes of what a name means, in every namespace.
    pub(crate) async fn images_to_name(self: &Arc<Self>, who: &Principal) -> Result<&Images> {
        who.may_change()?;
        if who.scope != Scope::All {
            let message = format!("{} may not name or remove images, which all namespaces share", who.name);
            return Err(Error::new(ErrorKind::Denied, message)
                .with_hint("Pull an image from a registry, or use a key for all namespaces."));
        }
        self.images_to_change(who).await
    }
}

pub(crate) fn no_images() -> Error {
    Error::new(ErrorKind::Unsupported, "this daemon keeps no images")
        .with_hint("Use the image `host`, or a daemon with a back end that has images.")
}

/// The same for an error of the image's registry.
fn from_registry(error: ::images::Error) -> Error {
    let is_missing = matches!(error, ::images::Error::NotFound { .. });
    let error = from_images(error);
    match is_missing {
        true => error.with_hint("Check the image's name and tag: the registry has no such image."),
        false => error,
    }
}

pub(crate) fn from_images(error: ::images::Error) -> Error {
    use ::images::Error as E;
    let mut message = error.to_string();
    if let E::Io { source, .. } = &error {
        message = format!("{message}: {source}");
    }
    let told = |kind| Error::new(kind, message);
    let (kind, hint) = match &error {
        E::Invalid { .. } => {
            (ErrorKind::InvalidRequest, "Write an image as alpine or registry.example/team/app:1.2.")
        }
        E::NotFound { .. } => {
            return told(ErrorKind::NotFound).with_next(Next::List(Thing::Image)).with_source(error);
        }
        E::Unauthorized { .. } => {
            return told(ErrorKind::Denied).with_next(Next::LogIn).with_source(error);
        }
        E::Denied { .. } => {
            let next = Next::Configure(Setting::Registries);
            return told(ErrorKind::Denied).with_next(next).with_source(error);
        }
        E::RateLimited { .. } => {
            (ErrorKind::LimitReached, "Try again later, log in to the registry, or use a mirror.")
        }
        E::Unavailable { .. } => (
            ErrorKind::Unavailable,
            "Check the registry's name and the network, then try again: what was already sent or downloaded is kept.",
        ),
        E::TimedOut { .. } => {
            (ErrorKind::TimedOut, "Try again: what was already sent or downloaded is kept.")
        }
        E::Corrupt { .. } | E::Refused { .. } => {
            (ErrorKind::InvalidRequest, "The image or archive is damaged or hostile; get it from elsewhere.")
        }
        E::TooLarge { .. } => (ErrorKind::LimitReached, "Use a smaller image."),
        E::InUse { .. } => {
            return told(ErrorKind::WrongState).with_next(Next::RemoveUsers(Thing::Image)).with_source(error);
        }
        E::NoSpace { .. } => {
            (ErrorKind::Unavailable, "Free disk space, or prune images and snapshots you no longer need.")
        }
        E::NoImages => (
            ErrorKind::Unsupported,
            "It is not an image archive; a root file system in a tar becomes an image by an import.",
        ),
        E::Compression { .. } => (ErrorKind::Unsupported, "Compress it with gzip or zstd, or not at all."),
        E::Unsupported { .. } => (ErrorKind::Unsupported, "Use another image, or another platform of it."),
        E::Io { .. } => (ErrorKind::Unavailable, "Check the daemon's data directory and its log."),
    };
    told(kind).with_hint(hint).with_source(error)
}
