//! Which files a simulated exec made or changed.

use std::collections::BTreeMap;

use bytes::Bytes;
use guest_protocol::{ChangedFile, FileChange, Rich};

use super::files::{Content, Files};

/// The files beneath a directory as they were when an exec began.
#[derive(Debug)]
pub(super) struct Before {
    root: String,
    /// Held, so that bytes which are written meanwhile cannot lie where these did.
    seen: BTreeMap<String, Bytes>,
}

fn bytes_of(content: &Content) -> Option<&Bytes> {
    match content {
        Content::File(bytes) => Some(bytes),
        Content::Directory | Content::Symlink(_) => None,
    }
}

impl Before {
    pub(super) fn of(files: &Files, root: &str) -> Self {
        let beneath = files.beneath(root);
        let seen = beneath.filter_map(|(path, node)| Some((path.clone(), bytes_of(&node.content)?.clone())));
        Self { root: root.to_owned(), seen: seen.collect() }
    }

    /// What is different now; nothing when nothing is.
    pub(super) fn changes(&self, files: &Files) -> Option<Rich> {
        let changed = files.beneath(&self.root).filter_map(|(path, node)| {
            let bytes = bytes_of(&node.content)?;
            let change = match self.seen.get(path) {
                None => FileChange::Created,
                // Every write makes new ones.
                Some(before) if before.as_ptr() != bytes.as_ptr() || before.len() != bytes.len() => {
                    FileChange::Modified
                }
                Some(_) => return None,
            };
            Some(ChangedFile { path: path.clone(), size: bytes.len() as u64, change })
        });
        let files: Vec<_> = changed.collect();
        (!files.is_empty()).then_some(Rich::Files { files, truncated: false })
    }
}
