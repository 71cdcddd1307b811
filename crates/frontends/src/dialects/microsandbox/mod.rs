//! microsandbox's own server, as up to version 0.2: five tools, two prompts, and the same five as methods of a JSON-RPC
//! route, which its SDKs use. A method is a tool by another name, so both go through the same code.

mod code;
mod command;
mod config;
mod form;
mod lines;
mod metrics;
mod prompts;
mod rpc;
mod stand_in;
mod start;
mod target;

use std::sync::Arc;

pub(super) use self::rpc::routes;
pub use self::rpc::rpc_methods;
pub use self::stand_in::{lacks_language, stand_in};
use crate::mcp::{Dialect, Hints, Manner, Surface, Tool, Toolset};

pub(super) const DIALECT: Dialect = Dialect { name: "microsandbox", surface };

fn surface() -> Arc<Surface> {
    let manner = Manner {
        server: "microsandbox-server",
        instructions: None,
        prompts: &prompts::ALL,
        schemes: &[],
        has_toolsets: false,
    };
    Arc::new(Surface::new(manner, Box::new(form::Plain), tools()))
}

fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            Toolset::Core,
            "sandbox_start",
            "Start sandbox",
            "Start a sandbox; one that does not exist is created from `config`. Stop it when you are done; one that \
             nobody uses stops by itself after a while.",
            Hints::SETS,
            start::start,
        ),
        Tool::new(
            Toolset::Core,
            "sandbox_stop",
            "Stop sandbox",
            "Stop a running sandbox. Its files are kept for the next start; the variables of its code are not.",
            Hints::DESTROYS,
            start::stop,
        ),
        Tool::new(
            Toolset::Core,
            "sandbox_run_code",
            "Run code",
            "Run code in a sandbox that was started before. Variables persist between calls in the same language.",
            Hints::ADDS,
            code::run,
        ),
        Tool::new(
            Toolset::Core,
            "sandbox_run_command",
            "Run command",
            "Run a program with arguments in a sandbox that was started before. No shell is involved: for a command \
             line use command `sh` with args [\"-c\", \"…\"].",
            Hints::ADDS,
            command::run,
        ),
        Tool::new(
            Toolset::Core,
            "sandbox_get_metrics",
            "Get metrics",
            "Show whether sandboxes run and what they use: cpu_usage in percent of one CPU, memory_usage in MiB, \
             disk_usage in bytes; null where unknown.",
            Hints::READS,
            metrics::get,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_theirs() {
        let surface = surface();
        let names: Vec<_> = surface.listed().map(|tool| tool.name).collect();
        assert_eq!(
            names,
            [
                "sandbox_start",
                "sandbox_stop",
                "sandbox_run_code",
                "sandbox_run_command",
                "sandbox_get_metrics"
            ]
        );
        for (tool, required) in [
            ("sandbox_start", &["sandbox", "namespace"][..]),
            ("sandbox_stop", &["sandbox", "namespace"]),
            ("sandbox_run_code", &["sandbox", "namespace", "code", "language"]),
            ("sandbox_run_command", &["sandbox", "namespace", "command"]),
            ("sandbox_get_metrics", &["namespace"]),
        ] {
            let schema = surface.find(tool).unwrap().input.full();
            let mut named: Vec<_> =
                schema["required"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
            let mut required = required.to_vec();
            named.sort_unstable();
            required.sort_unstable();
            assert_eq!(named, required, "{tool}");
        }
    }
}
