//! Changes of text as `diff -u` writes them.

use std::time::Duration;

use similar::TextDiff;

/// Longer files are only listed.
pub(super) const MAX_TEXT_BYTES: u64 = 1024 * 1024;
/// After this a diff of one file is finished roughly: the best one takes time that grows with the square of what was changed.
const MAX_TIME: Duration = Duration::from_millis(500);
/// Lines around a change.
const CONTEXT: usize = 3;

/// The part of one file.
pub(super) struct Patch {
    /// None where the name cannot be written so that it is read again.
    name: Option<String>,
    most: u64,
}

impl Patch {
    pub(super) fn new(path: &[u8], most: u64) -> Self {
        let name = std::str::from_utf8(path).ok().filter(|name| {
            !name.contains(|character: char| character.is_control() || matches!(character, '"' | '\\'))
        });
        Self { name: name.map(str::to_owned), most }
    }

    /// From what the file held to what it holds; `Some(None)` is something that is no text to be told. `None`: nothing to write.
    pub(super) fn text(
        &self,
        before: Option<Option<Vec<u8>>>,
        after: Option<Option<Vec<u8>>>,
    ) -> Option<String> {
        let name = self.name.as_deref()?;
        let (is_old, is_new) = (before.is_some(), after.is_some());
        let (before, after) = (self.as_text(before)?, self.as_text(after)?);
        if before == after {
            return None;
        }
        let shown = |side: &str, is_there: bool| match is_there {
            // A name with a space in it ends at a tab.
            true if name.contains(' ') => format!("{side}{name}\t"),
            true => format!("{side}{name}"),
            false => "/dev/null".to_owned(),
        };
        let diff = TextDiff::configure().timeout(MAX_TIME).diff_lines(&before, &after);
        let text = diff
            .unified_diff()
            .context_radius(CONTEXT)
            .header(&shown("a", is_old), &shown("b", is_new))
            .to_string();
        Some(text)
    }

    fn as_text(&self, content: Option<Option<Vec<u8>>>) -> Option<String> {
        let Some(content) = content else { return Some(String::new()) };
        let content = content.filter(|bytes| bytes.len() as u64 <= self.most && !bytes.contains(&0))?;
        String::from_utf8(content).ok()
    }
}
