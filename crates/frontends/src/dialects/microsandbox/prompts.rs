//! Its two prompts.

use crate::mcp::{Prompt, Values};

const ARGUMENTS: &[(&str, &str, bool)] =
    &[("sandbox_name", "Name of the new sandbox", true), ("namespace", "Namespace of the new sandbox", true)];

pub(super) static ALL: [Prompt; 2] = [
    Prompt {
        name: "create_python_sandbox",
        title: "Create a Python sandbox",
        description: "Create a sandbox for Python.",
        arguments: ARGUMENTS,
        text: |values| text(values, "Python", "microsandbox/python", "python"),
    },
    Prompt {
        name: "create_node_sandbox",
        title: "Create a Node.js sandbox",
        description: "Create a sandbox for Node.js.",
        arguments: ARGUMENTS,
        text: |values| text(values, "Node.js", "microsandbox/node", "nodejs"),
    },
];

fn text(values: &Values<'_>, title: &str, image: &str, language: &str) -> String {
    let name = values.get("sandbox_name").unwrap_or_default();
    let namespace = values.get("namespace").unwrap_or_default();
    format!(
        "Create a {title} sandbox: call sandbox_start with sandbox {name:?}, namespace {namespace:?} and a config \
         with image {image:?}, memory 512 (MiB), cpus 1 and workdir \"/workspace\". Then run code in it with \
         sandbox_run_code and language {language:?}, and programs with sandbox_run_command. Call sandbox_stop when \
         you are done."
    )
}
