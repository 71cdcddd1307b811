//! Directories.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use sandbox::{Error, ErrorKind, FileKind, Result, Thing};
use serde_json::Value;

use super::{
    files::{Permission, shape},
    octal,
    owners::{self, Owners},
};
use crate::{
    dialects::opensandbox::ask::{Ask, Front},
    http::{ApiResult, JsonBody},
};

/// Entries of one answer.
const MAX_LISTED: u32 = 10_000;
const DEFAULT_DEPTH: u64 = 1;

/// Like `mkdir -p`.
pub(super) async fn create(
    State(front): State<Front>,
    ask: Ask,
    JsonBody(asked): JsonBody<BTreeMap<String, Permission>>,
) -> ApiResult<()> {
    // All are read before one is made.
    let asked: Vec<_> = asked
        .into_iter()
        .map(|(path, permission)| Ok((path, permission.mode.map(octal).transpose()?, permission)))
        .collect::<Result<_>>()?;
    ask.awake().await?;
    for (path, mode, Permission { owner, group, .. }) in asked {
        front.engine().mkdir(ask.who(), &ask.which, &path, true, mode).await?;
        owners::give(&front, &ask, &path, owner.as_deref(), group.as_deref()).await?;
    }
    Ok(())
}

/// With everything in them. What is not there is as good as deleted.
pub(super) async fn delete(State(front): State<Front>, ask: Ask) -> ApiResult<()> {
    let paths = ask.query().only(&["path"])?.several("path")?;
    ask.awake().await?;
    for path in &paths {
        match front.engine().stat(ask.who(), &ask.which, path, false).await {
            Ok(entry) if entry.kind != FileKind::Directory => {
                return Err(Error::invalid(format!("{path} is not a directory"))
                    .about(Thing::File, *path)
                    .with_hint("Delete it with DELETE /files.")
                    .into());
            }
            Ok(_) => front.engine().remove_path(ask.who(), &ask.which, path, true).await?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub(super) async fn list(State(front): State<Front>, ask: Ask) -> ApiResult<Json<Value>> {
    let query = ask.query().only(&["path", "depth"])?;
    let (path, depth) = (query.required("path")?, query.number("depth")?.unwrap_or(DEFAULT_DEPTH));
    if depth == 0 {
        return Err(Error::invalid("depth 0: the directory itself has depth 0, its entries have 1").into());
    }
    ask.awake().await?;
    let found = front.engine().list(ask.who(), &ask.which, path, depth > 1, MAX_LISTED).await?;
    let owners = Owners::of(&front, &ask).await;
    let root = path.trim_end_matches('/');
    let entries = found.entries.iter().filter(|entry| depth_below(root, &entry.path) <= depth);
    Ok(Json(Value::Array(entries.map(|entry| shape(entry, &owners)).collect())))
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
