//! Text that is replaced in files: in all of them or, where that cannot be, in none.

use std::collections::BTreeMap;

use engine::WriteOptions;
use sandbox::{Error, FileEntry, Result, Thing, WriteMode};

use crate::{dialects::opensandbox::handle::SandboxHandle, mcp::once};

/// Largest file that is changed, before and after.
const MAX_FILE_BYTES: usize = 32 * 1024 * 1024;
/// All files of one call: they are held in memory until all are known to be right.
const MAX_ALL_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Replacement {
    pub(crate) path: String,
    pub(crate) old: String,
    pub(crate) new: String,
}

/// A file as it was read, and the text that it gets.
struct EditedFile {
    read: FileEntry,
    text: String,
    is_changed: bool,
}

/// Replaces every occurrence. Answers how many there were, in the order of the replacements.
pub(crate) async fn replace(sandbox: SandboxHandle<'_>, replacements: &[Replacement]) -> Result<Vec<usize>> {
    let mut files: BTreeMap<&str, EditedFile> = BTreeMap::new();
    let mut counts = Vec::new();
    for Replacement { path, old, new } in replacements {
        if !files.contains_key(path.as_str()) {
            files.insert(path, EditedFile::read(sandbox, path).await?);
        }
        let Some(file) = files.get_mut(path.as_str()) else { continue };
        counts.push(file.replace(path, old, new)?);
        if files.values().map(|file| file.text.len()).sum::<usize>() > MAX_ALL_BYTES {
            return Err(too_large("the files of this call have", MAX_ALL_BYTES));
        }
    }
    for (path, file) in files.into_iter().filter(|(_, file)| file.is_changed) {
        let options =
            WriteOptions { mode: WriteMode::Replace, permissions: Some(file.read.mode), parents: false };
        let bytes = once(file.text.into_bytes());
        sandbox.engine.write_file(sandbox.who, sandbox.which, path, options, bytes).await?;
    }
    Ok(counts)
}

impl EditedFile {
    async fn read(sandbox: SandboxHandle<'_>, path: &str) -> Result<Self> {
        let (read, bytes, is_cut) = sandbox.read(path, 0, MAX_FILE_BYTES).await?;
        if is_cut {
            return Err(too_large(&format!("{path} has"), MAX_FILE_BYTES));
        }
        let text = String::from_utf8(bytes).map_err(|_not_text| {
            Error::invalid(format!("{path} is not UTF-8 text; nothing was changed"))
                .about(Thing::File, path)
                .with_hint("Change it with a program in the sandbox.")
        })?;
        Ok(Self { read, text, is_changed: false })
    }

    fn replace(&mut self, path: &str, old: &str, new: &str) -> Result<usize> {
        if old.is_empty() {
            return Err(Error::invalid(format!("the text to replace in {path} is empty"))
                .about(Thing::File, path)
                .with_hint("Give the text to replace, or write the whole file."));
        }
        let n = self.text.matches(old).count();
        let n_bytes = (self.text.len() - n * old.len()).saturating_add(n.saturating_mul(new.len()));
        if n_bytes > MAX_FILE_BYTES {
            return Err(too_large(&format!("{path} would have"), MAX_FILE_BYTES));
        }
        if n > 0 && old != new {
            self.text = self.text.replace(old, new);
            self.is_changed = true;
        }
        Ok(n)
    }
}

fn too_large(what: &str, most: usize) -> Error {
    Error::invalid(format!("{what} more than {most} bytes; nothing was changed"))
        .about(Thing::File, "")
        .with_hint("Change large files with a program in the sandbox, such as sed.")
}
