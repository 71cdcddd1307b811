//! Patches of a new sandbox: from fields to what the engine applies, and what they copy from the host.

use std::{collections::BTreeMap, path::Path};

use engine::PatchSource;
use sandbox::Patch;

use super::fields::{self, PatchKind};
use crate::mcp::{
    Call, Failure,
    hostfs::{self, Report},
    octets::from_base64,
    tools::files::for_call,
};

/// Permission bits: callers may give the kind of the file along, as `stat` does.
const MODE_BITS: u32 = 0o7777;

/// The sources that patches copy, and the reports on their copies, by the place of the patch.
pub(super) type Sources = (BTreeMap<usize, PatchSource>, Vec<(usize, Report)>);

pub(super) fn plan(patches: Vec<fields::Patch>) -> Result<Vec<Patch>, Failure> {
    let patches = patches.into_iter().enumerate();
    patches.map(|(index, patch)| decide(&format!("patches[{index}]"), patch)).collect()
}

fn decide(place: &str, patch: fields::Patch) -> Result<Patch, Failure> {
    let kind = patch.kind.as_str();
    let wants = |what: &str| {
        Failure::invalid(format!("{place}: a patch of kind {kind} needs {what}"))
            .with_hint("The resource warren://schemas/sandbox-create has the fields of every patch.")
    };
    let bytes = patch.content_base64.as_deref().map(|text| {
        from_base64(text).map_err(|error| {
            Failure::invalid(format!("{place}.contentBase64 is not base64: {error}"))
                .with_hint("Encode the bytes again, or give text as content.")
        })
    });
    let (bytes, text) = (bytes.transpose()?, patch.content);
    let path = patch.path.or(patch.guest_path);
    let mode = patch.mode.map(|mode| mode & MODE_BITS);
    let replace = patch.replace.unwrap_or(false);
    let path = match patch.kind {
        PatchKind::Symlink => patch.link_path.or(path).ok_or_else(|| wants("linkPath"))?,
        _ => path.ok_or_else(|| wants("path"))?,
    };
    let host_path = || patch.host_path.clone().map(Into::into).ok_or_else(|| wants("hostPath"));
    Ok(match patch.kind {
        PatchKind::Text => match (text, bytes) {
            // Nothing is a content too.
            (text, None) => Patch::Text { path, content: text.unwrap_or_default(), mode, replace },
            (_, Some(content)) => Patch::File { path, content, mode, replace },
        },
        PatchKind::File => {
            let content = bytes.or(text.map(String::into_bytes)).unwrap_or_default();
            Patch::File { path, content, mode, replace }
        }
        PatchKind::Append => {
            let text = text.map(Ok).or_else(|| bytes.map(String::from_utf8)).transpose();
            let content = text.map_err(|_bytes| wants("text as content"))?.unwrap_or_default();
            Patch::Append { path, content, mode }
        }
        PatchKind::Mkdir => Patch::Mkdir { path, mode },
        PatchKind::Remove => Patch::Remove { path },
        PatchKind::Symlink => {
            Patch::Symlink { target: patch.target.clone().ok_or_else(|| wants("target"))?, path, replace }
        }
        PatchKind::CopyFile => Patch::CopyFile { host_path: host_path()?, path, mode, replace },
        PatchKind::CopyDir => Patch::CopyDir { host_path: host_path()?, path, mode, replace },
    })
}

/// Opens what is copied from the host, so that what may not be read makes nothing.
pub(super) async fn open(call: &Call, patches: &[Patch]) -> Result<Sources, Failure> {
    let (mut sources, mut reports) = (BTreeMap::new(), Vec::new());
    for (index, patch) in patches.iter().enumerate() {
        let Some(host_path) = patch.host_path() else { continue };
        let opened = open_one(call, host_path, matches!(patch, Patch::CopyDir { .. })).await;
        let (source, report) = opened.map_err(|failure| at_place(index, failure))?.into_patch();
        sources.insert(index, for_call(call, source));
        reports.push((index, report));
    }
    Ok((sources, reports))
}

async fn open_one(call: &Call, path: &Path, wants_directory: bool) -> Result<hostfs::Source, Failure> {
    let path = path.to_string_lossy();
    let source = hostfs::Source::open(call, &path).await?;
    source.check_kind(wants_directory)?;
    Ok(source)
}

/// Rewords a failure to read at the host so that it names the patch.
pub(super) fn at_place(index: usize, failure: Failure) -> Failure {
    failure.reworded(|words| format!("patches[{index}] failed, so the sandbox was not created: {words}"))
}
