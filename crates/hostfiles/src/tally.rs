//! The counts of a copy, and the limits at which it stops.

use std::path::{Component, Path};

use crate::{Error, Result};

/// Paths of what was left out that a report names.
const MAX_NAMED: usize = 8;

/// The limits of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Files, directories and links.
    pub entries: u64,
    pub bytes: u64,
    /// Directories within each other: each holds a descriptor while it is copied.
    pub depth: usize,
}

/// How much of a tree is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// The caller's own tree: links wherever they lead, and on the way into a sandbox also pipes and setuid bits.
    Own,
    /// A tree that somebody else asks for: only links that stay inside it, no pipes, no bits that lend rights.
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub fidelity: Fidelity,
    pub limits: Limits,
}

impl Rules {
    /// Whether a link in a directory `depth` steps down the tree is copied.
    pub(crate) fn keeps_link(&self, target: &Path, depth: usize) -> bool {
        self.fidelity == Fidelity::Own || stays_inside(target, depth)
    }
}

/// The counts of one copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    pub bytes: u64,
    /// Entries that were left out, and the first of them by name.
    pub left_out: u64,
    pub left_out_paths: Vec<String>,
}

/// Counts, and holds the limits.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    limits: Limits,
}

impl Tally {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { counts: Counts::default(), limits }
    }

    pub(crate) fn room_for(&self, n_more: u64) -> Result<()> {
        let Counts { files, directories, links, left_out, .. } = &self.counts;
        let limit = self.limits.entries;
        if files + directories + links + left_out + n_more > limit {
            return Err(Error::TooMany { limit });
        }
        Ok(())
    }

    pub(crate) fn file(&mut self) -> Result<()> {
        self.one_more(|counts| &mut counts.files)
    }

    pub(crate) fn directory(&mut self) -> Result<()> {
        self.one_more(|counts| &mut counts.directories)
    }

    pub(crate) fn link(&mut self) -> Result<()> {
        self.one_more(|counts| &mut counts.links)
    }

    fn one_more(&mut self, number: impl FnOnce(&mut Counts) -> &mut u64) -> Result<()> {
        self.room_for(1)?;
        *number(&mut self.counts) += 1;
        Ok(())
    }

    pub(crate) fn bytes(&mut self, n_more: u64) -> Result<()> {
        self.counts.bytes = self.counts.bytes.saturating_add(n_more);
        let limit = self.limits.bytes;
        if self.counts.bytes > limit { Err(Error::TooLarge { limit }) } else { Ok(()) }
    }

    /// Refuses what lies in a directory this many steps down.
    pub(crate) fn depth(&self, depth: usize, path: impl FnOnce() -> std::path::PathBuf) -> Result<()> {
        let limit = self.limits.depth;
        if depth >= limit { Err(Error::TooDeep { path: path(), limit }) } else { Ok(()) }
    }

    pub(crate) fn leave_out(&mut self, path: &Path) -> Result<()> {
        self.one_more(|counts| &mut counts.left_out)?;
        if self.counts.left_out_paths.len() < MAX_NAMED {
            self.counts.left_out_paths.push(path.to_string_lossy().into_owned());
        }
        Ok(())
    }
}

/// Whether a link in a directory `depth` steps down a tree leads to something in the tree. Steps up may only come
/// first: after a name they would lead up from wherever that name leads, if it is a link itself.
fn stays_inside(target: &Path, depth: usize) -> bool {
    let mut n_up = 0;
    let mut has_names = false;
    for component in target.components() {
        match component {
            Component::Normal(_) => has_names = true,
            Component::CurDir => {}
            Component::ParentDir if !has_names => n_up += 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    n_up <= depth && !target.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_could_leave_the_tree_are_known() {
        for (target, depth, inside) in [
            ("a", 0, true),
            ("./a/b", 0, true),
            ("..foo", 0, true),
            ("..", 0, false),
            ("../x", 1, true),
            ("../../x", 1, false),
            ("/etc/passwd", 3, false),
            // `a` may be a link to the top of the tree.
            ("a/..", 2, false),
            ("", 2, false),
        ] {
            assert_eq!(stays_inside(Path::new(target), depth), inside, "{target} at {depth}");
        }
    }
}
