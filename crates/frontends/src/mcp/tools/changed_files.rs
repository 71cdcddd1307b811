//! The files that a command or code changed, as many of them as an answer should hold.

use serde_json::json;

use super::fitting::fit;
use crate::{
    code::FileLink,
    mcp::{Truncated, next_call::written, words::KnownTools},
};

/// Files in one answer: more are rarely read, and each costs as much as a line of output.
const MAX_FILES: usize = 20;
const MAX_BYTES: usize = 4 * 1024;
/// Most files with an address for a browser: it is longer than everything else about a file.
const MAX_ADDRESSED: usize = 3;

const LIST: &str = "sandbox_fs_list";
const DIFF: &str = "sandbox_diff";

/// Shortens the list. `name` is what the caller calls the sandbox; `None` where it is removed with its command.
pub(super) fn shorten(
    files: &mut Vec<FileLink>,
    name: Option<&str>,
    known: &KnownTools<'_>,
) -> Option<Truncated> {
    let n_all = files.len();
    files.iter_mut().skip(MAX_ADDRESSED).for_each(|file| file.url = None);
    let bytes = |files: &[FileLink]| serde_json::to_string(files).map_or(0, |text| text.len() as u64);
    let (total_bytes, unlisted) = (bytes(files), files.get(MAX_FILES).cloned());
    files.truncate(MAX_FILES);
    let cut = fit("files", files, MAX_BYTES);
    if cut.is_none() && unlisted.is_none() {
        return None;
    }
    let directory = match files.last().or(unlisted.as_ref()).and_then(|file| file.path.rsplit_once('/')) {
        Some((directory, _)) if !directory.is_empty() => directory,
        _ => "/",
    };
    let mut hint = format!("{} of {n_all} files are listed.", files.len());
    match name {
        Some(name) => {
            let calls = [(LIST, json!({ "name": name, "path": directory })), (DIFF, json!({ "name": name }))];
            let calls = calls.iter().filter(|(tool, _)| known.has(tool));
            let calls: Vec<_> = calls.map(|(tool, arguments)| written(tool, arguments)).collect();
            if !calls.is_empty() {
                hint.push_str(&format!(" Call {} for the others.", calls.join(" or ")));
            }
            let ways = [LIST, DIFF].into_iter().filter_map(|tool| known.way_to(tool));
            ways.for_each(|way| hint.push_str(&format!(" {way}")));
        }
        None => hint.push_str(" The others were removed with the sandbox."),
    }
    Some(Truncated { field: "files".to_owned(), returned_bytes: bytes(files), total_bytes, hint: Some(hint) })
}

#[cfg(test)]
mod tests {
    use engine::{ChangedFile, FileChange};

    use super::*;
    use crate::mcp::testing::theirs;

    fn files(n: usize) -> Vec<FileLink> {
        let file = |number| {
            let path = format!("/root/many/{number}.txt");
            let file = FileLink::new("lab", ChangedFile { path, size: 1, change: FileChange::Created });
            FileLink { url: Some("https://example.org/".to_owned() + &"x".repeat(140)), ..file }
        };
        (0..n).map(file).collect()
    }

    #[test]
    fn a_hundred_files_are_a_few_with_the_calls_for_the_others() {
        let mut few = files(5);
        let known = KnownTools::default();
        assert_eq!(shorten(&mut few, Some("lab"), &known), None);
        assert_eq!(few.iter().filter(|file| file.url.is_some()).count(), MAX_ADDRESSED);
        let mut many = files(100);
        let cut = shorten(&mut many, Some("lab"), &known).unwrap();
        assert!(
            serde_json::to_string(&many).unwrap().len() <= MAX_BYTES && many.len() > 10,
            "{}",
            many.len()
        );
        let hint = cut.hint.unwrap();
        assert!(hint.starts_with(&format!("{} of 100 files are listed. Call ", many.len())), "{hint}");
        assert!(hint.contains(r#"sandbox_fs_list {"name":"lab","path":"/root/many"}"#), "{hint}");
        assert!(cut.total_bytes > cut.returned_bytes);
    }

    #[test]
    fn no_call_is_told_that_cannot_work() {
        let removed = shorten(&mut files(100), None, &KnownTools::default()).unwrap().hint.unwrap();
        assert!(removed.contains("removed with the sandbox") && !removed.contains("Call"), "{removed}");
        let surface = theirs();
        let told = shorten(&mut files(100), Some("lab"), &KnownTools::all(&surface)).unwrap().hint.unwrap();
        assert!(told.contains(LIST) && !told.contains(DIFF), "{told}");
    }
}
