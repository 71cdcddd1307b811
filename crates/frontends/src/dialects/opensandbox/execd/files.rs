//! Files and directories: looked at, found, changed.

use std::collections::BTreeMap;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use sandbox::{Error, FileEntry};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    dialects::opensandbox::{
        ask::Ask,
        files::{self, EntryInfo, Owners, Permissions, Removed},
    },
    http::{ApiResult, JsonBody, JsonList},
};

/// Files that one search finds.
const MAX_FOUND: u32 = 10_000;
/// Entries of one directory.
const MAX_LISTED: u32 = 10_000;
const DEFAULT_DEPTH: u64 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Renaming {
    src: String,
    dest: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replacement {
    old: String,
    new: String,
}

pub(super) async fn info(ask: Ask) -> ApiResult<Json<BTreeMap<String, EntryInfo>>> {
    let paths = ask.query().several("path")?;
    let sandbox = ask.awake().await?;
    let owners = Owners::read(sandbox).await;
    let mut found = BTreeMap::new();
    for path in paths.into_iter().map(str::to_owned) {
        let entry = sandbox.engine.stat(sandbox.who, sandbox.which, &path, true).await?;
        let entry = FileEntry { path: path.clone(), ..entry };
        found.insert(path, EntryInfo::of(entry, &owners));
    }
    Ok(Json(found))
}

pub(super) async fn delete(ask: Ask) -> ApiResult<()> {
    let paths = ask.query().several("path")?;
    Ok(files::remove(ask.awake().await?, &paths, Removed::Files).await?)
}

pub(super) async fn search(ask: Ask) -> ApiResult<Json<Vec<EntryInfo>>> {
    let query = ask.query();
    let (root, pattern) = (query.required("path")?, query.one("pattern")?.filter(|text| !text.is_empty()));
    let (found, _) = files::search(ask.awake().await?, root, pattern.unwrap_or("*"), MAX_FOUND).await?;
    Ok(Json(found))
}

pub(super) async fn rename(ask: Ask, JsonList(renamings): JsonList<Renaming>) -> ApiResult<()> {
    let sandbox = ask.awake().await?;
    for Renaming { src, dest } in renamings {
        sandbox.engine.rename_path(sandbox.who, sandbox.which, &src, &dest, false).await?;
    }
    Ok(())
}

pub(super) async fn permissions(
    ask: Ask,
    JsonBody(asked): JsonBody<BTreeMap<String, Permissions>>,
) -> ApiResult<()> {
    Ok(files::set_permissions(ask.awake().await?, asked).await?)
}

pub(super) async fn replace(
    ask: Ask,
    JsonBody(asked): JsonBody<BTreeMap<String, Replacement>>,
) -> ApiResult<Response> {
    let is_verbose = ask.query().flag("verbose")?;
    let asked: Vec<_> = asked
        .into_iter()
        .map(|(path, Replacement { old, new })| files::Replacement { path, old, new })
        .collect();
    let counts = files::replace(ask.awake().await?, &asked).await?;
    if !is_verbose {
        return Ok(().into_response());
    }
    let told = asked.into_iter().zip(counts).map(|(one, n)| (one.path, json!({ "replacedCount": n })));
    Ok(Json(Value::Object(told.collect())).into_response())
}

pub(super) async fn create_directories(
    ask: Ask,
    JsonBody(asked): JsonBody<BTreeMap<String, Permissions>>,
) -> ApiResult<()> {
    Ok(files::create_directories(ask.awake().await?, asked).await?)
}

pub(super) async fn delete_directories(ask: Ask) -> ApiResult<()> {
    let paths = ask.query().several("path")?;
    Ok(files::remove(ask.awake().await?, &paths, Removed::Directories).await?)
}

pub(super) async fn list(ask: Ask) -> ApiResult<Json<Vec<EntryInfo>>> {
    let query = ask.query();
    let (path, depth) = (query.required("path")?, query.number("depth")?.unwrap_or(DEFAULT_DEPTH));
    if depth == 0 {
        return Err(Error::invalid("depth 0: the directory itself has depth 0, its entries have 1").into());
    }
    let sandbox = ask.awake().await?;
    let found = sandbox.engine.list(sandbox.who, sandbox.which, path, depth > 1, MAX_LISTED).await?;
    let owners = Owners::read(sandbox).await;
    let root = path.trim_end_matches('/');
    let entries = found.entries.into_iter().filter(|entry| depth_below(root, &entry.path) <= depth);
    Ok(Json(entries.map(|entry| EntryInfo::of(entry, &owners)).collect()))
}

/// How many names a path has beneath a directory.
fn depth_below(root: &str, path: &str) -> u64 {
    let rest = path.strip_prefix(root).unwrap_or(path);
    rest.split('/').filter(|name| !name.is_empty()).count() as u64
}

#[cfg(test)]
mod tests {
    use super::depth_below;

    #[test]
    fn depths_are_counted_from_the_directory() {
        assert_eq!(
            (depth_below("/a", "/a/b"), depth_below("/a", "/a/b/c"), depth_below("", "/a")),
            (1, 2, 1)
        );
    }
}
