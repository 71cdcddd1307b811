//! Volumes as wholes.

use std::collections::BTreeMap;

use engine::VolumeView;
use sandbox::{ByteSize, Error, ErrorKind, VolumeKind, VolumeSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{explained, meant};
use crate::mcp::{Answer, Call, Failure, Native, Nullable, ToolResult, tools::select};

/// Volumes that one call names.
const MAX_NAMED: usize = 256;
const MIB: u64 = 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateArguments {
    name: String,
    /// directory (default), or disk: a file system of a fixed size
    #[schemars(with = "Option<Native<VolumeKind>>")]
    kind: Option<VolumeKind>,
    /// Of a disk
    #[schemars(range(min = 1))]
    size_mib: Option<u64>,
    /// Of a directory
    #[schemars(range(min = 1))]
    quota_mib: Option<u64>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ShownKind {
    Dir,
    Disk,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Volume {
    name: String,
    kind: ShownKind,
    quota_mib: Nullable<u64>,
    /// Null where it could not be measured
    used_bytes: Nullable<u64>,
    capacity_bytes: Nullable<u64>,
    disk_format: Nullable<String>,
    disk_fstype: Nullable<String>,
    labels: BTreeMap<String, String>,
    created_at: String,
    /// Sandboxes that mount it, running or not
    used_by: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_held: Option<String>,
}

impl From<VolumeView> for Volume {
    fn from(view: VolumeView) -> Self {
        let is_disk = view.kind == VolumeKind::Disk;
        let of_disk = |text: &str| Nullable(is_disk.then(|| text.to_owned()));
        Self {
            name: view.name.to_string(),
            kind: if is_disk { ShownKind::Disk } else { ShownKind::Dir },
            quota_mib: Nullable(view.quota.map(|quota| quota.bytes() / MIB)),
            used_bytes: Nullable(view.used.map(ByteSize::bytes)),
            capacity_bytes: Nullable(view.size.map(ByteSize::bytes)),
            disk_format: of_disk("raw"),
            disk_fstype: of_disk("ext4"),
            labels: view.labels,
            created_at: view.created_at.to_string(),
            used_by: view.used_by.iter().map(ToString::to_string).collect(),
            quota_held: view.quota_held,
        }
    }
}

pub(super) async fn create(call: Call, arguments: CreateArguments) -> ToolResult<Volume> {
    let mib = |mib: u64| ByteSize(mib.saturating_mul(MIB));
    let spec = VolumeSpec {
        name: arguments.name.parse().map_err(Error::from)?,
        namespace: select::namespace(&call),
        kind: arguments.kind.unwrap_or_default(),
        size: arguments.size_mib.map(mib),
        quota: arguments.quota_mib.map(mib),
        labels: arguments.labels.unwrap_or_default(),
    };
    let made = call.engine().create_volume(&call.who, spec).await.map_err(|error| {
        explained(error).or_hint(
            ErrorKind::AlreadyExists,
            "Choose another name, or call volume_inspect to see the existing volume.",
        )
    })?;
    Ok(Answer::new(made.into()))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListArguments {}

pub(super) async fn list(call: Call, _arguments: ListArguments) -> ToolResult<Vec<Volume>> {
    let namespace = select::namespace(&call);
    let all = call.engine().volumes(&call.who, Some(&namespace)).await?;
    Ok(Answer::new(all.into_iter().map(Volume::from).collect()))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct InspectArguments {
    name: String,
}

pub(super) async fn inspect(call: Call, arguments: InspectArguments) -> ToolResult<Volume> {
    let which = meant(&call, &arguments.name)?;
    let view = call.engine().volume(&call.who, &which).await.map_err(explained)?;
    Ok(Answer::new(view.into()))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RemoveArguments {
    name: Option<String>,
    names: Option<Vec<String>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Removed {
    name: String,
    removed: bool,
}

/// One after the other; the first that cannot be removed ends it.
pub(super) async fn remove(call: Call, arguments: RemoveArguments) -> ToolResult<Vec<Removed>> {
    let names = named(arguments)?;
    // Told before anything is gone.
    let all = names.into_iter().map(|name| Ok((meant(&call, &name)?, name)));
    let all: Vec<_> = all.collect::<Result<_, Failure>>()?;
    let mut removed: Vec<Removed> = Vec::with_capacity(all.len());
    for (which, name) in all {
        if let Err(error) = call.engine().remove_volume(&call.who, &which).await {
            let failure = explained(error)
                .or_hint(ErrorKind::WrongState, "Call sandbox_remove for the sandboxes that mount it first.");
            let gone: Vec<_> = removed.iter().map(|one| &one.name).collect();
            // Those before it are gone; whoever asked has to know.
            return Err(match gone.is_empty() {
                true => failure,
                false => failure.with_details(json!({ "removed": gone })),
            });
        }
        removed.push(Removed { name, removed: true });
    }
    Ok(Answer::new(removed))
}

fn named(arguments: RemoveArguments) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> =
        arguments.name.into_iter().chain(arguments.names.into_iter().flatten()).collect();
    if names.is_empty() {
        return Err(Failure::invalid("volume_remove requires name or names")
            .with_hint("Call volume_list to see all volumes."));
    }
    if names.len() > MAX_NAMED {
        return Err(Failure::invalid(format!("{} names were given; the limit is {MAX_NAMED}", names.len()))
            .with_hint("Give fewer at once."));
    }
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names)
}
