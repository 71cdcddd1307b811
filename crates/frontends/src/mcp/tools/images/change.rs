//! `image_tag`, `image_remove`, `image_prune`.

use engine::Force;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shapes::PruneReport;
use crate::{
    images::reference,
    mcp::{Answer, Call, Failure, ToolResult},
};

/// Images that one call names.
const MAX_NAMED: usize = 256;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct TagArguments {
    /// Name or digest of an image that is here
    reference: String,
    /// The new name
    target: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Tagged {
    reference: String,
    /// In full
    target: String,
    tagged: bool,
}

pub(super) async fn tag(call: Call, arguments: TagArguments) -> ToolResult<Tagged> {
    let target = reference(&arguments.target)?;
    call.engine().tag_image(&call.who, &arguments.reference, &target).await?;
    Ok(Answer::new(Tagged { reference: arguments.reference, target: target.to_string(), tagged: true }))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RemoveArguments {
    reference: Option<String>,
    references: Option<Vec<String>>,
    /// Even if in use; its files are deleted with the last user
    force: Option<bool>,
    /// Needed with force
    confirm: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Removed {
    reference: String,
    removed: bool,
}

pub(super) async fn remove(call: Call, arguments: RemoveArguments) -> ToolResult<Vec<Removed>> {
    let references = named("image_remove", arguments.reference, arguments.references)?;
    let force = arguments.force.unwrap_or(false);
    if force {
        confirmed(&call, arguments.confirm, "image_remove with force")?;
    }
    let force = if force { Force::Yes } else { Force::No };
    let mut removed = Vec::with_capacity(references.len());
    for reference in references {
        if let Err(error) = call.engine().remove_image(&call.who, &reference, force).await {
            let gone: Vec<_> = removed.iter().map(|one: &Removed| one.reference.clone()).collect();
            let failure = Failure::from(error);
            // Those before it are gone; whoever asked has to know.
            return Err(if gone.is_empty() {
                failure
            } else {
                failure.with_details(serde_json::json!({ "removed": gone }))
            });
        }
        removed.push(Removed { reference, removed: true });
    }
    Ok(Answer::new(removed))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PruneArguments {
    /// Must be true
    confirm: Option<bool>,
}

pub(super) async fn prune(call: Call, arguments: PruneArguments) -> ToolResult<PruneReport> {
    confirmed(&call, arguments.confirm, "image_prune")?;
    let freed = call.engine().prune_images(&call.who).await?;
    Ok(Answer::new(freed.into()))
}

fn confirmed(call: &Call, confirm: Option<bool>, deed: &str) -> Result<(), Failure> {
    // Whoever says no means it, whatever the settings allow.
    if confirm.unwrap_or(call.settings.dangerous_enabled) {
        return Ok(());
    }
    let tool = deed.split(' ').next().unwrap_or(deed);
    Err(Failure::unconfirmed(format!("{deed} requires confirm: true"))
        .with_hint(format!("Call image_list to check what is affected, then {tool} with confirm: true.")))
}

/// One or several, as the caller named them.
pub(super) fn named(
    tool: &str,
    reference: Option<String>,
    references: Option<Vec<String>>,
) -> Result<Vec<String>, Failure> {
    let mut all: Vec<String> = reference.into_iter().chain(references.into_iter().flatten()).collect();
    if all.is_empty() {
        return Err(Failure::invalid(format!("{tool} requires reference or references"))
            .with_hint("Call image_list to see all images."));
    }
    if all.len() > MAX_NAMED {
        return Err(Failure::invalid(format!(
            "{} references were given; the limit is {MAX_NAMED}",
            all.len()
        ))
        .with_hint("Give fewer at once."));
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|reference| seen.insert(reference.clone()));
    Ok(all)
}
