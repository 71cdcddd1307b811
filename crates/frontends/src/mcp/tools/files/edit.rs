//! `sandbox_fs_edit`: exact replacements, several at once, all or none.

use std::time::Duration;

use engine::{SandboxRef, WriteOptions};
use sandbox::{Error, ErrorKind, FileEntry, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use similar::{ChangeTag, TextDiff};

use super::{explained, once, read_up_to};
use crate::mcp::{Answer, Call, Failure, Tool, ToolResult, Truncated, output::until_character_border};

/// Largest file that is edited; it is held in memory several times.
const MAX_FILE_BYTES: usize = 8 * 1024 * 1024;
const MAX_EDITS: usize = 200;
/// After this long a diff is as good as it is.
const DIFF_WITHIN: Duration = Duration::from_secs(1);
const DIFF_CONTEXT: usize = 3;
/// For an edit that does not fit: lines that are named, lines that are compared, and how much of one is shown.
const MAX_SHOWN_LINES: usize = 3;
const MAX_COMPARED_LINES: usize = 10_000;
const MAX_SHOWN_CHARS: usize = 160;
/// How alike a line must be to be named: 0 is nothing, 1 the same.
const LIKENESS: f64 = 0.5;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Files;
        "sandbox_fs_edit", "Edit a file", DESTROYS_MORE, edit, core:
            "Replace exact texts in a file in a sandbox, all or none, and get the diff. \
             Each oldText must occur exactly once.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EditArguments {
    name: String,
    path: String,
    /// [{oldText, newText, replaceAll?}], applied in this order.
    #[schemars(length(min = 1))]
    edits: Vec<Edit>,
    /// Only show what would change.
    dry_run: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Edit {
    old_text: String,
    new_text: String,
    replace_all: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Edited {
    path: String,
    replacements: u64,
    added_lines: u64,
    removed_lines: u64,
    diff: String,
    written: bool,
}

async fn edit(call: Call, arguments: EditArguments) -> ToolResult<Edited> {
    let which = call.sandbox(&arguments.name)?;
    let path = arguments.path;
    if arguments.edits.len() > MAX_EDITS {
        let n_edits = arguments.edits.len();
        return Err(Failure::invalid(format!("{n_edits} edits were given; the limit is {MAX_EDITS}"))
            .with_hint("Make them in several calls."));
    }
    let (entry, old) = read(&call, &which, &path).await?;
    let (new, replacements) = apply(&path, &old, &arguments.edits)?;
    let is_dry = arguments.dry_run.unwrap_or(false);
    let changed = (!is_dry && new != old).then(|| new.clone());
    let written = changed.is_some();
    if let Some(new) = changed {
        write(&call, &which, &path, &entry, new).await?;
    }
    let shown = path.clone();
    let diff = tokio::task::spawn_blocking(move || diff(&shown, &old, &new)).await.map_err(|error| {
        Failure::from(Error::new(ErrorKind::Internal, "could not compute the diff").with_source(error))
    })?;
    let (text, cut) = shortened(diff.text, call.max_bytes(None), &path);
    let edited = Edited {
        path,
        replacements,
        added_lines: diff.added,
        removed_lines: diff.removed,
        diff: text,
        written,
    };
    Ok(Answer::new(edited).truncate(cut))
}

async fn read(call: &Call, which: &SandboxRef, path: &str) -> Result<(FileEntry, String), Failure> {
    let read = read_up_to(call.engine(), &call.who, which, path, 0, MAX_FILE_BYTES).await;
    let (entry, bytes, is_cut) = read.map_err(explained)?;
    if is_cut {
        let message = format!("{path} has {} bytes; the limit for edits is {MAX_FILE_BYTES}", entry.size);
        return Err(Failure::new(ErrorKind::LimitReached, message)
            .with_hint("Edit it with a program in the sandbox, such as sed, through sandbox_exec."));
    }
    let text = String::from_utf8(bytes).map_err(|_not_text| {
        let message = format!("{path} is not UTF-8 text");
        Failure::new(ErrorKind::WrongState, message).with_hint(
            "Read it with sandbox_fs_read and encoding base64, and write it with sandbox_fs_write.",
        )
    })?;
    Ok((entry, text))
}

/// Replaces the file, unless it is another than the one that was read. What changes it after this look and before the
/// write, which is whole or not at all, is lost.
async fn write(
    call: &Call,
    which: &SandboxRef,
    path: &str,
    read: &FileEntry,
    text: String,
) -> Result<(), Failure> {
    let engine = call.engine();
    let now = engine.stat(&call.who, which, path, true).await.map_err(explained)?;
    if (now.size, now.modified_at_ms) != (read.size, read.modified_at_ms) {
        let message = format!("{path} was changed by another program during the edit");
        return Err(Failure::new(ErrorKind::WrongState, message)
            .with_hint("Read it again with sandbox_fs_read and repeat the edit.")
            .retryable(true));
    }
    // The file keeps its mode: what is replaced hands it on.
    let options = WriteOptions { mode: WriteMode::Replace, permissions: Some(read.mode), parents: false };
    engine.write_file(&call.who, which, path, options, once(text.into_bytes())).await.map_err(explained)?;
    Ok(())
}

/// The text after all edits, and how many places were replaced.
fn apply(path: &str, old: &str, edits: &[Edit]) -> Result<(String, u64), Failure> {
    let mut text = old.to_owned();
    let mut n_replaced = 0;
    for (index, edit) in edits.iter().enumerate() {
        let which = if edits.len() == 1 {
            "the edit".to_owned()
        } else {
            format!("edit {} of {}", index + 1, edits.len())
        };
        let refuse = |message: String, hint: &str, n: usize, lines: Vec<MatchedLine>| {
            let details = json!({ "edit": index, "occurrences": n, "lines": lines });
            Failure::invalid(message).with_hint(hint).with_details(details)
        };
        if edit.old_text.is_empty() {
            let message = format!("{which} has an empty oldText");
            return Err(refuse(
                message,
                "Give the text to replace, or use sandbox_fs_write to write the whole file.",
                0,
                vec![],
            ));
        }
        if edit.old_text == edit.new_text {
            let message = format!("{which} changes nothing: oldText and newText are the same");
            return Err(refuse(message, "Omit it.", 0, vec![]));
        }
        let n = text.matches(&edit.old_text).count();
        match n {
            0 => {
                let lines = nearest(&text, &edit.old_text);
                let message = format!("{which}: oldText does not occur in {path}{}", named(&lines));
                return Err(refuse(message, missing_hint(&text, &edit.old_text), 0, lines));
            }
            1 => {}
            _ if edit.replace_all.unwrap_or(false) => {}
            n => {
                let lines = occurrences(&text, &edit.old_text);
                let message = format!("{which}: oldText occurs {n} times in {path}{}", named(&lines));
                let hint = "Include more of the surrounding text in oldText, or set replaceAll.";
                return Err(refuse(message, hint, n, lines));
            }
        }
        let n_bytes = text.len() + n * edit.new_text.len();
        if n_bytes > 2 * MAX_FILE_BYTES {
            let message = format!("{which} would make {path} larger than {} bytes", 2 * MAX_FILE_BYTES);
            return Err(refuse(message, "Replace less text at once.", n, vec![]));
        }
        text = text.replace(&edit.old_text, &edit.new_text);
        n_replaced += n as u64;
    }
    Ok((text, n_replaced))
}

#[derive(Debug, PartialEq, Serialize)]
struct MatchedLine {
    line: usize,
    text: String,
}

fn named(lines: &[MatchedLine]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| line.line.to_string()).collect();
    match lines.len() {
        0 => String::new(),
        1 => format!("; look at line {}", lines[0]),
        _ => format!("; look at lines {}", lines.join(", ")),
    }
}

fn shown(line: &str) -> String {
    line.chars().take(MAX_SHOWN_CHARS).collect()
}

/// The first lines where a text occurs.
fn occurrences(text: &str, wanted: &str) -> Vec<MatchedLine> {
    let matched = |(at, _): (usize, &str)| {
        let line = text[..at].matches('\n').count() + 1;
        MatchedLine { line, text: shown(text.lines().nth(line - 1).unwrap_or_default()) }
    };
    text.match_indices(wanted).take(MAX_SHOWN_LINES).map(matched).collect()
}

/// The lines most like the first line of what was looked for.
fn nearest(text: &str, wanted: &str) -> Vec<MatchedLine> {
    let Some(wanted) = wanted.lines().map(str::trim).find(|line| !line.is_empty()) else { return Vec::new() };
    let wanted = shown(wanted);
    let mut alike: Vec<(f64, usize, &str)> = text
        .lines()
        .take(MAX_COMPARED_LINES)
        .enumerate()
        .map(|(index, line)| (strsim::sorensen_dice(&wanted, &shown(line.trim())), index + 1, line))
        .filter(|(likeness, ..)| *likeness >= LIKENESS)
        .collect();
    alike.sort_by(|one, other| other.0.total_cmp(&one.0));
    alike
        .iter()
        .take(MAX_SHOWN_LINES)
        .map(|(_, line, text)| MatchedLine { line: *line, text: shown(text) })
        .collect()
}

/// Why a text may look right and yet not occur.
fn missing_hint(text: &str, wanted: &str) -> &'static str {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.contains('\r') && text.replace("\r\n", "\n").contains(&wanted.replace("\r\n", "\n")) {
        return "Its lines end with \\r\\n; use the same in oldText and newText.";
    }
    if squeezed(text).contains(&squeezed(wanted)) {
        return "It differs only in spaces, tabs or line ends; copy the text exactly from sandbox_fs_read.";
    }
    "Read the file with sandbox_fs_read and copy the text exactly, with its spaces."
}

