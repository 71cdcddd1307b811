//! Addresses by which MCP clients read what is in a sandbox. Answers of every front end name them.

use sandbox::ExecId;

use super::name::encode;

/// The address of a sandbox.
pub(crate) fn sandbox_uri(sandbox: &str) -> String {
    format!("warren://sandboxes/{}", encode(sandbox))
}

/// The address of something that a cell has shown.
pub(crate) fn output_uri(sandbox: &str, exec: &ExecId, number: u32) -> String {
    format!("{}/execs/{exec}/outputs/{number}", sandbox_uri(sandbox))
}

/// The address of a file of a sandbox.
pub(crate) fn file_uri(sandbox: &str, path: &str) -> String {
    let path: Vec<_> = path.trim_start_matches('/').split('/').map(encode).collect();
    format!("{}/files/{}", sandbox_uri(sandbox), path.join("/"))
}
