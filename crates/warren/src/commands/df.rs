//! `warren df`

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use frontends::rest::v1;
use sandbox::ErrorKind;
use serde::Serialize;

use super::Context;
use crate::{client::Client, error::CommandResult, output};

/// Show the disk usage of images, sandboxes, snapshots and volumes
///
/// `warren prune` frees what is unused.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren df
  warren df --json")]
pub(crate) struct Args {}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    kind: &'static str,
    count: usize,
    /// How many are in use: sandboxes that run; images, snapshots and volumes that a sandbox or snapshot depends on.
    in_use: usize,
    /// Absent if unknown.
    bytes: Option<u64>,
    /// Bytes of unused objects. A layer that unused images share counts once; a layer that a used image needs does not
    /// count.
    unused_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Report {
    rows: Vec<Row>,
}

pub(crate) async fn run(context: &Context, _args: Args) -> CommandResult {
    let client = context.client().await?;
    let rows = vec![
        images(&client).await?,
        sandboxes(&client).await?,
        snapshots(&client).await?,
        volumes(&client).await?,
    ];
    if context.json {
        output::json(&Report { rows })?;
        return Ok(ExitCode::SUCCESS);
    }
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), output::bytes);
    let rows = rows.into_iter().map(|row| {
        let Row { kind, count, in_use, bytes, unused_bytes } = row;
        [kind.to_owned(), count.to_string(), in_use.to_string(), size(bytes), size(unused_bytes)]
    });
    output::table(["WHAT", "COUNT", "IN USE", "SIZE", "UNUSED"], rows)?;
    Ok(ExitCode::SUCCESS)
}

async fn images(client: &Client) -> CommandResult<Row> {
    let usage = client.images_usage().await?;
    let images = client.images().await?;
    let mut details = Vec::with_capacity(images.len());
    for image in &images {
        match client.image(&image.digest).await {
            // It was removed meanwhile.
            Err(error) if error.kind() == Some(ErrorKind::NotFound) => {}
            detail => details.push(detail?),
        }
    }
    let unused_bytes = only_unused(&details);
    Ok(Row {
        kind: "images",
        count: details.len(),
        in_use: details.iter().filter(|detail| !detail.image.used_by.is_empty()).count(),
        bytes: Some(usage.blob_bytes + usage.layer_bytes + usage.partial_bytes),
        unused_bytes: Some(unused_bytes),
    })
}

/// Bytes on disk that only unused images need: what a prune frees.
fn only_unused(images: &[v1::ImageDetail]) -> u64 {
    let (used, unused): (Vec<_>, Vec<_>) = images.iter().partition(|detail| !detail.image.used_by.is_empty());
    let needed: BTreeSet<_> = used.into_iter().flat_map(parts).map(|(name, _)| name).collect();
    let parts: BTreeMap<_, _> = unused.into_iter().flat_map(parts).collect();
    parts.into_iter().filter(|(name, _)| !needed.contains(name)).map(|(_, bytes)| bytes).sum()
}

/// The parts of an image on disk, by their names there, with their sizes.
fn parts(detail: &v1::ImageDetail) -> Vec<((&'static str, &str), u64)> {
    let blobs: BTreeMap<_, _> =
        detail.layers.iter().map(|layer| (("blob", layer.blob.as_str()), layer.blob_bytes)).collect();
    let layers: BTreeMap<_, _> =
        detail.layers.iter().map(|layer| (("layer", layer.diff_id.as_str()), layer.disk_bytes)).collect();
    let mut parts: Vec<_> = blobs.into_iter().chain(layers).collect();
    // The rest are its manifest and its configuration.
    let rest = detail.image.size_bytes.saturating_sub(parts.iter().map(|(_, bytes)| bytes).sum());
    parts.push((("manifest", detail.image.digest.as_str()), rest));
    parts
}

/// Only running sandboxes are measured.
async fn sandboxes(client: &Client) -> CommandResult<Row> {
    let sandboxes = client.list(&[]).await?;
    let (mut in_use, mut bytes) = (0, None);
    for sandbox in sandboxes.iter().filter(|sandbox| sandbox.state.is_live()) {
        in_use += 1;
        // A sandbox that ends meanwhile is no reason to fail.
        if let Ok(usage) = client.usage(sandbox.id.as_str()).await {
            bytes = usage.disk_bytes.map(|more| bytes.unwrap_or(0) + more).or(bytes);
        }
    }
    Ok(Row { kind: "sandboxes", count: sandboxes.len(), in_use, bytes, unused_bytes: None })
}

async fn snapshots(client: &Client) -> CommandResult<Row> {
    let snapshots = client.snapshots().await?;
    let sum = |only_unused: bool| {
        let counted = snapshots.iter().filter(|snapshot| !only_unused || snapshot.used_by.is_empty());
        counted.fold((0, 0), |(n, sum), snapshot| (n + 1, sum + snapshot.size_bytes))
    };
    let ((count, bytes), (n_unused, unused)) = (sum(false), sum(true));
    Ok(Row {
        kind: "snapshots",
        count,
        in_use: count - n_unused,
        bytes: Some(bytes),
        unused_bytes: Some(unused),
    })
}

async fn volumes(client: &Client) -> CommandResult<Row> {
    let volumes = client.volumes().await?;
    let sum = |only_unused: bool| {
        let counted = volumes.iter().filter(|volume| !only_unused || volume.used_by.is_empty());
        counted.fold((0, 0), |(n, sum), volume| (n + 1, sum + volume.used.map_or(0, |used| used.bytes())))
    };
    let ((count, bytes), (n_unused, unused)) = (sum(false), sum(true));
    Ok(Row {
        kind: "volumes",
        count,
        in_use: count - n_unused,
        bytes: Some(bytes),
        unused_bytes: Some(unused),
    })
}
