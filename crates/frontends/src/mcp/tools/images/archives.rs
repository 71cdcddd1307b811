//! `image_load`, `image_save`, `image_import`: images from and to files of the host.

use engine::{ArchiveFormat, Platform};
use sandbox::ErrorKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    change::named,
    shapes::{ImageHandle, warnings},
};
use crate::{
    images::{ImageConfig, reference},
    mcp::{
        Answer, Call, Failure, ToolResult,
        hostfs::{NewFile, Source},
        tools::telling::while_waiting,
    },
};

/// The mode of an archive that is written.
const ARCHIVE_MODE: u32 = 0o644;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LoadArguments {
    /// Host path of a tar, compressed or not, or of the directory of an OCI layout
    path: String,
}

/// Images that came from an archive.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Loaded {
    path: String,
    images: Vec<ImageHandle>,
}

pub(super) async fn load(call: Call, arguments: LoadArguments) -> ToolResult<Loaded> {
    let source = Source::open(&call, &arguments.path).await?;
    let path = source.shown();
    let archive = source.into_reader();
    let work = call.engine().load_images(&call.who, archive, None);
    let details = waiting(&call, work).await.map_err(|failure| {
        failure.or_hint(
            ErrorKind::Unsupported,
            "Use an archive from docker save, skopeo or image_save; image_import takes the tar of a root file system.",
        )
    })?;
    let images = details.iter().flat_map(|detail| ImageHandle::all(&detail.summary)).collect();
    let warnings: Vec<_> = details.iter().flat_map(warnings).collect();
    Ok(Answer::new(Loaded { path, images }).warn_all(warnings))
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Docker,
    Oci,
}

impl From<Format> for ArchiveFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Docker => Self::Docker,
            Format::Oci => Self::Oci,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SaveArguments {
    reference: Option<String>,
    /// Several in one archive
    references: Option<Vec<String>>,
    /// Host path of the file to write
    path: String,
    /// Default docker
    format: Option<Format>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Saved {
    references: Vec<String>,
    path: String,
    bytes: u64,
    saved: bool,
}

pub(super) async fn save(call: Call, arguments: SaveArguments) -> ToolResult<Saved> {
    let references = named("image_save", arguments.reference, arguments.references)?;
    let file = NewFile::begin(&call, &arguments.path, ARCHIVE_MODE).await?;
    let format = arguments.format.unwrap_or_default().into();
    waiting(&call, call.engine().save_images(&call.who, &references, file.writer(), format)).await?;
    let (path, bytes) = file.commit().await?;
    Ok(Answer::new(Saved { references, path, bytes, saved: true }))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ImportArguments {
    /// Host path of the tar, compressed or not, or of a directory
    path: String,
    /// Name of the image
    reference: String,
    config: Option<ImageConfig>,
    /// Default this machine's
    platform: Option<String>,
}

pub(super) async fn import(call: Call, arguments: ImportArguments) -> ToolResult<ImageHandle> {
    let name = reference(&arguments.reference)?;
    let platform = match &arguments.platform {
        Some(text) => {
            text.parse().map_err(|error: engine::ImageError| Failure::invalid(error.to_string()))?
        }
        None => Platform::host(),
    };
    let source = Source::open(&call, &arguments.path).await?;
    let config = arguments.config.unwrap_or_default().into();
    let (engine, who) = (call.engine(), &call.who);
    let work = engine.import_image(who, source.into_reader(), config, platform, name);
    let detail = waiting(&call, work).await?;
    let warnings = warnings(&detail);
    Ok(Answer::new(ImageHandle::asked(&detail.summary, &arguments.reference)).warn_all(warnings))
}

/// Works, tells a caller who wants to know that it does, and ends with a caller who cancels.
async fn waiting<T>(call: &Call, work: impl Future<Output = sandbox::Result<T>>) -> Result<T, Failure> {
    let cancelled = || Failure::new(ErrorKind::Cancelled, "the call was cancelled; nothing was changed");
    let done = call.cancelled.run_until_cancelled(while_waiting(call, None, work)).await;
    done.ok_or_else(cancelled)?.map_err(|error| {
        let is_archive = error.kind() == ErrorKind::InvalidRequest && error.next().is_none();
        let failure = Failure::from(error);
        if is_archive {
            return failure
                .with_hint("Check that the path is an archive from docker save, skopeo or warren save.");
        }
        failure
    })
}
