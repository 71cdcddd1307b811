//! From start to removal: looking at sandboxes, and moving them through their lives.

mod change;
mod look;
mod redact;
#[cfg(test)]
mod tests;
mod wait;

use crate::mcp::Tool;

pub(super) fn tools() -> Vec<Tool> {
    let mut tools = looking();
    tools.extend(changing());
    tools
}

fn looking() -> Vec<Tool> {
    tools! { Lifecycle;
        "sandbox_list", "List sandboxes", READS, look::list, core:
            "List sandboxes, all unless selected, sorted by name.";
        "sandbox_status", "Sandbox status", READS, look::status:
            "Show the status of selected sandboxes, or of all running ones.";
        "sandbox_inspect", "Inspect sandbox", READS, look::inspect:
            "Show all details of one sandbox: configuration, limits, isolation. Values that look secret are redacted.";
        "sandbox_wait", "Wait for sandboxes", READS, wait::wait: "Wait until sandboxes have stopped.";
    }
}

fn changing() -> Vec<Tool> {
    tools! { Lifecycle;
        "sandbox_start", "Start sandboxes", SETS, change::start, core: "Start stopped sandboxes with their files.";
        "sandbox_stop", "Stop sandboxes", DESTROYS, change::stop, core: "Stop sandboxes; their files are kept.";
        "sandbox_drain", "Drain sandboxes", SETS, wait::drain:
            "Accept no new commands, and stop when the running ones have finished. Returns at once unless timeoutMs is given.";
        "sandbox_remove", "Remove sandboxes", DESTROYS, change::remove, core:
            "Remove stopped sandboxes and their files permanently; running ones only with force.";
        "sandbox_pause", "Pause sandboxes", SETS, change::pause:
            "Pause all processes in sandboxes; memory and files are kept.";
        "sandbox_resume", "Resume sandboxes", SETS, change::resume: "Resume paused sandboxes.";
        "sandbox_update", "Change limits", SETS, change::update:
            "Change the limits of memory, CPU and processes of sandboxes, also while they run.";
        // Each call moves the end: the same again is not the same.
        "sandbox_renew", "Renew sandboxes", ADDS, change::renew:
            "Restart the lifetime of sandboxes from now, optionally with new values.";
    }
}
