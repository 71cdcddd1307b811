//! The differences between two overlays with the same lower layers.
//!
//! Layers are merged as the kernel does it: the topmost one that has a name decides; directories of one name are
//! merged, down to the first that is opaque, hidden by a whiteout or not a directory. Only the upper layers are
//! searched, so a diff costs as much as was changed, not as much as exists. The layers may be written to meanwhile:
//! every directory is looked up again by its path on the way back, and removed ones are not reported.

mod compare;
mod merge;
mod patch;

use std::{
    ffi::{CStr, CString},
    os::fd::BorrowedFd,
    time::Instant,
};

use rustix::fs::Stat;

use self::{
    compare::{Same, compare_contents, is_same_metadata},
    merge::{Layers, Node, Stack},
    patch::{Patch, Written},
};
use crate::{attributes::Reader, error::Result};

/// Deepest directory that is searched.
const MAX_DEPTH: usize = 4096;
/// Most bytes of paths in one answer.
const MAX_PATHS_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug, Clone)]
pub struct Overlay<'a> {
    /// Its mount point; empty for `/`.
    pub at: Vec<Vec<u8>>,
    /// Topmost first: the layers only of the current state, then those only of the compared one, then those of both.
    pub layers: Vec<BorrowedFd<'a>>,
    pub n_new: usize,
    pub n_old: usize,
}

/// The changes to report.
#[derive(Debug, Clone, Default)]
pub struct DiffOptions {
    /// Components of a path: only it and its contents; empty for everything.
    pub under: Vec<Vec<u8>>,
    pub with_patch: bool,
    pub max_changes: usize,
    pub max_patch_bytes: usize,
    /// At this time it ends with what it has, as if there were too many changes.
    pub until: Option<Instant>,
    /// Files that were added from outside, as path and content: not a change while they are unchanged.
    pub given_files: Vec<(Vec<u8>, Vec<u8>)>,
    /// The same for directories, as path and mode. Their contents are reported.
    pub given_directories: Vec<(Vec<u8>, u32)>,
}

/// In the order of paths, a directory before its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    pub changes: Vec<Change>,
    /// There are more, or the time was up.
    pub changes_cut: bool,
    /// As `diff -u` writes it, for `patch -p1`; names and empty files as in git.
    pub patch: Option<String>,
    pub patch_cut: bool,
    /// Changed files and links that the patch leaves out: not text, or too long.
    pub patch_left_out: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Absolute, as seen inside.
    pub path: Vec<u8>,
    pub kind: ChangeKind,
    /// Its current kind, or the last one.
    pub file: FileKind,
    /// Length now; 0 for removed entries and for directories.
    pub size: u64,
    /// The content is the same; owner, mode or attributes are not.
    pub only_metadata: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Removed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Link,
    Fifo,
    Socket,
    Device,
}

/// Compares. Overlays should be in the order of their mount points.
pub fn diff(overlays: &[Overlay<'_>], options: &DiffOptions) -> Result<Diff> {
    let mut builder = DiffBuilder {
        diff: Diff { patch: options.with_patch.then(String::new), ..Diff::default() },
        options,
        paths_bytes: 0,
        reader: Reader::default(),
        headers: Vec::new(),
        headers_bytes: 0,
    };
    for overlay in overlays {
        if builder.diff.changes_cut {
            break;
        }
        let shared = overlay.at.iter().zip(&options.under).take_while(|(one, other)| one == other).count();
        // Only an overlay that is mounted below the path, or that the path leads into.
        if shared == overlay.at.len() || shared == options.under.len() {
            let under = options.under.get(overlay.at.len()..).unwrap_or_default();
            Comparison {
                overlay,
                layers: Layers::new(&overlay.layers),
                under,
                path: Vec::new(),
                builder: &mut builder,
            }
            .run()?;
        }
    }
    for header in std::mem::take(&mut builder.headers) {
        builder.add_patch(&header);
    }
    Ok(builder.diff)
}

fn is_past(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// The changes found so far.
struct DiffBuilder<'a> {
    diff: Diff,
    options: &'a DiffOptions,
    paths_bytes: usize,
    reader: Reader,
    /// Headers of empty files. They come last in the patch: git takes lines that follow one as part of the same file.
    headers: Vec<String>,
    headers_bytes: usize,
}

impl DiffBuilder<'_> {
    fn add_patch(&mut self, text: &str) {
        let diff = &mut self.diff;
        let Some(patch) = &mut diff.patch else { return };
        if diff.patch_cut || patch.len() + text.len() > self.options.max_patch_bytes {
            diff.patch_cut = true;
        } else {
            patch.push_str(text);
        }
    }

    fn add_header(&mut self, header: String) {
        self.headers_bytes += header.len();
        if self.headers_bytes > self.options.max_patch_bytes {
            self.diff.patch_cut = true;
        } else {
            self.headers.push(header);
        }
    }

    fn add(&mut self, change: Change) {
        self.paths_bytes += change.path.len();
        if self.diff.changes.len() >= self.options.max_changes || self.paths_bytes > MAX_PATHS_BYTES {
            self.diff.changes_cut = true;
        } else {
            self.diff.changes.push(change);
        }
    }
}

