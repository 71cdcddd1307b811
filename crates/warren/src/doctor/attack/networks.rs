//! Attacks on the sandbox's own end of a network that follows a policy.

use serde_json::json;

use super::{
    Seen, inside,
    stage::{OURS, Stage},
};
use crate::error::{CommandError, CommandResult};

/// Runs one probe in a sandbox of its own. Its network leads to one address only, which is nobody's: what a probe tries
/// to reach is refused here and never leaves the machine.
pub(super) async fn seen(stage: &Stage, name: &str) -> CommandResult<Seen> {
    let network = json!({ "preset": "none", "allow": ["192.0.2.55:9"] });
    let made = stage.create(json!({ "name": name, "namespace": OURS, "network": network })).await;
    let sandbox = match made {
        Ok(made) => made.id.to_string(),
        Err(CommandError::Failed { error, .. }) => {
            return Ok(Seen::untried(format!("no sandbox with a network: {error}")));
        }
        Err(error) => return Err(error),
    };
    let report = inside::run(stage, &sandbox, name, &[]).await;
    stage.remove(&sandbox).await;
    Ok(inside::judge(&report?))
}
