//! `sandbox_fs_search`: files by name, lines by content.

use std::collections::BTreeMap;

use engine::{GrepMatch, GrepQuery, SandboxRef};
use sandbox::ErrorKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{explained, read_up_to};
use crate::mcp::{Answer, Call, Failure, Tool, ToolResult, next_call::written};

/// Results when the caller does not say, and at most.
const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;
const MAX_CONTEXT: u32 = 10;
/// Files that are read for the lines around matches, how much of each, and how much of a line is given.
const MAX_CONTEXT_FILES: usize = 50;
const MAX_CONTEXT_BYTES: usize = 2 * 1024 * 1024;
const MAX_LINE_CHARS: usize = 512;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Files;
        "sandbox_fs_search", "Search files", READS, search:
            "Find files in a sandbox by name (glob), lines by content (grep), or lines in files with a name (both).";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SearchArguments {
    name: String,
    /// Directory, or a file with grep; / when absent.
    path: Option<String>,
    /// Such as *.py (at any depth) or src/**/*.rs.
    glob: Option<String>,
    /// A regular expression.
    grep: Option<String>,
    /// grep is plain text.
    literal: Option<bool>,
    ignore_case: Option<bool>,
    /// The same as glob, beside grep.
    include: Option<String>,
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u32>,
    /// Lines around each match.
    #[schemars(range(max = MAX_CONTEXT))]
    context: Option<u32>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct SearchResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<Vec<Match>>,
    truncated: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Match {
    path: String,
    line: u64,
    text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    before: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>,
}

async fn search(call: Call, arguments: SearchArguments) -> ToolResult<SearchResult> {
    let which = call.sandbox(&arguments.name)?;
    let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT);
    let root = arguments.path.as_deref().unwrap_or("/");
    let found = match (&arguments.glob, &arguments.grep) {
        (None, None) => {
            return Err(Failure::invalid("glob or grep is required")
                .with_hint("Give glob to find files by name, grep to find lines, or both."));
        }
        (Some(_), Some(_)) if arguments.include.is_some() => {
            return Err(
                Failure::invalid("with grep, glob and include mean the same").with_hint("Give one of them.")
            );
        }
        (Some(glob), None) => {
            let pattern = anywhere(glob);
            let found =
                call.engine().glob(&call.who, &which, root, &pattern, limit).await.map_err(explained)?;
            SearchResult { paths: Some(found.paths), matches: None, truncated: found.truncated }
        }
        (_, Some(grep)) => {
            let include = arguments.glob.as_ref().or(arguments.include.as_ref());
            let query = GrepQuery {
                root: root.to_owned(),
                pattern: grep.clone(),
                include: include.map(|include| anywhere(include)),
                ignore_case: arguments.ignore_case.unwrap_or(false),
                literal: arguments.literal.unwrap_or(false),
                limit,
            };
            let found = call.engine().grep(&call.who, &which, query).await;
            let found = found.map_err(|error| {
                explained(error).or_hint(ErrorKind::InvalidRequest, &unfit_hint(&arguments.name, root, grep))
            })?;
            let matches = with_context(&call, &which, found.matches, arguments.context.unwrap_or(0)).await;
            SearchResult { paths: None, matches: Some(matches), truncated: found.truncated }
        }
    };
    let is_cut = found.truncated;
    Ok(Answer::new(found).warn_all(is_cut.then(|| {
        format!(
            "The result is incomplete: too many matches, or the search took too long. Search a subdirectory, narrow the \
             pattern, or set a larger limit (at most {MAX_LIMIT})."
        )
    })))
}

/// The next step after an invalid regular expression. One such as `*.ts` was meant for names of files.
fn unfit_hint(name: &str, path: &str, grep: &str) -> String {
    const LITERAL: &str = "Set literal: true to search for plain text, or correct the expression.";
    if !grep.starts_with('*') {
        return LITERAL.to_owned();
    }
    let by_name = written("sandbox_fs_search", &json!({ "name": name, "path": path, "glob": grep }));
    format!("Call {by_name} to find files by name. {LITERAL}")
}

/// A pattern without a directory means files of that name wherever they are.
fn anywhere(glob: &str) -> String {
    if glob.contains('/') { glob.trim_start_matches('/').to_owned() } else { format!("**/{glob}") }
}

async fn with_context(call: &Call, which: &SandboxRef, matches: Vec<GrepMatch>, n_around: u32) -> Vec<Match> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    if n_around > 0 {
        for found in &matches {
            if files.len() >= MAX_CONTEXT_FILES || files.contains_key(&found.path) {
                continue;
            }
            // A file that went away since it was searched has no lines around.
            let lines =
                match read_up_to(call.engine(), &call.who, which, &found.path, 0, MAX_CONTEXT_BYTES).await {
                    Ok((_, bytes, _)) => String::from_utf8_lossy(&bytes).lines().map(shortened).collect(),
                    Err(_) => Vec::new(),
                };
            files.insert(found.path.clone(), lines);
        }
    }
    let n_around = n_around as usize;
    let around = |found: GrepMatch| {
        let lines = files.get(&found.path).map(Vec::as_slice).unwrap_or_default();
        let at = usize::try_from(found.line).unwrap_or(usize::MAX).saturating_sub(1).min(lines.len());
        let after = (at + 1).min(lines.len());
        Match {
            before: lines[at.saturating_sub(n_around)..at].to_vec(),
            after: lines[after..(after + n_around).min(lines.len())].to_vec(),
            path: found.path,
            line: found.line,
            text: found.text,
        }
    };
    matches.into_iter().map(around).collect()
}

fn shortened(line: &str) -> String {
    line.chars().take(MAX_LINE_CHARS).collect()
}