struct Diff {
    text: String,
    added: u64,
    removed: u64,
}

fn diff(path: &str, old: &str, new: &str) -> Diff {
    let path = path.trim_start_matches('/');
    let diff = TextDiff::configure().timeout(DIFF_WITHIN).diff_lines(old, new);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count() as u64;
    let text = diff
        .unified_diff()
        .context_radius(DIFF_CONTEXT)
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    Diff { text, added: count(ChangeTag::Insert), removed: count(ChangeTag::Delete) }
}

fn shortened(mut text: String, max: usize, path: &str) -> (String, Option<Truncated>) {
    let total = text.len();
    if total <= max {
        return (text, None);
    }
    let kept = until_character_border(&text.as_bytes()[..max]).len();
    text.truncate(kept);
    let cut = Truncated {
        field: "diff".to_owned(),
        returned_bytes: kept as u64,
        total_bytes: total as u64,
        hint: Some(format!("Read {path} with sandbox_fs_read to see all of it.")),
    };
    (text, Some(cut))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::mcp::testing::Client;

    const FILE: &str = "fn main() {\n    let x = 1;\n    let y = 1;\n    println!(\"{x}\");\n}\n";

    async fn client() -> Client {
        let client = Client::new().await;
        client.data("sandbox_create", json!({ "name": "web" })).await;
        let arguments = json!({ "name": "web", "path": "/m.rs", "content": FILE, "mode": "755" });
        client.data("sandbox_fs_write", arguments).await;
        client
    }

    fn of(edits: Value) -> Value {
        json!({ "name": "web", "path": "/m.rs", "edits": edits })
    }

    async fn content(client: &Client) -> Value {
        client.data("sandbox_fs_read", json!({ "name": "web", "path": "/m.rs" })).await["content"].clone()
    }

    #[tokio::test]
    async fn edits_are_made_in_order_and_come_back_as_a_diff() {
        let client = client().await;
        let edits = json!([
            { "oldText": "let x = 1;", "newText": "let x = 2;" },
            // Made by the one before.
            { "oldText": "x = 2;\n", "newText": "x = 2;\n    let z = 3;\n" },
        ]);
        let mut dry = of(edits.clone());
        dry["dryRun"] = json!(true);
        let told = client.data("sandbox_fs_edit", dry).await;
        assert_eq!((&told["written"], content(&client).await), (&json!(false), json!(FILE)));
        let edited = client.data("sandbox_fs_edit", of(edits)).await;
        let diff = "--- a/m.rs\n+++ b/m.rs\n@@ -1,5 +1,6 @@\n fn main() {\n-    let x = 1;\n+    let x = 2;\n+    let z = 3;\n     \
                    let y = 1;\n     println!(\"{x}\");\n }\n";
        assert_eq!(edited["diff"], diff);
        assert_eq!(told["diff"], diff);
        assert_eq!(
            (&edited["replacements"], &edited["addedLines"], &edited["removedLines"], &edited["written"]),
            (&json!(2), &json!(2), &json!(1), &json!(true))
        );
        let stat = client.data("sandbox_fs_stat", json!({ "name": "web", "path": "/m.rs" })).await;
        assert_eq!(stat["mode"], 0o100_755);
    }

    #[tokio::test]
    async fn one_edit_that_does_not_fit_leaves_all_undone_and_is_explained() {
        let client = client().await;
        let good = json!({ "oldText": "let x = 1;", "newText": "let x = 2;" });
        let refused = async |bad: Value| {
            let error = client.error("sandbox_fs_edit", of(json!([good, bad])), "invalid_request").await;
            assert_eq!(content(&client).await, FILE);
            assert_eq!(error["details"]["edit"], 1, "{error}");
            error
        };
        let error = refused(json!({ "oldText": "    let", "newText": "" })).await;
        assert_eq!(error["message"], "edit 2 of 2: oldText occurs 2 times in /m.rs; look at lines 2, 3");
        assert_eq!(error["details"]["occurrences"], 2);
        let error = refused(json!({ "oldText": "printn!(\"{x}\")", "newText": "" })).await;
        assert_eq!(error["details"]["lines"], json!([{ "line": 4, "text": "    println!(\"{x}\");" }]));
        let error = refused(json!({ "oldText": "let  y = 1;", "newText": "" })).await;
        assert!(error["hint"].as_str().unwrap().contains("spaces"), "{error}");
        refused(json!({ "oldText": "", "newText": "x" })).await;
        refused(json!({ "oldText": "y", "newText": "y" })).await;
        let all = json!([{ "oldText": "= 1;", "newText": "= 5;", "replaceAll": true }]);
        assert_eq!(client.data("sandbox_fs_edit", of(all)).await["replacements"], 2);
    }

    #[tokio::test]
    async fn line_ends_of_another_system_are_named() {
        let client = client().await;
        let crlf = json!({ "name": "web", "path": "/m.rs", "content": "a\r\nb\r\n" });
        client.data("sandbox_fs_write", crlf).await;
        let edits = json!([{ "oldText": "a\nb", "newText": "c" }]);
        let error = client.error("sandbox_fs_edit", of(edits), "invalid_request").await;
        assert!(error["hint"].as_str().unwrap().contains("\\r\\n"), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_text_or_too_large_is_not_edited() {
        let client = client().await;
        let binary = json!({ "name": "web", "path": "/m.rs", "content": "/w==", "encoding": "base64" });
        client.data("sandbox_fs_write", binary).await;
        let edits = json!([{ "oldText": "a", "newText": "c" }]);
        client.error("sandbox_fs_edit", of(edits.clone()), "wrong_state").await;
        let large = json!({ "name": "web", "path": "/m.rs", "content": "a".repeat(MAX_FILE_BYTES + 1) });
        client.data("sandbox_fs_write", large).await;
        client.error("sandbox_fs_edit", of(edits), "limit_reached").await;
    }

    #[tokio::test]
    async fn a_file_that_changed_since_it_was_read_is_left_alone() {
        let client = client().await;
        let which = client.call.sandbox("web").unwrap();
        let (entry, _) = read(&client.call, &which, "/m.rs").await.unwrap();
        let other = json!({ "name": "web", "path": "/m.rs", "content": "theirs" });
        client.data("sandbox_fs_write", other).await;
        let failure = write(&client.call, &which, "/m.rs", &entry, "ours".to_owned()).await.unwrap_err();
        let told = failure.worded(crate::mcp::words::hint);
        assert!(told.retryable && told.code == "wrong_state", "{told:?}");
        assert_eq!(content(&client).await, "theirs");
    }

    #[test]
    fn a_relative_path_is_apart_from_its_side() {
        let diff = diff("calc/core.py", "a\n", "b\n");
        assert!(diff.text.starts_with("--- a/calc/core.py\n+++ b/calc/core.py\n"), "{}", diff.text);
    }
}
