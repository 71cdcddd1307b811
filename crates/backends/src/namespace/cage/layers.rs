//! The layers below a sandbox's own files: from a plan to lower directories, and how the child reaches them.

use std::path::{Path, PathBuf};

use jail::{FileIdentity, HandedLayer, MountFlag, StagePath, Step};
use sandbox::{RootfsPlan, SandboxPlan};

use super::{Beneath, Ground, has_fixed_usr, layer_name};
use crate::namespace::skeleton::Skeleton;

/// Lower directories of the overlays, topmost first. `usr` is empty if `/usr` is not an overlay of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lowers<T = PathBuf> {
    pub(crate) root: Vec<T>,
    pub(crate) usr: Vec<T>,
}

/// A lower directory on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Directory {
        path: PathBuf,
        identity: Option<FileIdentity>,
    },
    Disk {
        image: PathBuf,
        identity: Option<FileIdentity>,
    },
    /// There is nothing below.
    Nothing,
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Self {
        Self::Directory { path, identity: None }
    }
}

pub(crate) type Sources = Lowers<Source>;

impl Sources {
    pub(crate) fn of(plan: &SandboxPlan, ground: &Ground, beneath: &Beneath) -> Self {
        let mut root: Vec<Source> = beneath.root.iter().cloned().map(Source::from).collect();
        let mut usr = Vec::new();
        match &plan.rootfs {
            RootfsPlan::Host => {
                let Skeleton { directory, usr: own, .. } = &ground.skeleton;
                root.push(directory.clone().into());
                if !has_fixed_usr(plan, ground) {
                    let lowers = beneath.usr.iter().chain(own).cloned().chain([PathBuf::from("/usr")]);
                    usr = lowers.map(Source::from).collect();
                }
            }
            RootfsPlan::Image => root.extend(beneath.image.iter().cloned().map(Source::from)),
            RootfsPlan::Directory { path, identity, .. } => {
                root.push(Source::Directory { path: path.clone(), identity: identity.map(identity_of) });
            }
            RootfsPlan::Disk { image, identity } => {
                root.push(Source::Disk { image: image.clone(), identity: identity.map(identity_of) });
            }
        }
        if root.is_empty() {
            root.push(Source::Nothing);
        }
        Self { root, usr }
    }

    fn map(&self, mut place: impl FnMut(&Source) -> PathBuf) -> Lowers {
        Lowers {
            root: self.root.iter().map(&mut place).collect(),
            usr: self.usr.iter().map(&mut place).collect(),
        }
    }
}

fn identity_of(identity: sandbox::FileIdentity) -> FileIdentity {
    FileIdentity { device: identity.device, inode: identity.inode }
}

/// As mounts with the sandbox's own ids, below the stage; `own` comes last.
pub(crate) fn handed(
    sources: &Sources,
    ground: &Ground,
    own: HandedLayer,
    steps: &mut Vec<Step>,
) -> (Lowers, PathBuf, Vec<HandedLayer>) {
    let mut layers: Vec<HandedLayer> = Vec::new();
    let mut place_of = |layer: HandedLayer| {
        let known = layers.iter().position(|known| *known == layer);
        let number = known.unwrap_or_else(|| {
            layers.push(layer);
            layers.len() - 1
        });
        ground.stage.join(layer_name(number))
    };
    let read_only =
        |path: &Path, identity| HandedLayer::Directory { path: path.to_owned(), read_only: true, identity };
    let lowers = sources.map(|source| match source {
        Source::Directory { path, identity } => match in_pool(ground, path) {
            Some((pool, rest)) => place_of(read_only(pool, None)).join(rest),
            None => place_of(read_only(path, *identity)),
        },
        Source::Disk { image, identity } => {
            place_of(HandedLayer::ReadOnlyImage { path: image.clone(), identity: *identity })
        }
        Source::Nothing => ground.stage.join("empty"),
    });
    let own_place = ground.stage.join("own");
    let names = (0..layers.len()).map(layer_name).chain(["own".to_owned()]).enumerate();
    let attach = |(layer, name)| Step::Attach { layer, at: StagePath::new(&ground.stage, name) };
    steps.extend(names.map(attach));
    layers.push(own);
    (lowers, own_place, layers)
}

fn in_pool<'a>(ground: &'a Ground, path: &'a Path) -> Option<(&'a Path, &'a Path)> {
    let found = ground.pools.iter().find_map(|pool| Some((pool.as_path(), path.strip_prefix(pool).ok()?)));
    found.filter(|(_, rest)| !rest.as_os_str().is_empty())
}

/// At their host paths: the child sees the host's files with its own ids.
pub(crate) fn shown(sources: &Sources, stage: &Path, steps: &mut Vec<Step>) -> Lowers {
    let mut n_held = 0;
    sources.map(|source| match source {
        Source::Directory { path, identity: None } => path.clone(),
        Source::Directory { path, identity: Some(identity) } => {
            // Opened first and checked then: another directory may be at the path the next time.
            let name = layer_name(n_held);
            let at = StagePath::new(stage, name.as_str());
            n_held += 1;
            let flags = vec![MountFlag::ReadOnly, MountFlag::NoSuid, MountFlag::NoDev];
            steps.push(Step::Bind { from: path.clone(), at: at.clone(), flags });
            steps.push(Step::Expect { at, identity: *identity });
            stage.join(name)
        }
        // Already refused earlier.
        Source::Disk { image, .. } => image.clone(),
        Source::Nothing => stage.join("empty"),
    })
}
