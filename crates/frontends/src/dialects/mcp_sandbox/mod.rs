//! mcp-sandbox: Python sandboxes by seven tools, with links to the files that code makes.
//!
//! Names, parameters and fields of answers are those of JohanLi233/mcp-sandbox. A user there is a key here: each file
//! says where we differ, and `docs/dialects.md` says why.

mod form;
mod packages;
mod python;
mod routes;
mod sandboxes;
mod terminal;
mod upload;
mod words;

use std::sync::Arc;

use self::form::Plain;
pub use self::routes::mcp_sandbox_routes;
pub(super) use self::routes::routes;
use crate::mcp::{Dialect, Hints, Manner, Surface, Tool, Toolset};

pub(super) const DIALECT: Dialect = Dialect { name: "mcp-sandbox", surface };

/// The directory in which code and commands run, and in which files are looked for.
const WORK_DIRECTORY: &str = "/app/results";
/// Sandboxes that a user may have at the same time.
const MAX_SANDBOXES: u32 = 3;

fn surface() -> Arc<Surface> {
    let manner = Manner {
        server: "Python Sandbox Executor",
        instructions: None,
        prompts: &[],
        schemes: &[],
        has_toolsets: false,
    };
    Arc::new(Surface::new(manner, Box::new(Plain), tools()))
}

/// In its order, with its descriptions.
fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            Toolset::Core,
            "list_sandboxes",
            "List sandboxes",
            "Lists all existing Python sandboxes and their status. Each item also includes installed Python packages.",
            Hints::READS,
            sandboxes::list,
        ),
        Tool::new(
            Toolset::Core,
            "create_sandbox",
            "Create sandbox",
            "Creates a new Python sandbox and returns its ID for subsequent operations. Optional parameter: name (string) - Custom name for the sandbox",
            Hints::ADDS,
            sandboxes::create,
        ),
        Tool::new(
            Toolset::Core,
            "install_package_in_sandbox",
            "Install package",
            "Installs a Python package in the specified sandbox. Parameters: sandbox_id (string), package_name (string)",
            Hints::SETS,
            packages::install,
        ),
        Tool::new(
            Toolset::Core,
            "check_package_installation_status",
            "Package status",
            "Checks the installation status of a package in a sandbox. Parameters: sandbox_id (string), package_name (string)",
            // It starts a sandbox that is stopped.
            Hints::SETS,
            packages::check,
        ),
        Tool::new(
            Toolset::Core,
            "execute_python_code",
            "Execute Python",
            "Executes Python code in a sandbox and returns results with links to generated files. Variables persist between calls. Parameters: sandbox_id (string) - The sandbox ID to use, code (string) - The Python code to execute",
            Hints::ADDS,
            python::execute,
        ),
        Tool::new(
            Toolset::Core,
            "execute_terminal_command",
            "Execute command",
            "Executes a terminal command in the specified sandbox. Parameters: sandbox_id (string), command (string). Returns stdout, stderr, exit_code.",
            Hints::ADDS,
            terminal::execute,
        ),
        Tool::new(
            Toolset::Core,
            "upload_file_to_sandbox",
            "Upload file",
            "Uploads a local file to the specified sandbox. Parameters: sandbox_id (string), local_file_path (string), dest_path (string, optional, default: /app/results). Pass the file itself as content (text) or content_base64 unless the server may read local_file_path.",
            Hints::SETS,
            upload::upload,
        ),
    ]
}
