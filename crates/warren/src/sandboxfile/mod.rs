//! Sandboxfiles: the sandboxes of a project, as microsandbox writes them down.
//!
//! [`file`] is the text, [`project`] what it means (specs for the daemon, in an order that respects `depends_on`),
//! [`plan`] the difference to what exists, and [`act`] makes it so. A sandbox belongs to a project by its labels; there
//! is no other state, so every command can be interrupted and run again.

mod act;
mod file;
mod member;
mod order;
mod paths;
mod plan;
mod project;

use std::{collections::BTreeSet, path::PathBuf};

use sandbox::{SandboxName, SecretName};

use crate::{client::Client, commands::Context, error::CommandResult, output};

pub(crate) use self::{
    act::{OnFailure, carry_out, question, show_plan},
    plan::{Action, Difference, ProjectSandboxes, Step},
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
    /// Secret that sandboxes of the file may use; may be repeated
    #[arg(long = "allow-secret", value_name = "NAME")]
    pub(crate) secrets: Vec<SecretName>,
}

/// A project, its sandboxes as they are now, and those that a command is about.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) project: Project,
    /// With everything that they depend on.
    pub(crate) chosen: BTreeSet<String>,
    pub(crate) client: Client,
    pub(crate) found: ProjectSandboxes,
}

/// Reads the file for a command that makes sandboxes. `names`: those that it is about; all if there are none.
pub(crate) async fn open(context: &Context, file: &FileArgs, names: &[String]) -> CommandResult<Opened> {
    let project = Project::read(file, context.namespace.clone().unwrap_or_default())?;
    let chosen = project.chosen_with_dependencies(names)?;
    project.warnings.iter().for_each(|warning| output::warn(warning));
    let client = context.client_in(&project.namespace).await?;
    let found = ProjectSandboxes::new(&project, client.list(&[]).await?)?;
    Ok(Opened { project, chosen, client, found })
}