/// One directory on the way down: its remaining names, and the layers that have it now, and had it before.
struct Frame {
    /// The next one last.
    names: Vec<CString>,
    new: Stack,
    old: Stack,
}

struct Comparison<'a, 't, 'o> {
    overlay: &'a Overlay<'a>,
    layers: Layers<'a>,
    /// The rest of the path to search below.
    under: &'a [Vec<u8>],
    /// Names down to the current directory.
    path: Vec<Vec<u8>>,
    builder: &'t mut DiffBuilder<'o>,
}

impl Comparison<'_, '_, '_> {
    fn run(mut self) -> Result<()> {
        let count = self.overlay.layers.len();
        let old = self.overlay.n_new.min(count)..count;
        let new = (0..old.start).chain(self.first_shared().min(count)..count);
        // The tops of all layers are one directory, whatever marks they have.
        let mut frames = vec![self.frame(new.collect(), old.collect())?];
        while let Some(frame) = frames.last_mut() {
            self.builder.diff.changes_cut |= is_past(self.builder.options.until);
            if self.builder.diff.changes_cut {
                return Ok(());
            }
            let Some(name) = frame.names.pop() else {
                frames.pop();
                self.path.pop();
                continue;
            };
            let new = self.layers.find(&self.path, &frame.new, &name)?;
            let old = self.layers.find(&self.path, &frame.old, &name)?;
            if let Some((new, old)) = self.compare(&name, new, old)? {
                self.path.push(name.into_bytes());
                if self.path.len() > MAX_DEPTH {
                    self.builder.diff.changes_cut = true;
                    return Ok(());
                }
                frames.push(self.frame(new, old)?);
            }
        }
        Ok(())
    }

    /// The directory at `path` as it is now in the layers `new`, and was in `old`.
    fn frame(&mut self, new: Stack, old: Stack) -> Result<Frame> {
        if let Some(wanted) = self.under.get(self.path.len()) {
            let names = CString::new(wanted.clone()).into_iter().collect();
            return Ok(Frame { names, new, old });
        }
        let is_shared = |layer: &&usize| **layer >= self.first_shared();
        let is_alike = new.iter().filter(is_shared).eq(old.iter().filter(is_shared));
        // Shared layers are searched only if one of the two does not show them.
        let listed = new.iter().chain(&old).filter(|layer| !is_alike || !is_shared(layer));
        let listed: Stack = listed.copied().collect();
        Ok(Frame { names: self.layers.names(&self.path, &listed)?, new, old })
    }

    fn first_shared(&self) -> usize {
        self.overlay.n_new + self.overlay.n_old
    }

    /// Reports the change of one name. Returns the layers of a directory to enter.
    fn compare(
        &mut self,
        name: &CStr,
        new: Option<Node>,
        old: Option<Node>,
    ) -> Result<Option<(Stack, Stack)>> {
        match (new, old) {
            (None, None) => Ok(None),
            (Some(new), Some(old)) if new.layer() >= self.first_shared() && new.is_same_as(&old) => Ok(None),
            (Some(new), None) => {
                if !self.is_given(name, &new)? {
                    self.tell(name, ChangeKind::Added, Some(&new), None, false)?;
                }
                Ok(new.into_stack().map(|stack| (stack, Stack::new())))
            }
            (None, Some(old)) => {
                self.tell(name, ChangeKind::Removed, None, Some(&old), false)?;
                Ok(old.into_stack().map(|stack| (Stack::new(), stack)))
            }
            (Some(new), Some(old)) => self.both(name, new, old),
        }
    }

    fn both(&mut self, name: &CStr, new: Node, old: Node) -> Result<Option<(Stack, Stack)>> {
        let is_given = self.is_given(name, &new)?;
        if !is_given && let Some(only_metadata) = self.difference(name, &new, &old)? {
            self.tell(name, ChangeKind::Modified, Some(&new), Some(&old), only_metadata)?;
        }
        Ok(match (new.into_stack(), old.into_stack()) {
            (None, None) => None,
            (new, old) => Some((new.unwrap_or_default(), old.unwrap_or_default())),
        })
    }

    /// Whether two entries of one name differ, and if so, whether only in their metadata.
    fn difference(&mut self, name: &CStr, new: &Node, old: &Node) -> Result<Option<bool>> {
        if new.kind() != old.kind() {
            return Ok(Some(false));
        }
        let until = self.builder.options.until;
        match compare_contents(&mut self.layers, &self.path, name, new, old, until)? {
            Same::No => return Ok(Some(false)),
            Same::Gone | Same::Unknown => return Ok(None),
            Same::Yes => {}
        }
        let is_same =
            is_same_metadata(&mut self.layers, &mut self.builder.reader, &self.path, name, new, old)?;
        Ok((!is_same).then_some(true))
    }

    /// Whether this is a file that was added from outside, unchanged.
    fn is_given(&mut self, name: &CStr, new: &Node) -> Result<bool> {
        let path = self.shown(name);
        if let Node::Directory { stat, .. } = new {
            let given = self.builder.options.given_directories.iter().find(|(given, _)| *given == path);
            return Ok(given.is_some_and(|(_, mode)| stat.st_mode & 0o7777 == *mode));
        }
        let Some((_, content)) = self.builder.options.given_files.iter().find(|(given, _)| *given == path)
        else {
            return Ok(false);
        };
        let read = self.layers.read(&self.path, name, new, content.len() as u64)?;
        Ok(read.as_deref() == Some(content.as_slice()))
    }

    fn tell(
        &mut self,
        name: &CStr,
        kind: ChangeKind,
        new: Option<&Node>,
        old: Option<&Node>,
        only_metadata: bool,
    ) -> Result<()> {
        // Directories above the requested path are only passed through.
        if self.path.len() + 1 < self.under.len() {
            return Ok(());
        }
        let path = self.shown(name);
        if self.builder.options.with_patch && !only_metadata && !self.builder.diff.patch_cut {
            let before = old
                .map(|node| self.layers.read(&self.path, name, node, patch::MAX_TEXT_BYTES))
                .transpose()?;
            let after = new
                .map(|node| self.layers.read(&self.path, name, node, patch::MAX_TEXT_BYTES))
                .transpose()?;
            let is_executable = new.or(old).is_some_and(|node| node.stat().st_mode & 0o100 != 0);
            match Patch::new(&path, is_executable).text(before, after) {
                Written::Text(text) => self.builder.add_patch(&text),
                Written::Header(text) => self.builder.add_header(text),
                Written::Nothing => {}
                Written::LeftOut if is_directory(new, old) => {}
                Written::LeftOut => self.builder.diff.patch_left_out += 1,
            }
        }
        let file = new.or(old).map_or(FileKind::File, Node::kind);
        let size = new.map_or(0, |node| size_of(node.stat()));
        self.builder.add(Change { path, kind, file, size, only_metadata });
        Ok(())
    }

    fn shown(&self, name: &CStr) -> Vec<u8> {
        let names = self.overlay.at.iter().chain(&self.path).map(Vec::as_slice).chain([name.to_bytes()]);
        names.fold(Vec::new(), |mut path, name| {
            path.push(b'/');
            path.extend_from_slice(name);
            path
        })
    }
}

/// A directory is added or removed with its contents.
fn is_directory(new: Option<&Node>, old: Option<&Node>) -> bool {
    [new, old].into_iter().flatten().all(|node| node.kind() == FileKind::Directory)
}

fn size_of(stat: &Stat) -> u64 {
    match merge::kind_of(stat) {
        FileKind::File | FileKind::Link => u64::try_from(stat.st_size).unwrap_or_default(),
        _ => 0,
    }
}
