//! Files: looked at, found, changed.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use engine::WriteOptions;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, FileEntry, FileKind, Result, Thing};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    digits, octal,
    owners::{self, Owners},
};
use crate::{
    dialects::opensandbox::ask::{Ask, Front},
    http::{ApiResult, JsonBody, JsonList},
};

/// Files that one search finds.
const MAX_FOUND: u32 = 10_000;
/// Files that are looked at at the same time.
const MAX_AT_ONCE: usize = 32;
/// Longest file whose content is replaced in parts.
const MAX_EDITED_BYTES: u64 = 32 * 1024 * 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Permission {
    pub(super) mode: Option<u32>,
    pub(super) owner: Option<String>,
    pub(super) group: Option<String>,
}

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

pub(super) fn shape(entry: &FileEntry, owners: &Owners) -> Value {
    let kind = match entry.kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo | FileKind::Socket | FileKind::Device => "other",
    };
    let changed_at = Timestamp::from_millisecond(entry.modified_at_ms).unwrap_or_default();
    json!({
        "path": entry.path,
        "type": kind,
        "size": entry.size,
        "mode": digits(entry.mode),
        "owner": owners.user(entry.uid),
        "group": owners.group(entry.gid),
        "modified_at": changed_at,
        // Not every file system knows better.
        "created_at": changed_at,
    })
}

pub(super) async fn info(State(front): State<Front>, ask: Ask) -> ApiResult<Json<Value>> {
    let paths = ask.query().only(&["path"])?.several("path")?;
    ask.awake().await?;
    let owners = Owners::of(&front, &ask).await;
    let mut found = Map::new();
    for path in paths {
        let entry = front.engine().stat(ask.who(), &ask.which, path, true).await?;
        let mut shown = shape(&entry, &owners);
        shown["path"] = json!(path);
        found.insert(path.to_owned(), shown);
    }
    Ok(Json(Value::Object(found)))
}

/// Files, not directories. What is not there is as good as deleted.
pub(super) async fn delete(State(front): State<Front>, ask: Ask) -> ApiResult<()> {
    let paths = ask.query().only(&["path"])?.several("path")?;
    ask.awake().await?;
    for path in &paths {
        match front.engine().stat(ask.who(), &ask.which, path, false).await {
            Ok(entry) if entry.kind == FileKind::Directory => {
                return Err(Error::invalid(format!("{path} is a directory"))
                    .about(Thing::File, *path)
                    .with_hint("Delete it with DELETE /directories.")
                    .into());
            }
            Ok(_) => front.engine().remove_path(ask.who(), &ask.which, path, false).await?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub(super) async fn search(State(front): State<Front>, ask: Ask) -> ApiResult<Json<Value>> {
    let query = ask.query().only(&["path", "pattern"])?;
    let (root, pattern) = (query.required("path")?, query.one("pattern")?.unwrap_or("*"));
    ask.awake().await?;
    // A pattern without a directory is looked for in all of them.
    let pattern = match pattern.contains('/') {
        true => pattern.trim_start_matches('/').to_owned(),
        false => format!("**/{pattern}"),
    };
    let found = front.engine().glob(ask.who(), &ask.which, root, &pattern, MAX_FOUND).await?;
    let owners = Owners::of(&front, &ask).await;
    let (engine, who, which) = (front.engine(), ask.who(), &ask.which);
    let looked = stream::iter(found.paths).map(|path| async move {
        // What went away meanwhile is not found.
        engine.stat(who, which, &path, false).await.ok()
    });
    let entries: Vec<_> = looked.buffered(MAX_AT_ONCE).collect().await;
    let files = entries.iter().flatten().filter(|entry| entry.kind != FileKind::Directory);
    Ok(Json(Value::Array(files.map(|entry| shape(entry, &owners)).collect())))
}

pub(super) async fn rename(
    State(front): State<Front>,
    ask: Ask,
    JsonList(renamings): JsonList<Renaming>,
) -> ApiResult<()> {
    ask.awake().await?;
    for Renaming { src, dest } in renamings {
        front.engine().rename_path(ask.who(), &ask.which, &src, &dest, false).await?;
    }
    Ok(())
}

pub(super) async fn permissions(
    State(front): State<Front>,
    ask: Ask,
    JsonBody(asked): JsonBody<BTreeMap<String, Permission>>,
) -> ApiResult<()> {
    // All are read before one is changed.
    let asked: Vec<_> = asked
        .into_iter()
        .map(|(path, permission)| Ok((path, permission.mode.map(octal).transpose()?, permission)))
        .collect::<Result<_>>()?;
    ask.awake().await?;
    for (path, mode, Permission { owner, group, .. }) in asked {
        if let Some(mode) = mode {
            front.engine().chmod(ask.who(), &ask.which, &path, mode, false).await?;
        }
        owners::give(&front, &ask, &path, owner.as_deref(), group.as_deref()).await?;
    }
    Ok(())
}

/// Replaces every occurrence. All files are read before one is written.
pub(super) async fn replace(
    State(front): State<Front>,
    ask: Ask,
    JsonBody(asked): JsonBody<BTreeMap<String, Replacement>>,
) -> ApiResult<Response> {
    let is_verbose = ask.query().only(&["verbose"])?.flag("verbose")?;
    ask.awake().await?;
    let mut edited = Vec::new();
    for (path, Replacement { old, new }) in asked {
        if old.is_empty() {
            let error = Error::invalid(format!("{path}: the text to replace is empty"));
            return Err(error.about(Thing::File, path).into());
        }
        let (mode, text) = read(&front, &ask, &path).await?;
        let n = text.matches(&old).count();
        edited.push((path, mode, n, (n > 0).then(|| text.replace(&old, &new))));
    }
    let mut counts = Map::new();
    for (path, mode, n, text) in edited {
        if let Some(text) = text {
            let options = WriteOptions { permissions: Some(mode), ..WriteOptions::default() };
            let bytes = stream::iter([Ok(text.into())]).boxed();
            front.engine().write_file(ask.who(), &ask.which, &path, options, bytes).await?;
        }
        counts.insert(path, json!({ "replacedCount": n }));
    }
    Ok(if is_verbose { Json(Value::Object(counts)).into_response() } else { ().into_response() })
}

async fn read(front: &Front, ask: &Ask, path: &str) -> Result<(u32, String)> {
    let wrong = |message: String| Error::invalid(message).about(Thing::File, path);
    let most = MAX_EDITED_BYTES + 1;
    let (entry, mut bytes) = front.engine().read_file(ask.who(), &ask.which, path, 0, Some(most)).await?;
    let mut all = Vec::new();
    while let Some(piece) = bytes.next().await {
        all.extend_from_slice(&piece?);
    }
    if all.len() as u64 > MAX_EDITED_BYTES {
        return Err(wrong(format!(
            "{path} has more than {MAX_EDITED_BYTES} bytes, which is the limit for this"
        )));
    }
    let text = String::from_utf8(all).map_err(|_binary| wrong(format!("{path} is not text in UTF-8")))?;
    Ok((entry.mode, text))
}
