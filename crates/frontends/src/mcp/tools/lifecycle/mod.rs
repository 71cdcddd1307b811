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
            "Show the status of selected sandboxes, or of all that run.",
            Hints::READS,
            look::status,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_inspect",
            "Inspect sandbox",
            "Show everything about one sandbox: configuration, limits, isolation. Secret-looking values are redacted.",
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
            "Start stopped sandboxes again, with their files.",
            Hints::SETS,
            change::start,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_stop",
            "Stop sandboxes",
            "Stop sandboxes; their files stay.",
            Hints::DESTROYS,
            change::stop,
        )
        .core(),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_drain",
            "Drain sandboxes",
            "Take no new commands, and stop when the running ones have ended. Answers at once unless timeoutMs is given.",
            Hints::SETS,
            wait::drain,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_remove",
            "Remove sandboxes",
            "Remove stopped sandboxes with their files for ever; running ones only with force.",
            Hints::DESTROYS,
            change::remove,
        )
        .core(),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_pause",
            "Pause sandboxes",
            "Freeze what runs in sandboxes; memory and files stay.",
            Hints::SETS,
            change::pause,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_resume",
            "Resume sandboxes",
            "Let paused sandboxes run on.",
            Hints::SETS,
            change::resume,
        ),
        Tool::new(
            Toolset::Lifecycle,
            "sandbox_renew",
            "Renew sandboxes",
            "Count the lifetime of sandboxes anew from now, and change it where said.",
            // Each call moves the end: the same again is not the same.
            Hints::ADDS,
            change::renew,
        ),
    ]
}
