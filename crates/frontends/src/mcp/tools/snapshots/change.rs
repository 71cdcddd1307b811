//! `snapshot_create`, `snapshot_remove`, `snapshot_reindex`.

use std::collections::{BTreeMap, HashSet};

use engine::{Force, SnapshotFate, SnapshotSpec};
use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{archives::otherwise_named, confirmed, named, new_name, shapes::Snapshot, waiting};
use crate::mcp::{Answer, Call, Failure, Nullable, ToolResult, hostfs::Source};

/// Snapshots that one call names.
const MAX_NAMED: usize = 256;
/// Archives that one call loads from a directory.
const MAX_ARCHIVES: usize = 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateArguments {
    /// Default: generated from the sandbox's name
    name: Option<String>,
    /// Running or stopped
    #[schemars(extend("x-required" = true))]
    from_sandbox: Option<String>,
    /// The same as fromSandbox, for older clients
    #[schemars(extend("x-full-only" = true))]
    source_sandbox: Option<String>,
    /// As destDir
    #[schemars(extend("x-full-only" = true))]
    path: Option<String>,
    /// Not possible: snapshots stay with the daemon; snapshot_save writes to a path
    #[schemars(extend("x-full-only" = true))]
    dest_dir: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    /// Takes the name from a snapshot that has it
    force: Option<bool>,
    /// Needed with force
    confirm: Option<bool>,
    /// Digests are always recorded
    #[schemars(extend("x-full-only" = true))]
    record_integrity: Option<bool>,
}

pub(super) async fn create(call: Call, arguments: CreateArguments) -> ToolResult<Snapshot> {
    for (field, given) in [("destDir", &arguments.dest_dir), ("path", &arguments.path)] {
        if given.is_some() {
            return Err(elsewhere(field));
        }
    }
    let source = source(arguments.from_sandbox, arguments.source_sandbox)?;
    let replace = arguments.force.unwrap_or(false);
    if replace {
        confirmed(&call, arguments.confirm, "snapshot_create")?;
    }
    let spec = SnapshotSpec {
        name: arguments.name.as_deref().map(new_name).transpose()?,
        from: call.sandbox(&source)?,
        labels: arguments.labels.unwrap_or_default(),
        replace,
    };
    let view = waiting(&call, call.engine().create_snapshot(&call.who, spec)).await?;
    let answer = Answer::new((&view).into());
    Ok(match arguments.record_integrity {
        Some(false) => answer.warn("recordIntegrity: false has no effect; integrity is always recorded."),
        _ => answer,
    })
}

/// The sandbox, by either name of the field.
fn source(from: Option<String>, source: Option<String>) -> Result<String, Failure> {
    let hint = "Set fromSandbox to a name from sandbox_list, and call snapshot_create again.";
    match (from, source) {
        (Some(from), Some(source)) if from != source => {
            let message =
                format!("fromSandbox is {from:?} but sourceSandbox is {source:?}; they mean the same");
            Err(Failure::invalid(message).with_hint(hint))
        }
        (Some(name), _) | (None, Some(name)) => Ok(name),
        (None, None) => Err(Failure::invalid("snapshot_create requires fromSandbox").with_hint(hint)),
    }
}

fn elsewhere(field: &str) -> Failure {
    let error = Error::new(
        ErrorKind::Unsupported,
        format!("{field} is not supported: the daemon stores snapshots itself"),
    );
    Failure::from(error)
        .with_hint(format!("Omit {field}, and call snapshot_save to write the snapshot to a path."))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoveArguments {
    /// Name, digest, or path of snapshot_list
    path_or_name: Option<String>,
    path_or_names: Option<Vec<String>>,
    /// Even if in use: it loses its name, and is deleted with its last user
    force: Option<bool>,
    /// Needed with force
    confirm: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Removed {
    path_or_name: String,
    removed: bool,
    /// It has lost its name, and will be deleted with its last user.
    kept_for_users: bool,
}

pub(super) async fn remove(call: Call, arguments: RemoveArguments) -> ToolResult<Vec<Removed>> {
    let mut all: Vec<String> =
        arguments.path_or_name.into_iter().chain(arguments.path_or_names.into_iter().flatten()).collect();
    let mut seen = HashSet::new();
    all.retain(|one| seen.insert(one.clone()));
    if all.is_empty() || all.len() > MAX_NAMED {
        let message = match all.len() {
            0 => "snapshot_remove requires pathOrName or pathOrNames".to_owned(),
            n => format!("{n} snapshots were given; the limit is {MAX_NAMED}"),
        };
        return Err(Failure::invalid(message).with_hint("Call snapshot_list to see all snapshots."));
    }
    let force = match arguments.force {
        Some(true) => {
            confirmed(&call, arguments.confirm, "snapshot_remove")?;
            Force::Yes
        }
        _ => Force::No,
    };
    let mut removed: Vec<Removed> = Vec::with_capacity(all.len());
    for path_or_name in all {
        let work = async {
            let which = named(&call, &path_or_name).await?;
            call.engine().remove_snapshot(&call.who, &which, force).await.map_err(Failure::from)
        };
        match work.await {
            Ok(fate) => removed.push(Removed {
                path_or_name,
                removed: true,
                kept_for_users: fate == SnapshotFate::Unnamed,
            }),
            // Those before it are gone; whoever asked has to know.
            Err(failure) if !removed.is_empty() => {
                let gone: Vec<_> = removed.iter().map(|one| &one.path_or_name).collect();
                return Err(failure.with_details(serde_json::json!({ "removed": gone })));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(Answer::new(removed))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ReindexArguments {
    /// Host directory with archives by snapshot_save: all of them are loaded
    dir: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Reindexed {
    dir: Nullable<String>,
    indexed: usize,
}

pub(super) async fn reindex(call: Call, arguments: ReindexArguments) -> ToolResult<Reindexed> {
    let Some(dir) = arguments.dir else {
        let found = waiting(&call, call.engine().reindex_snapshots(&call.who)).await?;
        return Ok(Answer::new(Reindexed { dir: Nullable(None), indexed: found.n_known }));
    };
    let directory = Source::open(&call, &dir).await?;
    let shown = directory.shown();
    let names = directory.names().await?;
    let archives = names.iter().filter(|name| name.ends_with(".tar") || name.ends_with(".tar.zst"));
    let (mut indexed, mut warnings) = (0, Vec::new());
    let namespace = call.namespace.clone().unwrap_or_else(|| call.who.home_namespace());
    for name in archives.take(MAX_ARCHIVES) {
        let loaded = async {
            let archive = Source::open(&call, &format!("{dir}/{name}")).await?;
            let reader = archive.into_reader();
            waiting(&call, call.engine().load_snapshot(&call.who, &namespace, None, reader)).await
        };
        match loaded.await {
            Ok(view) => {
                indexed += 1;
                warnings.extend(otherwise_named(None, &view).map(|told| format!("{name}: {told}")));
            }
            Err(failure) => warnings.push(format!("Skipped {name}: {}.", failure.error())),
        }
    }
    Ok(Answer::new(Reindexed { dir: Nullable(Some(shown)), indexed }).warn_all(warnings))
}
