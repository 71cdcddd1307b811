//! `image_list`, `image_inspect`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::shapes::{Detail, ImageHandle, warnings};
use crate::mcp::{Answer, Call, ToolResult};

/// Names that one answer lists.
const MAX_LISTED: usize = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct NoArguments {}

pub(super) async fn list(call: Call, _: NoArguments) -> ToolResult<Vec<ImageHandle>> {
    let images = call.engine().images(&call.who).await?;
    let mut handles: Vec<_> = images.iter().flat_map(ImageHandle::all).collect();
    handles.sort_by(|one, other| one.reference.cmp(&other.reference));
    let n_all = handles.len();
    handles.truncate(MAX_LISTED);
    let answer = Answer::new(handles);
    Ok(if n_all > MAX_LISTED {
        answer.warn(format!("Only {MAX_LISTED} of {n_all} are listed. Call image_inspect for one by name."))
    } else {
        answer
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct InspectArguments {
    /// Name or digest
    reference: String,
}

pub(super) async fn inspect(call: Call, arguments: InspectArguments) -> ToolResult<Detail> {
    let InspectArguments { reference } = arguments;
    let detail = call.engine().image(&call.who, &reference).await?;
    let warnings = warnings(&detail);
    Ok(Answer::new(Detail::of(detail, &reference)).warn_all(warnings))
}
