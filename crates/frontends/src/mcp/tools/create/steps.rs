//! Files that a new sandbox gets before it is handed over: patches and scripts.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use engine::{SandboxRef, WriteOptions};
use futures_util::StreamExt;
use sandbox::{Error, ErrorKind, WriteMode};

use super::fields::{Patch, PatchKind};
use crate::mcp::{call::Call, envelope::Failure, hostfs};

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
    Copy { from: HostSource, path: String, mode: Option<u32>, replace: bool },
}

/// What is copied from the host: held open from before the sandbox is made, so that what may not be read makes nothing.
#[derive(Debug)]
enum HostSource {
    Named { host_path: String, kind: PatchKind },
    Open(hostfs::Source),
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
            let path = path.ok_or_else(|| wants("path"))?;
            Ok(Deed::Copy { from: HostSource::Named { host_path, kind: patch.kind }, path, mode, replace })
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

/// Opens what is copied from the host.
pub(super) async fn open(call: &Call, steps: Vec<Step>) -> Result<Vec<Step>, Failure> {
    let mut opened = Vec::with_capacity(steps.len());
    for step in steps {
        let deed = match step.deed {
            Deed::Copy { from: HostSource::Named { host_path, kind }, path, mode, replace } => {
                let source = open_source(call, &host_path, kind).await;
                let source = source.map_err(|failure| at_place(&step.place, failure))?;
                Deed::Copy { from: HostSource::Open(source), path, mode, replace }
            }
            other => other,
        };
        opened.push(Step { deed, ..step });
    }
    Ok(opened)
}

async fn open_source(call: &Call, host_path: &str, kind: PatchKind) -> Result<hostfs::Source, Failure> {
    let source = hostfs::Source::open(call, host_path).await?;
    let (is, right) = match source.is_directory() {
        true => ("a directory", PatchKind::CopyDir),
        false => ("a file", PatchKind::CopyFile),
    };
    if kind != right {
        let message = format!("{host_path} on the host is {is}");
        return Err(Failure::invalid(message).with_hint(format!("Use a patch of kind {}.", right.as_str())));
    }
    Ok(source)
}

fn at_place(place: &str, failure: Failure) -> Failure {
    let message = format!("{place} failed, so the sandbox was not made: {}", failure.message);
    Failure { message, ..failure }
        .or_hint(ErrorKind::AlreadyExists, "Set replace: true on this patch to overwrite what is there.")
}

/// Does them in their order; the first that fails is told by its place. Returns what the caller should know.
pub(super) async fn apply(call: &Call, which: &SandboxRef, steps: Vec<Step>) -> Result<Vec<String>, Failure> {
    let mut warnings = Vec::new();
    for Step { place, deed } in steps {
        let performed = perform(call, which, deed).await;
        warnings.extend(performed.map_err(|failure| at_place(&place, failure))?);
    }
    Ok(warnings)
}

async fn perform(call: &Call, which: &SandboxRef, deed: Deed) -> Result<Option<String>, Failure> {
    let (engine, who) = (call.engine(), &call.who);
    match deed {
        Deed::Write { path, bytes, options } => {
            let body = futures_util::stream::iter([Ok(bytes)]).boxed();
            engine.write_file(who, which, &path, options, body).await?;
        }
        Deed::Mkdir { path, mode } => engine.mkdir(who, which, &path, true, mode).await?,
        Deed::Remove { path } => gone(engine.remove_path(who, which, &path, true).await)?,
        Deed::Symlink { target, path, replace } => {
            if replace {
                gone(engine.remove_path(who, which, &path, false).await)?;
            }
            engine.symlink(who, which, &target, &path).await?;
        }
        Deed::Copy { from, path, mode, replace } => {
            let HostSource::Open(source) = from else {
                return Err(Error::new(ErrorKind::Internal, "a host path was not opened").into());
            };
            return copy(call, which, source, &path, mode, replace).await;
        }
    }
    Ok(None)
}

async fn copy(
    call: &Call,
    which: &SandboxRef,
    source: hostfs::Source,
    path: &str,
    mode: Option<u32>,
    replace: bool,
) -> Result<Option<String>, Failure> {
    let (engine, who) = (call.engine(), &call.who);
    if !replace {
        match engine.stat(who, which, path, false).await {
            Ok(_) => return Err(Error::new(ErrorKind::AlreadyExists, format!("{path} exists")).into()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    let copied = source.copy_into(call, which, path).await?;
    if let Some(mode) = mode {
        engine.chmod(who, which, path, mode, false).await?;
    }
    Ok(copied.warning())
}

/// What is not there need not be removed.
fn gone(removed: Result<(), Error>) -> Result<(), Error> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
