//! The base of a new sandbox: from a name to layers on disk.

mod stand_in;

use std::{fs, path::Path, sync::Arc};

use images::{Image, ImageConfig, PullOptions, Reference};
use sandbox::{
    Base, BaseConfig, Error, ErrorKind, FileIdentity, Next, PullPolicy, Result, RootfsPlan, RootfsSpec,
    SandboxSpec, Thing,
};
use tokio::task::spawn_blocking;

use crate::{
    Principal, Progress,
    core::Core,
    images::{from_images, no_images},
    mounts, snapshots,
};

/// Working directory in an image that sets none.
const DEFAULT_CWD: &str = "/";
/// Most bytes of an image's configuration: the record of every sandbox on it contains them, and honest images need a
/// hundredth of this.
const MAX_CONFIG_BYTES: usize = 256 * 1024;
/// Longest path, by the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// A base, held until the new sandbox is known to use it.
#[derive(Debug)]
pub(crate) struct HeldBase {
    pub(crate) base: Base,
    /// While this exists, nothing of the image is collected.
    _image: Option<Image>,
}

impl HeldBase {
    pub(crate) fn new(base: Base, image: Option<Image>) -> Self {
        Self { base, _image: image }
    }
}

impl From<Base> for HeldBase {
    fn from(base: Base) -> Self {
        Self { base, _image: None }
    }
}

/// Finds the volumes and the requested image, snapshot, directory or disk; pulls a missing image.
pub(crate) async fn find(
    core: &Arc<Core>,
    who: &Principal,
    spec: &SandboxSpec,
    progress: &Progress,
) -> Result<HeldBase> {
    let volumes = mounts::find(core, who, spec).await?;
    let mut held = find_rootfs(core, who, spec, progress).await?;
    held.base.volumes = volumes;
    Ok(held)
}

async fn find_rootfs(
    core: &Arc<Core>,
    who: &Principal,
    spec: &SandboxSpec,
    progress: &Progress,
) -> Result<HeldBase> {
    match &spec.rootfs {
        None if spec.image.is_host() => Ok(Base::host().into()),
        None => find_image(core, who, spec, progress).await,
        Some(_) if !spec.image.is_host() => {
            Err(Error::invalid("a sandbox uses either an image or a rootfs, not both")
                .with_hint("Omit either image or rootfs."))
        }
        Some(RootfsSpec::Snapshot { snapshot }) => snapshots::base::find(core, who, spec, snapshot).await,
        Some(RootfsSpec::Directory { path, no_links, allowed }) => {
            check_host_path(who, path, *allowed)?;
            let (path_of, no_links) = (path.clone(), *no_links);
            let rootfs = RootfsPlan::Directory { path: path_of, identity: *allowed, no_links };
            check_kind(core, path, Kind::Directory).await?;
            Ok(on_host_path(rootfs))
        }
        Some(RootfsSpec::Disk { path, allowed }) => {
            check_host_path(who, path, *allowed)?;
            check_kind(core, path, Kind::File).await?;
            Ok(on_host_path(RootfsPlan::Disk { image: path.clone(), identity: *allowed }))
        }
    }
}

async fn find_image(
    core: &Arc<Core>,
    who: &Principal,
    spec: &SandboxSpec,
    progress: &Progress,
) -> Result<HeldBase> {
    let name = spec.image.as_str();
    let stand_in = stand_in::find(name);
    let wanted = stand_in.as_ref().filter(|_| spec.image_fallback);
    if !core.keeps_images() {
        return match wanted {
            Some(stand_in) => Ok(stand_in.base("this daemon keeps no images").into()),
            None => Err(no_images().with_next(Next::HostImage(stand_in::host_image(stand_in.is_some())))),
        };
    }
    let images = core.images().await?;
    if spec.pull != PullPolicy::Always {
        match images.get(name).await {
            Ok(image) => {
                core.metrics.image_found(true);
                return on_image(core, image);
            }
            Err(images::Error::NotFound { .. }) if spec.pull == PullPolicy::IfMissing => {}
            Err(images::Error::NotFound { .. }) => {
                let message = format!("image {name} does not exist here, and pulling is disabled");
                return Err(Error::new(ErrorKind::NotFound, message)
                    .about(Thing::Image, name)
                    .with_next(Next::Pull(name.to_owned())));
            }
            Err(error) => return Err(from_images(error)),
        }
    }
    core.metrics.image_found(false);
    let reference: Reference = name.parse().map_err(from_images)?;
    let options = PullOptions { reach: who.reach(), ..PullOptions::default() };
    let Some(wanted) = wanted else {
        let pulled = images.pull(&reference, options, progress.clone()).await;
        return on_image(core, pulled.map_err(|error| not_pulled(error, stand_in.is_some()))?);
    };
    if core.images.is_unreachable(reference.registry()) {
        return Ok(wanted.base("its registry could not be reached a moment ago").into());
    }
    match stand_in::pull_if_reachable(images, &reference, options, progress).await {
        Ok(image) => on_image(core, image),
        Err(error) if error.is_retryable() => {
            core.images.note_unreachable(reference.registry());
            Ok(wanted.base(&error.to_string()).into())
        }
        Err(error) => Err(from_images(error)),
    }
}

/// Why an image was not pulled. If its registry is out of reach, the image `host` is offered in its place.
fn not_pulled(error: images::Error, can_stand_in: bool) -> Error {
    let is_out_of_reach = matches!(error, images::Error::Unavailable { .. } | images::Error::TimedOut { .. });
    let error = from_images(error);
    match is_out_of_reach {
        true => error.with_next(Next::HostImage(stand_in::host_image(can_stand_in))),
        false => error,
    }
}

