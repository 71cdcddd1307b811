//! Files that a command made or changed, as answers tell of them.

use engine::{ChangedFile, FileChange, Rich, RichReader};
use sandbox::SandboxId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AskersLinks, name::encode};
use crate::mcp::media_type;

/// Files in one answer. The guest tells of no more; what it says is not to be trusted.
const MAX_FILES: usize = 100;

/// A file that was made or changed, and where to get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileLink {
    pub path: String,
    pub size: u64,
    pub mime_type: String,
    /// `created` or `modified`.
    pub change: String,
    /// MCP resource.
    pub uri: String,
    /// For a browser; ends after a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Reads them from a ledger.
#[derive(Debug, Default)]
pub(crate) struct ChangedFiles {
    reader: RichReader,
    files: Vec<ChangedFile>,
    is_partial: bool,
}

impl ChangedFiles {
    /// Takes a piece of the rich stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for record in self.reader.push(bytes) {
            self.take(record);
        }
    }

    /// Takes one record; only those about files matter.
    pub(crate) fn take(&mut self, record: Rich) {
        let Rich::Files { files, truncated } = record else { return };
        self.is_partial |= truncated || self.files.len() + files.len() > MAX_FILES;
        let room = MAX_FILES - self.files.len();
        self.files.extend(files.into_iter().filter(|file| file.path.starts_with('/')).take(room));
    }

    /// What the caller should know beside the files.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        self.is_partial.then_some("More files may have been changed than are listed in files.")
    }

    /// With addresses. `name`: what the caller calls the sandbox.
    pub(crate) fn linked(self, links: &AskersLinks, sandbox: &SandboxId, name: &str) -> Vec<FileLink> {
        let link = |file: ChangedFile| FileLink {
            uri: file_uri(name, &file.path),
            url: links.url_for_file(sandbox, &file.path),
            mime_type: media_type(&file.path).to_owned(),
            change: match file.change {
                FileChange::Created => "created",
                FileChange::Modified => "modified",
            }
            .to_owned(),
            size: file.size,
            path: file.path,
        };
        self.files.into_iter().map(link).collect()
    }
}

/// The MCP resource of a file.
fn file_uri(name: &str, path: &str) -> String {
    let path: Vec<_> = path.trim_start_matches('/').split('/').map(encode).collect();
    format!("warren://sandboxes/{}/files/{}", encode(name), path.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_tells_is_bounded() {
        let mut changed = ChangedFiles::default();
        let file = |path: &str| format!(r#"{{"path":"{path}","size":1,"change":"created"}}"#);
        let many: Vec<_> = (0..150).map(|n| file(&format!("/f{n}"))).collect();
        changed.push(format!("{{\"type\":\"files\",\"files\":[{}]}}\n", file("relative")).as_bytes());
        assert!(changed.files.is_empty() && changed.warning().is_none());
        changed.push(format!("{{\"type\":\"files\",\"files\":[{}]}}\n", many.join(",")).as_bytes());
        assert!(changed.files.len() == MAX_FILES && changed.warning().is_some());
        changed.push(format!("{{\"type\":\"files\",\"files\":[{}]}}\n", many.join(",")).as_bytes());
        assert_eq!(changed.files.len(), MAX_FILES);
    }

    #[test]
    fn addresses_of_files_lead_back_to_them() {
        assert_eq!(
            file_uri("web", "/a b/ü?#%.txt"),
            "warren://sandboxes/web/files/a%20b/%C3%BC%3F%23%25.txt"
        );
    }
}
