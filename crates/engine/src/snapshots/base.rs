//! A snapshot as the base of a new sandbox, and a sandbox's spec from a snapshot.

use std::sync::Arc;

use images::Image;
use sandbox::{Base, BaseConfig, Error, ErrorKind, Next, Result, RootfsPlan, SandboxSpec, Thing};
use store::SandboxRecord;

use super::{SnapshotRef, registry::Snapshot};
use crate::{
    Principal,
    base::{HeldBase, check_again},
    core::Core,
};

/// The base of the snapshot called `text`, for a sandbox in the same namespace.
pub(crate) async fn find(
    core: &Arc<Core>,
    who: &Principal,
    spec: &SandboxSpec,
    text: &str,
) -> Result<HeldBase> {
    let which = SnapshotRef::new(text, Some(spec.namespace.clone()))?;
    let snapshot = core.snapshots.find(who, &which)?;
    if snapshot.record.namespace != spec.namespace {
        let message = format!("{} is in another namespace: {}", snapshot.label(), snapshot.record.namespace);
        return Err(Error::new(ErrorKind::Denied, message)
            .with_hint("Create the sandbox in the snapshot's namespace."));
    }
    let chain = core.snapshots.chain(&snapshot)?;
    let image = image_beneath(core, &snapshot).await?;
    let rootfs = match (&snapshot.manifest.host_path, &image) {
        (Some(path), _) => {
            // A path stays allowed for those it was allowed for, as with mounts.
            check_again(core, who, path).await?;
            path.clone()
        }
        (None, Some(_)) => RootfsPlan::Image,
        (None, None) => RootfsPlan::Host,
    };
    let base = Base {
        rootfs,
        // By the name it had then.
        image: Some(snapshot.manifest.image.clone()),
        above: chain.iter().map(|snapshot| snapshot.record.id.clone()).collect(),
        image_digest: snapshot.manifest.image_digest.clone(),
        snapshot: Some(snapshot.record.digest.clone()),
        config: snapshot.manifest.config.clone(),
        ..Base::host()
    };
    Ok(HeldBase::new(base, image))
}

async fn image_beneath(core: &Arc<Core>, snapshot: &Snapshot) -> Result<Option<Image>> {
    let Some(digest) = &snapshot.manifest.image_digest else { return Ok(None) };
    let image = &snapshot.manifest.image;
    let missing = |source: Error| {
        let message =
            format!("{} is based on image {image} ({digest}), which does not exist here", snapshot.label());
        Error::new(ErrorKind::NotFound, message)
            .about(Thing::Image, image.as_str())
            .with_next(Next::Pull(format!("{image}@{digest}")))
            .with_source(source)
    };
    core.image_by_digest(digest).await.map(Some).map_err(missing)
}

/// The configuration inherited from a sandbox: its image's, with the changes of its spec.
pub(crate) fn config_of(source: &SandboxRecord) -> BaseConfig {
    let mut config = source.plan.config.clone();
    let is_said = |name: &String| source.spec.env.contains_key(name);
    config.env.retain(|(name, _)| !is_said(name));
    config.env.extend(source.spec.env.clone());
    config.cwd = source.spec.cwd.clone().or(config.cwd);
    config.user = source.spec.user.clone().or(config.user);
    config
}
