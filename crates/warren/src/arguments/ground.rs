//! What a new sandbox is made on, as flags.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sandbox::{Error, ErrorKind, ImageRef, PullPolicy, RootfsSpec, SandboxSpec};

use crate::error::CommandResult;

#[derive(Debug, Args)]
pub(super) struct GroundArgs {
    /// Image: `host` is this machine's own programs, read-only; else a name such as alpine or registry.example/team/app:1.2
    #[arg(long, default_value = "host")]
    image: ImageRef,
    /// When the registry is asked for the image
    #[arg(long, value_enum, value_name = "WHEN", default_value = "missing")]
    pull: Pull,
    /// In place of an image: a directory of this machine, or a file with an ext4 file system; neither is written to
    #[arg(long, value_name = "PATH", conflicts_with = "image")]
    rootfs: Option<PathBuf>,
    /// In place of an image: a snapshot, by name or digest
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["image", "rootfs"])]
    snapshot: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pull {
    /// Every time, so that a moved tag is noticed
    Always,
    /// When it is not here
    #[value(alias = "if-missing")]
    Missing,
    Never,
}

impl GroundArgs {
    /// Adds what was asked to the spec.
    pub(super) fn fill(&self, spec: &mut SandboxSpec) -> CommandResult<()> {
        spec.image = self.image.clone();
        spec.pull = match self.pull {
            Pull::Always => PullPolicy::Always,
            Pull::Missing => PullPolicy::IfMissing,
            Pull::Never => PullPolicy::Never,
        };
        spec.rootfs = match (&self.rootfs, &self.snapshot) {
            (Some(path), _) => Some(rootfs(path)?),
            (None, Some(snapshot)) => Some(RootfsSpec::Snapshot { snapshot: snapshot.clone() }),
            (None, None) => None,
        };
        Ok(())
    }
}

fn rootfs(path: &Path) -> CommandResult<RootfsSpec> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::NotFound, format!("{} cannot be used", path.display())).with_source(error)
    };
    let path = path.canonicalize().map_err(failed)?;
    if path.is_dir() {
        return Ok(RootfsSpec::Directory { path, allowed: None });
    }
    Ok(RootfsSpec::Disk { path, allowed: None })
}
