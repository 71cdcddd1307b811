//! `snapshot_save` and `snapshot_load`, and as they were called before: `snapshot_export` and `snapshot_import`.

use engine::{SaveOptions, SnapshotView};
use sandbox::SnapshotName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{named, new_name, shapes::SnapshotHandle, waiting};
use crate::mcp::{
    Answer, Call, Failure, ToolResult,
    hostfs::{NewFile, Source},
};

/// The mode of an archive that is written: it may hold secrets.
const ARCHIVE_MODE: u32 = 0o600;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SaveArguments {
    /// Name, digest, or path of snapshot_list
    path_or_name: String,
    /// Host path of the file to write
    out: String,
    /// Include its parents; default true: without them it loads only where they exist
    with_parents: Option<bool>,
    /// Include its image; default false
    with_image: Option<bool>,
    /// Not compressed
    plain_tar: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Saved {
    path_or_name: String,
    out: String,
    bytes: u64,
    saved: bool,
    /// As saved, for clients of older versions.
    exported: bool,
}

pub(super) async fn save(call: Call, arguments: SaveArguments) -> ToolResult<Saved> {
    let which = named(&call, &arguments.path_or_name).await?;
    let options = SaveOptions {
        with_parents: arguments.with_parents.unwrap_or(true),
        with_image: arguments.with_image.unwrap_or(false),
        plain: arguments.plain_tar.unwrap_or(false),
    };
    let file = NewFile::begin(&call, &arguments.out, ARCHIVE_MODE).await?;
    let work = call.engine().save_snapshot(&call.who, &which, file.writer(), options);
    let warnings = waiting(&call, work).await?;
    let (out, bytes) = file.commit().await?;
    let saved = Saved { path_or_name: arguments.path_or_name, out, bytes, saved: true, exported: true };
    Ok(Answer::new(saved).warn_all(warnings))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LoadArguments {
    /// Host path of an archive by snapshot_save, here or elsewhere
    archive: String,
    /// Default the name it was saved under
    name: Option<String>,
    /// Without effect: snapshots stay with the daemon
    #[schemars(extend("x-full-only" = true))]
    dest: Option<String>,
}

pub(super) async fn load(call: Call, arguments: LoadArguments) -> ToolResult<SnapshotHandle> {
    let name = arguments.name.as_deref().map(new_name).transpose()?;
    let archive = Source::open(&call, &arguments.archive).await?;
    let view = take_in(&call, name.clone(), archive).await?;
    let ignored = arguments.dest.map(|_| "dest has no effect: snapshots stay with the daemon.".to_owned());
    let warnings = ignored.into_iter().chain(otherwise_named(name.as_ref(), &view));
    Ok(Answer::new((&view).into()).warn_all(warnings))
}

pub(super) async fn take_in(
    call: &Call,
    name: Option<SnapshotName>,
    archive: Source,
) -> Result<SnapshotView, Failure> {
    let namespace = call.namespace.clone().unwrap_or_else(|| call.who.home_namespace());
    let work = call.engine().load_snapshot(&call.who, &namespace, name, archive.into_reader());
    waiting(call, work).await
}

/// Returns the warning for a loaded snapshot that has another name than the one asked for, or the one it was saved
/// under.
pub(super) fn otherwise_named(asked: Option<&SnapshotName>, view: &SnapshotView) -> Option<String> {
    let wanted = asked.or(view.saved_as.as_ref()).filter(|wanted| view.name.as_ref() != Some(wanted))?;
    let called = view.name.as_ref().map_or(&view.digest as &dyn std::fmt::Display, |name| name);
    Some(match asked {
        Some(_) => format!("The snapshot already exists and keeps its name: {called}, not {wanted}."),
        None => {
            format!("It is called {called} here, because its saved name {wanted} was taken.")
        }
    })
}
