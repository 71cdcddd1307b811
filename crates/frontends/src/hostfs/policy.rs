//! The paths of the host that a caller may touch.

use std::path::{Component, Path, PathBuf};

use engine::{Principal, Scope};
use sandbox::{Error, Result};
use serde::{Deserialize, Serialize};

/// The paths of the host that a caller may touch: none, unless someone who may say so did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostPolicy {
    pub roots: Vec<HostRoot>,
    /// No check at all.
    pub unrestricted: bool,
    /// The client's working directory: relative host paths begin here. Absent: they are refused.
    pub working_directory: Option<PathBuf>,
}

impl HostPolicy {
    /// Refuses a path that may only be read and lies beneath one that may be written: copying a tree onto the outer one
    /// would write into it. For whoever takes the settings; blocks on the host's files.
    pub fn check(&self) -> Result<()> {
        if self.unrestricted {
            return Ok(());
        }
        for inner in self.roots.iter().filter(|root| !root.write) {
            let beneath = |outer: &&HostRoot| {
                outer.names().iter().any(|outer| inner.names().iter().any(|inner| inner.starts_with(outer)))
            };
            if let Some(outer) = self.roots.iter().filter(|root| root.write).find(beneath) {
                let (inner, outer) = (inner.path.display(), outer.path.display());
                return Err(Error::invalid(format!(
                    "{inner} is read-only but is below {outer}, which is writable"
                ))
                .with_hint("Allow writing only to directories that do not contain it."));
            }
        }
        Ok(())
    }

    /// The policy's name and its paths, for those alone who may touch the host.
    pub(crate) fn told_to(&self, who: &Principal) -> (&'static str, &[HostRoot]) {
        match (&who.scope, self.unrestricted) {
            (Scope::One(_) | Scope::Sandbox { .. } | Scope::Maker { .. }, _) => ("none", &[]),
            (Scope::All, true) => ("unrestricted", &self.roots),
            (Scope::All, false) => ("allowlist", &self.roots),
        }
    }
}

/// A directory or file of the host, with all beneath it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostRoot {
    pub path: PathBuf,
    pub write: bool,
}

impl HostRoot {
    /// Whether a path lies beneath it, by either name. Blocks on the host's files.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.names().iter().any(|name| path.starts_with(name))
    }

    /// As the operator named it, and where that leads.
    pub(super) fn names(&self) -> Vec<PathBuf> {
        let named = normal(&self.path);
        let real = self.path.canonicalize().ok().filter(|real| *real != named);
        std::iter::once(named).chain(real).collect()
    }
}

/// Without `.` and `..`, which are meant as text. The kernel sees names only.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut result = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => result.push(name),
            Component::ParentDir => drop(result.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_only_be_read_does_not_lie_beneath_what_may_be_written() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("data/secret")).unwrap();
        std::os::unix::fs::symlink("data", home.path().join("door")).unwrap();
        let policy = |roots: &[(&str, bool)], unrestricted| {
            let root =
                |(path, write): &(&str, bool)| HostRoot { path: home.path().join(path), write: *write };
            HostPolicy { roots: roots.iter().map(root).collect(), unrestricted, working_directory: None }
        };
        for (inner, outer) in [
            ("data/secret", "data"),
            ("data", "data"),
            ("data/not-yet", "data"),
            ("data/../data/secret", "data/./secret/.."),
            // By another name.
            ("data/secret", "door"),
            ("door/secret", "data"),
        ] {
            let nested = policy(&[(outer, true), (inner, false)], false);
            let error = nested.check().unwrap_err();
            assert!(error.to_string().contains(inner) && error.next().is_some(), "{error:?}");
            assert!(HostPolicy { unrestricted: true, ..nested }.check().is_ok());
        }
        for fine in [&[("data", false), ("data/secret", true)][..], &[("data", true), ("data-2", false)], &[]]
        {
            assert!(policy(fine, false).check().is_ok(), "{fine:?}");
        }
    }
}
