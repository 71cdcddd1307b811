//! Sandboxfiles: the sandboxes of a project, as microsandbox writes them down.
//!
//! [`file`] is the text, [`project`] what it means (specs for the daemon, in an order that respects `depends_on`),
//! [`plan`] the difference to what exists, and [`act`] makes it so. A sandbox belongs to a project by its labels; there
//! is no other state, so every command can be interrupted and run again.

mod act;
mod env_file;
mod file;
mod member;
mod order;
mod paths;
mod plan;
mod project;

use std::path::PathBuf;

use sandbox::SandboxName;

pub(crate) use self::{
    act::{OnFailure, carry_out, question, show_plan},
    plan::{Action, Difference, Found, Step},
    project::{Project, project_name},
};

/// The file that is looked for in a directory.
pub(crate) const FILE_NAME: &str = "Sandboxfile";

/// Labels of the sandboxes of a project.
pub(crate) const PROJECT_LABEL: &str = "warren.project";
const MEMBER_LABEL: &str = "warren.project.sandbox";
/// A digest of the project's directory, so that two directories of the same name are not taken for one project.
const DIRECTORY_LABEL: &str = "warren.project.directory";
/// A digest of everything that the sandbox was made with.
const CONFIG_LABEL: &str = "warren.project.config";

/// Which file, and what it may do. The options of `up`, `down` and `apply`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FileArgs {
    /// The Sandboxfile, or the directory that it is in [default: Sandboxfile]
    #[arg(long, short, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Name of the project [default: the name of the file's directory]
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<SandboxName>,
    /// Path of this machine that the file may use, besides its own directory; may be repeated
    #[arg(long = "allow-host-path", value_name = "PATH")]
    pub(crate) allowed: Vec<PathBuf>,
}
