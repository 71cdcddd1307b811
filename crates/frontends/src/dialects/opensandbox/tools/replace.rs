//! `file_replace_contents`: all entries or none.

use std::collections::BTreeMap;

use engine::WriteOptions;
use sandbox::{Error, ErrorKind, FileEntry, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{files::few, sandboxes::Inside, target::Target, words};
use crate::mcp::{Answer, Call, Failure, ToolResult, once, read_up_to};

/// Largest file that is changed. It is held in memory, and so are all others of the call.
const MAX_FILE_BYTES: usize = 8 * 1024 * 1024;
const MAX_ALL_BYTES: usize = 32 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    #[serde(flatten)]
    inside: Inside,
    entries: Vec<ReplaceEntry>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ReplaceEntry {
    path: String,
    old_content: String,
    new_content: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Replaced {
    path: String,
    replaced_count: usize,
}

/// A file as it was read, and the text that it gets.
struct Edited {
    read: FileEntry,
    text: String,
    is_changed: bool,
}

pub(super) async fn replace(call: Call, arguments: Arguments) -> ToolResult<Vec<Replaced>> {
    few("entries", arguments.entries.len())?;
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let mut files = BTreeMap::new();
    let (mut replaced, mut warnings) = (Vec::new(), Vec::new());
    for entry in arguments.entries {
        let path = target.absolute(&entry.path);
        if !files.contains_key(&path) {
            files.insert(path.clone(), read(&call, &target, &path).await?);
        }
        let Some(file) = files.get_mut(&path) else { continue };
        let replaced_count = file.apply(&path, &entry)?;
        if replaced_count == 0 {
            warnings.push(format!("old_content does not occur in {path}."));
        }
        replaced.push(Replaced { path: entry.path, replaced_count });
        if files.values().map(|file| file.text.len()).sum::<usize>() > MAX_ALL_BYTES {
            return Err(too_large("the files of this call have", MAX_ALL_BYTES));
        }
    }
    for (path, file) in files.into_iter().filter(|(_, file)| file.is_changed) {
        let options =
            WriteOptions { mode: WriteMode::Replace, permissions: Some(file.read.mode), parents: false };
        let bytes = once(file.text.into_bytes());
        let written = call.engine().write_file(&call.who, &target.which, &path, options, bytes).await;
        written.map_err(words::failure)?;
    }
    Ok(Answer::new(replaced).warn_all(warnings))
}

async fn read(call: &Call, target: &Target, path: &str) -> Result<Edited, Failure> {
    let found = read_up_to(call, &target.which, path, 0, MAX_FILE_BYTES).await;
    let (read, bytes, is_cut) = found.map_err(words::failure)?;
    if is_cut {
        return Err(too_large(path, MAX_FILE_BYTES));
    }
    let text = String::from_utf8(bytes).map_err(|_not_text| {
        let error = Error::new(ErrorKind::WrongState, format!("{path} is not UTF-8 text"));
        words::failure(error.with_hint("Change it with a program in the sandbox, through command_run."))
    })?;
    Ok(Edited { read, text, is_changed: false })
}

impl Edited {
    fn apply(&mut self, path: &str, entry: &ReplaceEntry) -> Result<usize, Failure> {
        let ReplaceEntry { old_content, new_content, .. } = entry;
        if old_content.is_empty() {
            return Err(Failure::invalid(format!("old_content for {path} is empty"))
                .with_hint("Give the text to replace, or write the whole file with file_write."));
        }
        let n = self.text.matches(old_content.as_str()).count();
        if self.text.len().saturating_add(n.saturating_mul(new_content.len())) > 2 * MAX_FILE_BYTES {
            return Err(too_large(path, 2 * MAX_FILE_BYTES));
        }
        if n > 0 && old_content != new_content {
            self.text = self.text.replace(old_content.as_str(), new_content);
            self.is_changed = true;
        }
        Ok(n)
    }
}

fn too_large(what: &str, most: usize) -> Failure {
    let error =
        Error::new(ErrorKind::LimitReached, format!("{what}: more than {most} bytes; nothing was changed"));
    words::failure(
        error.with_hint("Change them with a program in the sandbox, such as sed, through command_run."),
    )
}
