//! Files that a new sandbox gets before it is handed over: patches and scripts.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use engine::{SandboxRef, WriteOptions};
use futures_util::StreamExt;
use sandbox::{Error, ErrorKind, WriteMode};

use super::fields::{Patch, PatchKind};
use crate::mcp::{
    call::Call,
    envelope::{Failure, HOST_PATH_DENIED},
};

/// Most patches and scripts of one sandbox.
const MAX_STEPS: usize = 256;
const MAX_SCRIPT_NAME_BYTES: usize = 64;
const SCRIPT_DIRECTORY: &str = "/usr/local/bin";
const SCRIPT_MODE: u32 = 0o755;
/// Permission bits: callers may give the kind of the file along, as `stat` does.
const MODE_BITS: u32 = 0o7777;

/// One thing to do, checked as far as it can be before there is a sandbox.
#[derive(Debug)]
pub(super) struct Step {
    /// As the caller finds it in the call: `patches[2]`.
    place: String,
    deed: Deed,
}

#[derive(Debug)]
enum Deed {
    Write { path: String, bytes: Bytes, options: WriteOptions },
    Mkdir { path: String, mode: Option<u32> },
    Remove { path: String },
    Symlink { target: String, path: String, replace: bool },
}

/// Patches in their order, then scripts.
pub(super) fn plan(patches: Vec<Patch>, scripts: BTreeMap<String, String>) -> Result<Vec<Step>, Failure> {
    let n_steps = patches.len() + scripts.len();
    if n_steps > MAX_STEPS {
        return Err(Failure::invalid(format!("{n_steps} patches and scripts; at most {MAX_STEPS} fit"))
            .with_hint("Write the rest with sandbox_fs_write once the sandbox runs."));
    }
    let patches = patches.into_iter().enumerate().map(|(index, patch)| {
        let place = format!("patches[{index}]");
        Ok(Step { deed: patch_deed(&place, patch)?, place })
    });
    let scripts = scripts.into_iter().map(|(name, text)| script(&name, text));
    patches.chain(scripts).collect()
}

fn patch_deed(place: &str, patch: Patch) -> Result<Deed, Failure> {
    let kind = patch.kind.as_str();
    let wants = |what: &str| {
        Failure::invalid(format!("{place}: a {kind} patch needs {what}"))
            .with_hint("The resource warren://schemas/sandbox-create has the fields of every patch.")
    };
    let bytes = match (&patch.content_base64, patch.content) {
        (Some(text), _) => {
            let bytes = STANDARD
                .decode(text)
                .map_err(|error| Failure::invalid(format!("{place}.contentBase64 is not base64: {error}")))?;
            Some(Bytes::from(bytes))
        }
        (None, content) => content.map(Bytes::from),
    };
    let path = patch.path.or(patch.guest_path);
    let mode = patch.mode.map(|mode| mode & MODE_BITS);
    let replace = patch.replace.unwrap_or(false);
    match patch.kind {
        PatchKind::Text | PatchKind::File | PatchKind::Append => {
            let how = match (patch.kind, replace) {
                (PatchKind::Append, _) => WriteMode::Append,
                (_, true) => WriteMode::Replace,
                (_, false) => WriteMode::CreateNew,
            };
            let field = if patch.kind == PatchKind::File { "contentBase64" } else { "content" };
            Ok(Deed::Write {
                path: path.ok_or_else(|| wants("path"))?,
                bytes: bytes.ok_or_else(|| wants(field))?,
                options: WriteOptions { mode: how, permissions: mode, parents: true },
            })
        }
        PatchKind::Mkdir => Ok(Deed::Mkdir { path: path.ok_or_else(|| wants("path"))?, mode }),
        PatchKind::Remove => Ok(Deed::Remove { path: path.ok_or_else(|| wants("path"))? }),
        PatchKind::Symlink => Ok(Deed::Symlink {
            target: patch.target.ok_or_else(|| wants("target"))?,
            path: patch.link_path.or(path).ok_or_else(|| wants("linkPath"))?,
            replace,
        }),
        PatchKind::CopyFile | PatchKind::CopyDir => {
            let host_path = patch.host_path.ok_or_else(|| wants("hostPath"))?;
            path.ok_or_else(|| wants("path"))?;
            Err(Failure::new(
                HOST_PATH_DENIED,
                format!("{place}: the host path {host_path:?} is not allowed"),
            )
            .with_hint("Give the content itself, in a text or file patch."))
        }
    }
}

fn script(name: &str, text: String) -> Result<Step, Failure> {
    let is_plain = !name.is_empty()
        && name.len() <= MAX_SCRIPT_NAME_BYTES
        && !name.starts_with(['.', '-'])
        && !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
    if !is_plain {
        let shown: String = name.chars().take(MAX_SCRIPT_NAME_BYTES).collect();
        return Err(Failure::invalid(format!("process.scripts: {shown:?} is not a name for a program"))
            .with_hint("A script's name has no slash and no space, such as build or run-tests."));
    }
    let options = WriteOptions { mode: WriteMode::Replace, permissions: Some(SCRIPT_MODE), parents: true };
    let path = format!("{SCRIPT_DIRECTORY}/{name}");
    let place = format!("process.scripts.{name}");
    Ok(Step { place, deed: Deed::Write { path, bytes: Bytes::from(text), options } })
}

/// Does them in their order; the first that fails is told by its place.
pub(super) async fn apply(call: &Call, which: &SandboxRef, steps: Vec<Step>) -> Result<(), Failure> {
    for step in steps {
        let Step { place, deed } = step;
        perform(call, which, deed).await.map_err(|error| {
            let failure = Failure::from(error);
            let message = format!("{place} failed, so the sandbox was not made: {}", failure.message);
            Failure { message, ..failure }.or_hint(
                ErrorKind::AlreadyExists,
                "Set replace: true on this patch to overwrite what is there.",
            )
        })?;
    }
    Ok(())
}

async fn perform(call: &Call, which: &SandboxRef, deed: Deed) -> Result<(), Error> {
    let (engine, who) = (call.engine(), &call.who);
    match deed {
        Deed::Write { path, bytes, options } => {
            let body = futures_util::stream::iter([Ok(bytes)]).boxed();
            engine.write_file(who, which, &path, options, body).await.map(drop)
        }
        Deed::Mkdir { path, mode } => engine.mkdir(who, which, &path, true, mode).await,
        Deed::Remove { path } => gone(engine.remove_path(who, which, &path, true).await),
        Deed::Symlink { target, path, replace } => {
            if replace {
                gone(engine.remove_path(who, which, &path, false).await)?;
            }
            engine.symlink(who, which, &target, &path).await
        }
    }
}

/// What is not there need not be removed.
fn gone(removed: Result<(), Error>) -> Result<(), Error> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
