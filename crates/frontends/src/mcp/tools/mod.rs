//! The tools, one file for each group. A new group is a file, a line here, and a toolset.
//!
//! Volumes, images, snapshots, code, packages, network policy and SSH come as further files.

mod exec;
mod sessions;
mod toolsets;

pub(super) use self::sessions::Sessions;
use super::tool::Tool;

/// Every tool, in the order in which they are listed.
pub(super) fn all() -> Vec<Tool> {
    [exec::tools(), sessions::tools(), toolsets::tools()].into_iter().flatten().collect()
}