fn on_image(core: &Core, image: Image) -> Result<HeldBase> {
    let architecture = &image.platform.architecture;
    if image.platform.os != "linux" || *architecture != images::Platform::host().architecture {
        let message =
            format!("the image is built for {}/{architecture}, not for this machine", image.platform.os);
        return Err(Error::new(ErrorKind::Unsupported, message)
            .with_hint("Use an image that is built for this machine."));
    }
    let said = bytes_in(&image.config);
    if said > MAX_CONFIG_BYTES {
        let message = format!(
            "the configuration of image {} has {said} bytes; the limit is {MAX_CONFIG_BYTES}",
            image.digest
        );
        return Err(Error::new(ErrorKind::LimitReached, message)
            .with_hint("Use an image with fewer variables, labels and ports."));
    }
    let base = Base {
        rootfs: RootfsPlan::Image,
        image_digest: Some(image.digest.to_string()),
        config: config_of(&image.config, &core.config.defaults.user),
        ..Base::host()
    };
    Ok(HeldBase { base, _image: Some(image) })
}

/// The image's configuration as sandboxes see it. Invalid values count as absent.
fn config_of(config: &ImageConfig, default_user: &str) -> BaseConfig {
    let env = config.env.iter().filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let is_whole = !name.is_empty() && !pair.contains('\0');
        is_whole.then(|| (name.to_owned(), value.to_owned()))
    });
    let is_path = |cwd: &&str| cwd.starts_with('/') && cwd.len() < MAX_PATH_BYTES && !cwd.contains('\0');
    let cwd = config.working_dir.as_deref().filter(is_path);
    let user = config.user.as_deref().filter(|user| !user.is_empty());
    BaseConfig {
        env: env.collect(),
        user: Some(user.unwrap_or(default_user).to_owned()),
        cwd: Some(cwd.unwrap_or(DEFAULT_CWD).to_owned()),
        entrypoint: config.entrypoint.clone(),
        cmd: config.cmd.clone(),
        exposed_ports: config.exposed_ports.clone(),
        stop_signal: config.stop_signal.clone(),
        shell: config.shell.clone(),
        labels: config.labels.clone(),
    }
}

fn bytes_in(config: &ImageConfig) -> usize {
    let ImageConfig { env, entrypoint, cmd, exposed_ports, shell, labels, .. } = config;
    let lists = [env, entrypoint, cmd, exposed_ports, shell].into_iter().flatten().map(String::len);
    let labels = labels.iter().map(|(name, value)| name.len() + value.len());
    let words = [&config.user, &config.stop_signal].into_iter().flatten().map(String::len);
    lists.chain(labels).chain(words).sum()
}

fn on_host_path(rootfs: RootfsPlan) -> HeldBase {
    let config = BaseConfig { cwd: Some(DEFAULT_CWD.to_owned()), ..BaseConfig::default() };
    Base { rootfs, config, ..Base::host() }.into()
}

/// The daemon's owner may name any host path; for others a front end's policy must have allowed it.
fn check_host_path(who: &Principal, path: &Path, allowed: Option<FileIdentity>) -> Result<()> {
    if !who.is_owner && allowed.is_none() {
        let message = format!("{} may not use host paths", who.name);
        return Err(Error::new(ErrorKind::Denied, message)
            .with_hint("Use an image: import the files as one, or ask the daemon's owner to do so."));
    }
    if !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&0) {
        let message = format!("{} is not an absolute path", path.display());
        return Err(Error::invalid(message).with_hint("Give a host path that starts with /."));
    }
    Ok(())
}

/// The same for a path that an existing sandbox was made on.
pub(crate) async fn check_again(core: &Arc<Core>, who: &Principal, rootfs: &RootfsPlan) -> Result<()> {
    let (path, allowed, kind) = match rootfs {
        RootfsPlan::Directory { path, identity, .. } => (path, *identity, Kind::Directory),
        RootfsPlan::Disk { image, identity } => (image, *identity, Kind::File),
        RootfsPlan::Host | RootfsPlan::Image => return Ok(()),
    };
    check_host_path(who, path, allowed)?;
    check_kind(core, path, kind).await
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Directory,
    File,
}

/// Checks that the path is of this kind, and nothing of the daemon's own.
async fn check_kind(core: &Arc<Core>, path: &Path, kind: Kind) -> Result<()> {
    let (core, path) = (Arc::clone(core), path.to_owned());
    let checked = spawn_blocking(move || {
        let failed = |error| {
            Error::new(ErrorKind::NotFound, format!("cannot use {}: {error}", path.display()))
                .with_hint("Check the path, and that the daemon's user has access to it.")
        };
        let found = fs::metadata(&path).map_err(failed)?;
        mounts::check_apart(&path, &core.config)?;
        let (fits, wanted) = match kind {
            Kind::Directory => (found.is_dir(), "a directory"),
            Kind::File => {
                let fits = found.is_file() && mounts::has_ext4(&path).map_err(failed)?;
                (fits, "a file with an ext4 file system, as made by mkfs.ext4")
            }
        };
        if fits {
            return Ok(());
        }
        Err(Error::invalid(format!("{} is not {wanted}", path.display()))
            .with_hint(format!("Give {wanted} on the host.")))
    });
    checked
        .await
        .map_err(|error| Error::new(ErrorKind::Internal, "could not check a path").with_source(error))?
}
