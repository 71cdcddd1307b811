//! Changes of text in the format of `diff -u`.

use std::time::Duration;

use similar::TextDiff;

/// Longer files are only listed.
pub(super) const MAX_TEXT_BYTES: u64 = 1024 * 1024;
/// After this time the diff of one file is finished roughly: the best one takes time that grows with the square of the
/// change.
const MAX_TIME: Duration = Duration::from_millis(500);
/// Lines around a change.
const CONTEXT: usize = 3;
/// git's ids of no file, and of an empty one. `patch` removes an empty file only with this id.
const NO_FILE: &str = "0000000";
const EMPTY_FILE: &str = "e69de29";

/// The patch of one file.
pub(super) struct Patch<'a> {
    path: &'a [u8],
    /// Whether the current file, or the last one, is executable.
    is_executable: bool,
}

/// The result for one file in the patch.
pub(super) enum Written {
    Text(String),
    /// An empty file was added or removed.
    Header(String),
    /// There was nothing to write.
    Nothing,
    /// It is not text, or too long.
    LeftOut,
}

impl<'a> Patch<'a> {
    pub(super) fn new(path: &'a [u8], is_executable: bool) -> Self {
        Self { path, is_executable }
    }

    /// From the old content to the new; `Some(None)` is content that is not text.
    pub(super) fn text(&self, before: Option<Option<Vec<u8>>>, after: Option<Option<Vec<u8>>>) -> Written {
        let (is_old, is_new) = (before.is_some(), after.is_some());
        let (Some(before), Some(after)) = (as_text(before), as_text(after)) else { return Written::LeftOut };
        if before == after {
            return if is_old == is_new { Written::Nothing } else { Written::Header(self.empty(is_new)) };
        }
        let diff = TextDiff::configure().timeout(MAX_TIME).diff_lines(&before, &after);
        let text = diff
            .unified_diff()
            .context_radius(CONTEXT)
            .header(&self.name("a", is_old), &self.name("b", is_new))
            .to_string();
        Written::Text(text)
    }

    fn name(&self, side: &str, is_there: bool) -> String {
        match is_there {
            false => "/dev/null".to_owned(),
            // A name with a space in it ends at a tab.
            true if self.path.contains(&b' ') && !is_quoted(self.path) => {
                format!("{}\t", shown(side, self.path))
            }
            true => shown(side, self.path),
        }
    }

    /// A file without lines has no diff: only git's headers say that it was added or removed.
    fn empty(&self, is_new: bool) -> String {
        // Two names on one line: a space in one must not look like the end of it.
        let name =
            |side| if self.path.contains(&b' ') { quoted(side, self.path) } else { shown(side, self.path) };
        let (one, other) = (name("a"), name("b"));
        let (what, index) = match is_new {
            true => ("new", format!("{NO_FILE}..{EMPTY_FILE}")),
            false => ("deleted", format!("{EMPTY_FILE}..{NO_FILE}")),
        };
        let mode = if self.is_executable { "100755" } else { "100644" };
        format!("diff --git {one} {other}\n{what} file mode {mode}\nindex {index}\n")
    }
}

/// Whether a name must be quoted, as git and newer versions of `patch` do, to be read back unchanged.
fn is_quoted(path: &[u8]) -> bool {
    let is_special = |c: char| c.is_control() || matches!(c, '"' | '\\');
    std::str::from_utf8(path).map_or(true, |name| name.contains(is_special))
}

fn shown(side: &str, path: &[u8]) -> String {
    let plain = std::str::from_utf8(path).ok().filter(|_utf8| !is_quoted(path));
    plain.map_or_else(|| quoted(side, path), |name| format!("{side}{name}"))
}

fn quoted(side: &str, path: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut quoted = format!("\"{side}");
    for byte in path {
        match byte {
            b'"' => quoted.push_str("\\\""),
            b'\\' => quoted.push_str("\\\\"),
            b'\n' => quoted.push_str("\\n"),
            b'\t' => quoted.push_str("\\t"),
            b' '..=b'~' => quoted.push(char::from(*byte)),
            // Writing to a string does not fail.
            _ => write!(quoted, "\\{byte:03o}").unwrap_or_default(),
        }
    }
    quoted.push('"');
    quoted
}

fn as_text(content: Option<Option<Vec<u8>>>) -> Option<String> {
    let Some(content) = content else { return Some(String::new()) };
    let content = content.filter(|bytes| bytes.len() as u64 <= MAX_TEXT_BYTES && !bytes.contains(&0))?;
    String::from_utf8(content).ok()
}
