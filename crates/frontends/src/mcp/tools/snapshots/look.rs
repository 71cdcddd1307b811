//! `snapshot_list`, `snapshot_inspect`, `snapshot_verify`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    named,
    shapes::{Snapshot, SnapshotHandle, VerifyReport},
    waiting,
};
use crate::mcp::{Answer, Call, ToolResult};

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListArguments {}

pub(super) async fn list(call: Call, _: ListArguments) -> ToolResult<Vec<SnapshotHandle>> {
    let all = call.engine().snapshots(&call.who, call.namespace.as_ref()).await?;
    Ok(Answer::new(all.iter().map(SnapshotHandle::from).collect()))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct InspectArguments {
    /// Name, digest, or path of snapshot_list
    path_or_name: String,
    /// Read all of it, too
    verify: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Inspected {
    #[serde(flatten)]
    snapshot: Snapshot,
    #[serde(skip_serializing_if = "Option::is_none")]
    verify: Option<VerifyReport>,
}

pub(super) async fn inspect(call: Call, arguments: InspectArguments) -> ToolResult<Inspected> {
    let which = named(&call, &arguments.path_or_name).await?;
    let view = call.engine().snapshot(&call.who, &which).await?;
    let verify = match arguments.verify {
        Some(true) => Some(waiting(&call, call.engine().verify_snapshot(&call.who, &which, false)).await?),
        _ => None,
    };
    Ok(Answer::new(Inspected { snapshot: (&view).into(), verify: verify.as_ref().map(Into::into) }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct VerifyArguments {
    /// Name, digest, or path of snapshot_list
    path_or_name: String,
    /// Also verify all its parents
    with_parents: Option<bool>,
}

pub(super) async fn verify(call: Call, arguments: VerifyArguments) -> ToolResult<VerifyReport> {
    let which = named(&call, &arguments.path_or_name).await?;
    let parents = arguments.with_parents.unwrap_or(false);
    let check = waiting(&call, call.engine().verify_snapshot(&call.who, &which, parents)).await?;
    Ok(Answer::new((&check).into()))
}
