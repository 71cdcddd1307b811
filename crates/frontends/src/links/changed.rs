//! Files that a command made or changed, as answers tell of them.

use engine::{ChangedFile, Rich, RichReader};
use sandbox::SandboxId;

use super::AskersLinks;
use crate::code::FileLink;

/// Files in one answer. The guest tells of no more; what it says is not to be trusted.
const MAX_FILES: usize = 100;

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

    /// Returns a warning for the caller if the list of files is incomplete.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        self.is_partial.then_some("More files may have been changed than are listed in files.")
    }

    /// With addresses. `name`: what the caller calls the sandbox.
    pub(crate) fn linked(self, links: &AskersLinks, sandbox: &SandboxId, name: &str) -> Vec<FileLink> {
        let link = |file: ChangedFile| {
            let url = links.url_for_file(sandbox, &file.path);
            FileLink { url, ..FileLink::new(name, file) }
        };
        self.files.into_iter().map(link).collect()
    }
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
}
