//! `sandbox_get_metrics`: what sandboxes use right now, and which of them run.

use std::time::Duration;

use engine::{SandboxFilter, SandboxRef, SandboxView};
use futures_util::{StreamExt, stream};
use sandbox::{Error, SandboxName, SandboxState, Usage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::target::namespace_of;
use crate::mcp::{Answer, Call, Nullable, ToolResult};

/// All namespaces that the caller may see.
const EVERY_NAMESPACE: &str = "*";
/// Between the two readings from which the processor's share is found.
const MEASURED_OVER: Duration = Duration::from_millis(50);
/// Sandboxes that are measured at the same time.
const MAX_AT_ONCE: usize = 32;
const MIB: u64 = 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// Namespace, or * for all
    namespace: String,
    /// One sandbox; all when absent
    sandbox: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Listed {
    sandboxes: Vec<Metrics>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Metrics {
    namespace: String,
    name: String,
    running: bool,
    cpu_usage: Nullable<f64>,
    memory_usage: Nullable<u64>,
    disk_usage: Nullable<u64>,
}

pub(super) async fn get(call: Call, arguments: Arguments) -> ToolResult<Listed> {
    let namespace = match arguments.namespace.as_str() {
        EVERY_NAMESPACE => None,
        text => Some(namespace_of(&call, text)?),
    };
    let name = arguments.sandbox.map(|text| text.parse::<SandboxName>()).transpose().map_err(Error::from)?;
    let filter = SandboxFilter { namespace, ..SandboxFilter::default() };
    let mut views = call.engine().sandboxes(&call.who, &filter).await?;
    if let Some(name) = &name {
        views.retain(|view| view.name == *name);
        if views.is_empty() {
            return Err(Error::not_found(format!("no sandbox {:?}", name.as_str())).into());
        }
    }
    let mut sandboxes: Vec<_> =
        stream::iter(views).map(|view| measure(&call, view)).buffer_unordered(MAX_AT_ONCE).collect().await;
    sandboxes.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    Ok(Answer::new(Listed { sandboxes }))
}

/// A sandbox that ends meanwhile is measured as one that does not run.
async fn measure(call: &Call, view: SandboxView) -> Metrics {
    let is_alive = matches!(view.state, SandboxState::Running | SandboxState::Paused);
    let which = SandboxRef::from(&view.id);
    let used = if is_alive { usage(call, &which).await } else { None };
    let (percent, usage) = used.unwrap_or_default();
    Metrics {
        namespace: view.namespace.to_string(),
        name: view.name.to_string(),
        running: view.state == SandboxState::Running,
        cpu_usage: Nullable(percent),
        memory_usage: Nullable(usage.memory_bytes.map(|bytes| bytes / MIB)),
        disk_usage: Nullable(usage.disk_bytes),
    }
}

async fn usage(call: &Call, which: &SandboxRef) -> Option<(Option<f64>, Usage)> {
    let before = (Instant::now(), call.engine().usage(&call.who, which).await.ok()?.cpu_micros);
    tokio::time::sleep(MEASURED_OVER).await;
    let usage = call.engine().usage(&call.who, which).await.ok()?;
    let percent = share(before.1, usage.cpu_micros, before.0.elapsed());
    Some((percent, usage))
}

/// 100 is one whole processor.
fn share(before: Option<u64>, after: Option<u64>, over: Duration) -> Option<f64> {
    let used = after?.saturating_sub(before?) as f64;
    let percent = used / over.as_micros().max(1) as f64 * 100.0;
    Some((percent * 100.0).round() / 100.0)
}
