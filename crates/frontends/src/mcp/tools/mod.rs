//! The tools, one file for each group. A new group is a file, two lines here, and a toolset.

mod changed_files;
mod code;
pub(crate) mod create;
mod denials;
mod exec;
mod files;
mod fitting;
mod images;
mod lacks;
mod lifecycle;
mod logs;
mod metrics;
mod network;
mod network_request;
mod packages;
mod run;
mod runtime;
mod secrets;
pub(crate) mod select;
mod sessions;
mod snapshots;
mod ssh;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod stumbles;
#[cfg(test)]
mod surface;
mod telling;
mod toolsets;
mod volumes;

pub(crate) use self::files::{once, read_up_to};
pub(crate) use self::packages::follow as follow_package_job;
pub(super) use self::sessions::Sessions;
pub(crate) use self::telling::{Followed, while_running};
use super::tool::Tool;

/// Every tool, in the order in which they are listed.
pub(crate) fn all() -> Vec<Tool> {
    let groups = [
        create::tools(),
        run::tools(),
        lifecycle::tools(),
        exec::tools(),
        sessions::tools(),
        code::tools(),
        packages::tools(),
        logs::tools(),
        files::tools(),
        metrics::tools(),
        network::tools(),
        secrets::tools(),
        images::tools(),
        snapshots::tools(),
        ssh::tools(),
        volumes::tools(),
        runtime::tools(),
        toolsets::tools(),
    ];
    groups.into_iter().flatten().collect()
}
