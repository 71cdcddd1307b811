//! Resources about what there is, as JSON.

use engine::{SandboxFilter, SandboxView};
use sandbox::Result;
use serde_json::{Value, json};

use crate::mcp::call::Call;

/// The sandboxes that a caller sees, where it looks.
pub(in crate::mcp) async fn sandboxes(call: &Call) -> Result<Vec<SandboxView>> {
    let filter = SandboxFilter { namespace: call.namespace.clone(), ..SandboxFilter::default() };
    call.engine().sandboxes(&call.who, &filter).await
}

/// Returns this caller's reference to a sandbox: its name, or its id where the name would mean another.
pub(in crate::mcp) fn reference(call: &Call, view: &SandboxView) -> String {
    let home = call.namespace.clone().unwrap_or_else(|| call.who.home_namespace());
    if view.namespace == home { view.name.to_string() } else { view.id.to_string() }
}

/// Returns a tool's answer, so that a resource never tells anything else than the tool of the same matter.
pub(super) async fn told_by(call: &Call, tool: &str, arguments: Value) -> Result<Value> {
    let answer = call.surface.run(tool, call.clone(), arguments.as_object().cloned()).await;
    Ok(answer?.data)
}

/// Returns the policy for this caller. Only callers who may see every namespace see host paths.
pub(super) fn policy(call: &Call) -> Value {
    let settings = &call.settings;
    let (host_path_policy, roots) = settings.host.told_to(&call.who);
    let paths: Vec<_> = roots.iter().map(|root| root.path.to_string_lossy()).collect();
    let writable: Vec<_> =
        roots.iter().filter(|root| root.write).map(|root| root.path.to_string_lossy()).collect();
    json!({
        "hostPathPolicy": host_path_policy,
        "hostPaths": paths,
        "writableHostPaths": writable,
        "dangerousEnabled": settings.dangerous_enabled,
        "maxOutputBytes": call.max_bytes(None),
        "defaultTimeoutMs": settings.default_timeout_ms,
        "sessionTtlMs": settings.session_ttl_ms,
    })
}
