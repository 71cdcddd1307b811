//! Keeps patches out of mounts. A patch changes a new sandbox's own files; a volume, or a directory of the host,
//! outlives it and belongs to others too. Names are checked before anything is made (`sandbox::check_patches`); only
//! here, inside, can links be followed.

use std::collections::VecDeque;

use guest_protocol::{Request, Response};
use sandbox::{Error, ErrorKind, Patch, Result};

use super::Work;

/// Most links on the way to one path: the kernel's limit.
const MAX_LINKS: usize = 40;

/// Whether a link at the end of a path means itself or its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Link,
    Target,
}

/// The mount points, with every link on the way followed.
#[derive(Debug, Default)]
pub(super) struct Fence(Vec<String>);

impl Fence {
    pub(super) async fn around(work: &Work<'_>, mounts: &[String]) -> Result<Self> {
        let mut all = Vec::with_capacity(mounts.len());
        for mount in mounts {
            all.push(real(work, mount, Last::Target).await?);
        }
        Ok(Self(all))
    }

    /// Refuses a patch that would change anything in a mount. Nothing else changes files meanwhile: the workload does
    /// not run yet.
    pub(super) async fn check(&self, work: &Work<'_>, patch: &Patch) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let itself = real(work, patch.path(), Last::Link).await?;
        let takes_away = matches!(patch, Patch::Remove { .. } | Patch::Symlink { .. });
        let reaches_down = takes_away || matches!(patch, Patch::CopyDir { .. });
        let target = if takes_away { itself.clone() } else { real(work, patch.path(), Last::Target).await? };
        for mount in &self.0 {
            if sandbox::is_beneath(&itself, mount) || sandbox::is_beneath(&target, mount) {
                return Err(refused(&format!("{} leads into the mount {mount}", patch.path())));
            }
            if reaches_down && sandbox::is_beneath(mount, &target) {
                return Err(refused(&format!("the mount {mount} is in {}", patch.path())));
            }
        }
        Ok(())
    }
}

fn refused(message: &str) -> Error {
    Error::invalid(message)
        .with_hint("Patches change the sandbox's own files; write to a mount once the sandbox runs.")
}

/// The path without links, `.` and `..`; a missing part keeps its name.
async fn real(work: &Work<'_>, path: &str, last: Last) -> Result<String> {
    let parts = |path: &str| path.split('/').map(ToOwned::to_owned).collect::<VecDeque<_>>();
    let (mut ahead, mut behind, mut n_links) = (parts(path), Vec::<String>::new(), 0);
    while let Some(part) = ahead.pop_front() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                behind.pop();
                continue;
            }
            _ => behind.push(part),
        }
        let is_last = ahead.iter().all(|part| part.is_empty());
        if is_last && last == Last::Link {
            break;
        }
        let Some(target) = link_target(work, &joined(&behind)).await? else { continue };
        n_links += 1;
        if n_links > MAX_LINKS {
            return Err(Error::invalid(format!("{path} follows more than {MAX_LINKS} symbolic links")));
        }
        if target.starts_with('/') {
            behind.clear();
        } else {
            behind.pop();
        }
        let mut before = parts(&target);
        before.append(&mut ahead);
        ahead = before;
    }
    Ok(joined(&behind))
}

fn joined(parts: &[String]) -> String {
    format!("/{}", parts.join("/"))
}

/// `None` for everything but a link. An error is left to the patch itself, which fails there too.
async fn link_target(work: &Work<'_>, path: &str) -> Result<Option<String>> {
    match work.ask(&Request::Stat { path: path.to_owned(), follow: false }).await {
        Ok(Response::Entry { entry }) => Ok(entry.target),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut) => Err(error),
        Err(_) => Ok(None),
    }
}
