//! Flags that choose what a new sandbox starts from: an image, a root file system or a snapshot.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sandbox::{Error, ErrorKind, ImageRef, PullPolicy, RootfsSpec, SandboxSpec};

use crate::error::CommandResult;

#[derive(Debug, Args)]
pub(super) struct GroundArgs {
    /// Image, such as alpine or registry.example/team/app:1.2; `host` is this machine's own programs, read-only
    #[arg(long, default_value = "host")]
    image: ImageRef,
    /// When to pull the image
    #[arg(long, value_enum, value_name = "WHEN", default_value = "missing")]
    pull: Pull,
    /// Use `host` if the image cannot be pulled and this machine has its interpreter (python, node)
    #[arg(long)]
    image_fallback: bool,
    /// Use a directory on this machine, or a file with an ext4 file system, instead of an image; neither is written to
    #[arg(long, value_name = "PATH", conflicts_with = "image")]
    rootfs: Option<PathBuf>,
    /// Use a snapshot instead of an image: its name or digest
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["image", "rootfs"])]
    snapshot: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pull {
    /// Ask the registry every time, so that a moved tag is noticed
    Always,
    /// Pull only if the image is not here
    #[value(alias = "if-missing")]
    Missing,
    Never,
}

impl GroundArgs {
    /// Adds these flags to the spec.
    pub(super) fn fill(&self, spec: &mut SandboxSpec) -> CommandResult<()> {
        spec.image = self.image.clone();
        spec.pull = match self.pull {
            Pull::Always => PullPolicy::Always,
            Pull::Missing => PullPolicy::IfMissing,
            Pull::Never => PullPolicy::Never,
        };
        spec.image_fallback = self.image_fallback;
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
        Error::new(ErrorKind::NotFound, format!("cannot use {}", path.display())).with_source(error)
    };
    let path = path.canonicalize().map_err(failed)?;
    if path.is_dir() {
        return Ok(RootfsSpec::Directory { path, no_links: false, allowed: None });
    }
    Ok(RootfsSpec::Disk { path, allowed: None })
}
