//! Files and directories: looked at, found, changed.

use std::collections::BTreeMap;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use sandbox::{Error, FileEntry};
use serde::Deserialize;
use serde_json::{Value, json};

use super::paths::{absolute, all_expanded, expanded, keys_expanded};
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
    for asked in paths {
        let path = absolute(sandbox, asked).await?;
        let entry = sandbox.engine.stat(sandbox.who, sandbox.which, &path, false).await?;
        found.insert(asked.to_owned(), EntryInfo::of(FileEntry { path, ..entry }, &owners));
    }
    Ok(Json(found))
}

pub(super) async fn delete(ask: Ask) -> ApiResult<()> {
    let paths = ask.query().several("path")?;
    let sandbox = ask.awake().await?;
    Ok(files::remove(sandbox, &all_expanded(sandbox, &paths).await?, Removed::Files).await?)
}

pub(super) async fn search(ask: Ask) -> ApiResult<Json<Vec<EntryInfo>>> {
    let query = ask.query();
    let (root, pattern) = (query.required("path")?, query.one("pattern")?.filter(|text| !text.is_empty()));
    let sandbox = ask.awake().await?;
    let root = expanded(sandbox, root).await?;
    let (found, _) = files::search(sandbox, &root, pattern.unwrap_or("*"), MAX_FOUND).await?;
    Ok(Json(found))
}

pub(super) async fn rename(ask: Ask, JsonList(renamings): JsonList<Renaming>) -> ApiResult<()> {
    let sandbox = ask.awake().await?;
    for Renaming { src, dest } in renamings {
        let (src, dest) = (expanded(sandbox, &src).await?, expanded(sandbox, &dest).await?);
        files::rename(sandbox, &src, &dest).await?;
    }
    Ok(())
}

pub(super) async fn permissions(
    ask: Ask,
    JsonBody(asked): JsonBody<BTreeMap<String, Permissions>>,
) -> ApiResult<()> {
    let sandbox = ask.awake().await?;
    Ok(files::set_permissions(sandbox, keys_expanded(sandbox, asked).await?).await?)
}

pub(super) async fn replace(
    ask: Ask,
    JsonBody(asked): JsonBody<BTreeMap<String, Replacement>>,
) -> ApiResult<Response> {
    let is_verbose = ask.query().flag("verbose")?;
    let sandbox = ask.awake().await?;
    let names: Vec<_> = asked.keys().cloned().collect();
    let asked: Vec<_> = keys_expanded(sandbox, asked)
        .await?
        .into_iter()
        .map(|(path, Replacement { old, new })| files::Replacement { path, old, new })
        .collect();
    let counts = files::replace(sandbox, &asked).await?;
    if !is_verbose {
        return Ok(().into_response());
    }
    let told = names.into_iter().zip(counts).map(|(name, n)| (name, json!({ "replacedCount": n })));
    Ok(Json(Value::Object(told.collect())).into_response())
}

pub(super) async fn create_directories(
    ask: Ask,
    JsonBody(asked): JsonBody<BTreeMap<String, Permissions>>,
) -> ApiResult<()> {
    let sandbox = ask.awake().await?;
    Ok(files::create_directories(sandbox, keys_expanded(sandbox, asked).await?).await?)
}

pub(super) async fn delete_directories(ask: Ask) -> ApiResult<()> {
    let paths = ask.query().several("path")?;
    let sandbox = ask.awake().await?;
    Ok(files::remove(sandbox, &all_expanded(sandbox, &paths).await?, Removed::Directories).await?)
}

pub(super) async fn list(ask: Ask) -> ApiResult<Json<Vec<EntryInfo>>> {
    let query = ask.query();
    let (path, depth) = (query.required("path")?, query.number("depth")?.unwrap_or(DEFAULT_DEPTH));
    if depth == 0 {
        return Err(Error::invalid("depth 0: the directory itself has depth 0, its entries have 1").into());
    }
    let sandbox = ask.awake().await?;
    let path = expanded(sandbox, path).await?;
    let found = sandbox.engine.list(sandbox.who, sandbox.which, &path, depth > 1, MAX_LISTED).await?;
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
