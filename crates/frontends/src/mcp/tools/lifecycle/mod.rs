//! From start to removal: looking at sandboxes, and moving them through their lives.

mod change;
mod look;
mod redact;
#[cfg(test)]
mod tests;
mod wait;

use crate::mcp::{
    Toolset,
    tool::{Hints, Tool},
};

pub(super) fn tools() -> Vec<Tool> {
    let mut tools = looking();
    tools.extend(changing());
    tools
}

fn looking() -> Vec<Tool> {
    vec![
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_list",
            "List sandboxes",
            "List sandboxes, all unless selected, sorted by name.",
            Hints::READS,
            look::list,
        )
        .core(),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_status",
            "Sandbox status",
            "Show the status of selected sandboxes, or of all running ones.",
            Hints::READS,
            look::status,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_inspect",
            "Inspect sandbox",
            "Show all details of one sandbox: configuration, limits, isolation. Values that look secret are redacted.",
            Hints::READS,
            look::inspect,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_wait",
            "Wait for sandboxes",
            "Wait until sandboxes have stopped.",
            Hints::READS,
            wait::wait,
        ),
    ]
}

fn changing() -> Vec<Tool> {
    vec![
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_start",
            "Start sandboxes",
            "Start stopped sandboxes with their files.",
            Hints::SETS,
            change::start,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_stop",
            "Stop sandboxes",
            "Stop sandboxes; their files are kept.",
            Hints::DESTROYS,
            change::stop,
        )
        .core(),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_drain",
            "Drain sandboxes",
            "Accept no new commands, and stop when the running ones have finished. Returns at once unless timeoutMs is given.",
            Hints::SETS,
            wait::drain,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_remove",
            "Remove sandboxes",
            "Remove stopped sandboxes and their files permanently; running ones only with force.",
            Hints::DESTROYS,
            change::remove,
        )
        .core(),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_pause",
            "Pause sandboxes",
            "Pause all processes in sandboxes; memory and files are kept.",
            Hints::SETS,
            change::pause,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_resume",
            "Resume sandboxes",
            "Resume paused sandboxes.",
            Hints::SETS,
            change::resume,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_renew",
            "Renew sandboxes",
            "Restart the lifetime of sandboxes from now, optionally with new values.",
            // Each call moves the end: the same again is not the same.
            Hints::ADDS,
            change::renew,
        ),
    ]
}
