//! The tools of opensandbox-mcp 1.1, over the engine.
//!
//! Names, parameters, defaults and fields of answers are theirs; `docs/dialects.md` says what differs and why. There is
//! no registry of connected sandboxes: whatever the caller's key may use can be named in any call.

mod command;
mod create;
mod encoding;
mod files;
mod form;
mod info;
mod logs;
mod sandboxes;
mod target;
mod words;

use std::sync::Arc;

use crate::mcp::{Hints, Manner, Surface, Tool, Toolset};

/// Most bytes of one stream of a command, or of one file, in an answer: what a model can use at once.
const MAX_ANSWER_BYTES: usize = 24 * 1024;
/// Most paths or entries in one call.
const MAX_ENTRIES: usize = 1000;

const INSTRUCTIONS: &str = "Use these tools to create and manage isolated sandboxes. Keep the sandbox_id that \
    sandbox_create returns; every other tool takes it. Use command_run to execute, file_read and file_write for files, \
    and sandbox_kill to remove a sandbox. Image \"host\" has the programs of this machine. Without \
    network_policy, sandboxes reach package indexes only. sandbox_get_endpoint makes a port inside reachable from outside. Read large files in ranges.";

pub(super) fn surface() -> Arc<Surface> {
    let manner = Manner {
        server: "OpenSandbox Sandbox",
        instructions: Some(INSTRUCTIONS),
        prompts: &[],
        schemes: &[],
        has_toolsets: false,
    };
    let mut all = of_sandboxes();
    all.extend(of_files());
    // Theirs comes last.
    all.push(Tool::new(
        Toolset::Core,
        "sandbox_get_endpoint",
        "Get endpoint",
        "Get an address for a port inside a sandbox: send the headers with every request to it.",
        Hints::SETS,
        sandboxes::get_endpoint,
    ));
    Arc::new(Surface::new(manner, Box::new(form::Plain), all))
}

macro_rules! tools {
    ($($name:literal, $title:literal, $hints:ident, $run:path: $description:literal;)+) => {
        vec![$(Tool::new(Toolset::Core, $name, $title, $description, Hints::$hints, $run)),+]
    };
}

/// In their order.
fn of_sandboxes() -> Vec<Tool> {
    tools! {
        "sandbox_create", "Create sandbox", ADDS, create::create:
            "Create a sandbox and return once it runs. It is removed after timeout_seconds, unless sandbox_renew \
             prolongs it.";
        "sandbox_connect", "Connect to sandbox", SETS, sandboxes::connect:
            "Make an existing sandbox usable: one that is stopped is started, one that is paused resumes.";
        "sandbox_kill", "Kill sandbox", DESTROYS, sandboxes::kill:
            "Remove a sandbox with its files and everything that runs in it.";
        "sandbox_get_info", "Get sandbox info", READS, sandboxes::get_info:
            "Get the state, image, metadata and expiry of a sandbox.";
        "sandbox_list", "List sandboxes", READS, sandboxes::list:
            "List sandboxes, newest first; filter by state (Running, Paused, …) and metadata.";
        "sandbox_renew", "Renew sandbox", SETS, sandboxes::renew:
            "Set when a sandbox expires: timeout_seconds from now.";
        "sandbox_get_metrics", "Get metrics", FOLLOWS, sandboxes::get_metrics:
            "Get the processor and memory use of a sandbox; null where unknown.";
        "sandbox_healthcheck", "Check health", READS, sandboxes::healthcheck:
            "Check whether a sandbox runs and answers.";
        "command_run", "Run command", ADDS, command::run:
            "Run a shell command in a sandbox. A failing command is not an error: see exit_code. With background it \
             returns at once and its output is not shown, so redirect it to a file and read that.";
        "command_interrupt", "Interrupt command", DESTROYS, command::interrupt:
            "End a running command: SIGTERM to all its processes, and SIGKILL after 3 seconds.";
    }
}

fn of_files() -> Vec<Tool> {
    tools! {
        "file_read", "Read file", READS, files::read:
            "Read a text file in a sandbox, or the bytes of it that range_header names (\"bytes=0-1023\").";
        "file_write", "Write file", DESTROYS, files::write:
            "Write a text file in a sandbox, with missing directories. It replaces what was there.";
        "file_delete", "Delete files", DESTROYS, files::delete:
            "Delete files in a sandbox. Files that do not exist count as deleted.";
        "file_search", "Search files", READS, files::search:
            "Find files below a directory by a glob: \"*.py\" at any depth, \"src/**/*.py\" by directory.";
        "file_create_directories", "Create directories", SETS, files::create_directories:
            "Create directories in a sandbox, with missing parents.";
        "file_delete_directories", "Delete directories", DESTROYS, files::delete_directories:
            "Delete directories in a sandbox with all that is in them.";
        "file_move", "Move files", DESTROYS_MORE, files::move_all:
            "Move or rename files and directories in a sandbox. What exists at a destination is not replaced.";
        "file_replace_contents", "Replace in files", DESTROYS_MORE, files::replace:
            "Replace every occurrence of a text in files of a sandbox, and return how many there were.";
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp::Toolsets;

    /// A model pays for it with every session; theirs has 53 KB.
    const MAX_LIST_BYTES: usize = 18 * 1024;

    #[test]
    fn the_list_is_theirs_and_small() {
        let surface = surface();
        let theirs: Value =
            serde_json::from_str(include_str!("../../../../tests/data/opensandbox-mcp-tools.json")).unwrap();
        let names: Vec<_> = surface.listed().map(|tool| json!(tool.name)).collect();
        let their_names: Vec<_> =
            theirs.as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(names, their_names);
        for (tool, theirs) in surface.listed().zip(theirs.as_array().unwrap()) {
            same_parameters(&Value::Object(tool.input.full()), &theirs["inputSchema"], tool.name);
        }
        let n_bytes: usize = surface
            .listed()
            .map(|tool| {
                let output = surface.output_of(tool, &Toolsets::all()).unwrap();
                json!([tool.name, tool.description, tool.input.full(), output]).to_string().len()
            })
            .sum();
        assert!(n_bytes <= MAX_LIST_BYTES, "{n_bytes} bytes");
    }

    /// All that theirs takes, with the same defaults, and nothing required that theirs does not require.
    fn same_parameters(ours: &Value, theirs: &Value, tool: &str) {
        let sorted = |schema: &Value| -> Vec<String> {
            let required = schema["required"].as_array().into_iter().flatten();
            let mut names: Vec<_> = required.filter_map(|name| name.as_str().map(str::to_owned)).collect();
            names.sort();
            names
        };
        assert_eq!(sorted(ours), sorted(theirs), "{tool}");
        for (name, property) in theirs["properties"].as_object().unwrap() {
            let own = &ours["properties"][name];
            assert!(own.is_object(), "{tool} does not take {name}");
            if !property["default"].is_null() {
                assert_eq!(own["default"].as_f64(), property["default"].as_f64(), "{tool}: {name}");
                assert_eq!(own["default"].as_bool(), property["default"].as_bool(), "{tool}: {name}");
                assert_eq!(own["default"].as_str(), property["default"].as_str(), "{tool}: {name}");
            }
        }
    }
}
