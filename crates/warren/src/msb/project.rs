//! The commands about a project's sandboxes and images, put into words of `warren`.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::Subcommand;
use sandbox::{Error, SandboxName};

use super::{
    Line,
    exe::{Attached, ExeArgs, command, split},
    instead, line, run_all,
};
use crate::{
    error::{CommandResult, io_failure},
    output,
    sandboxfile::{FILE_NAME, FileArgs, PROJECT_LABEL, Project, project_name},
};

/// The file that `msb init` writes.
const TEMPLATE: &str =
    "# The sandboxes of this project. `warren up` starts them; docs/sandboxfile.md has every key.
sandboxes:
  # app:
  #   image: microsandbox/python
  #   memory: 512
  #   volumes: [\"./src:/src\"]
  #   scripts:
  #     start: python3 /src/main.py
";

#[derive(Debug, Subcommand)]
pub(super) enum ProjectCommand {
    /// Write a new Sandboxfile
    Init {
        /// The project's directory [default: this one]
        directory: Option<PathBuf>,
        /// The same, as a flag
        #[arg(long, short, conflicts_with = "directory")]
        path: Option<PathBuf>,
    },
    /// Create and start the project's sandboxes
    Up(MembersArgs),
    /// Stop the project's sandboxes
    Down(MembersArgs),
    /// Make the sandboxes as the Sandboxfile says
    Apply {
        #[command(flatten)]
        file: FileFlags,
        /// Do not ask before replacing or removing sandboxes
        #[arg(long, short)]
        yes: bool,
    },
    /// List the project's sandboxes and their state
    #[command(visible_aliases = ["status", "ps", "stat"])]
    List {
        #[command(flatten)]
        file: FileFlags,
        /// Only this sandbox [default: all]
        name: Option<String>,
    },
    /// Start a sandbox, and run one of its scripts in it
    #[command(visible_alias = "r")]
    Run(RunArgs),
    /// Start a sandbox, and open its shell
    Shell {
        #[command(flatten)]
        file: FileFlags,
        name: String,
        /// Arguments for the shell
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Show the output of a sandbox
    Log {
        /// The project's directory
        #[arg(long, short, value_name = "DIR")]
        path: Option<PathBuf>,
        /// The Sandboxfile
        #[arg(long, short, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Has no effect: everything here is a sandbox
        #[arg(long, short)]
        sandbox: bool,
        name: String,
        /// Go on as more comes
        #[arg(long, short)]
        follow: bool,
        /// Only so many lines from the end
        #[arg(long, short, value_name = "N")]
        tail: Option<usize>,
    },
    /// Run a program in a temporary sandbox
    #[command(visible_alias = "x")]
    Exe(ExeArgs),
    /// Pull an image
    Pull {
        /// Has no effect: everything here is an image
        #[arg(long, short)]
        image: bool,
        name: String,
    },
    /// Show the version
    Version,
}

/// Where the Sandboxfile is.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct FileFlags {
    /// The Sandboxfile, or its directory
    #[arg(long, short, value_name = "PATH")]
    file: Option<PathBuf>,
    /// The project's directory
    #[arg(long, short, value_name = "DIR", conflicts_with = "file")]
    path: Option<PathBuf>,
    /// The Sandboxfile
    #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Has no effect: everything here is a sandbox
    #[arg(long, short)]
    sandbox: bool,
}

impl FileFlags {
    fn path(&self) -> Option<PathBuf> {
        match (&self.file, &self.path, &self.config) {
            (Some(file), ..) => Some(file.clone()),
            (None, Some(path), Some(config)) => Some(path.join(config)),
            (None, Some(path), None) => Some(path.clone()),
            (None, None, config) => config.clone(),
        }
    }

    fn args(&self) -> FileArgs {
        FileArgs { file: self.path(), project: None, allowed: Vec::new(), secrets: Vec::new() }
    }

    /// As flags of `warren up`. A path that is no text cannot be one of ours either.
    fn flags(&self) -> Line {
        self.path().map_or_else(Line::new, |path| line(&["--file", &path.to_string_lossy()]))
    }

    /// The sandbox that the file calls `name`.
    fn sandbox(&self, name: &str) -> Result<String, Error> {
        let member: SandboxName = name.parse()?;
        Ok(format!("{}-{member}", project_name(&self.args())?))
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct MembersArgs {
    #[command(flatten)]
    file: FileFlags,
    /// Sandboxes of the file [default: all]
    names: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    file: FileFlags,
    /// The sandbox, and the script to run in it
    #[arg(value_name = "NAME[~SCRIPT]")]
    name: String,
    /// Run in the background
    #[arg(long, short)]
    detach: bool,
    /// Run this command in place of a script
    #[arg(long, short, value_name = "COMMAND")]
    exec: Option<String>,
    /// Arguments for the script or command
    #[arg(last = true)]
    args: Vec<String>,
}

impl ProjectCommand {
    pub(super) fn run(self) -> CommandResult {
        let lines = match self {
            Self::Init { directory, path } => return init(directory.or(path)),
            Self::Up(args) => vec![members("up", &args)],
            Self::Down(args) => vec![members("down", &args)],
            Self::Apply { file, yes } => {
                let yes = if yes { line(&["--yes"]) } else { Line::new() };
                vec![[line(&["apply"]), file.flags(), yes].concat()]
            }
            Self::List { file, name } => {
                let project = format!("label={PROJECT_LABEL}={}", project_name(&file.args())?);
                let mut made = line(&["ps", "--all", "--filter", &project]);
                if let Some(name) = name {
                    made.extend(line(&["--filter", &format!("name={}", file.sandbox(&name)?)]));
                }
                vec![made]
            }
            Self::Run(args) => run(&args)?,
            Self::Shell { file, name, args } => {
                let shell = exec(&file.sandbox(&name)?, &args, Attached::Terminal);
                vec![up(&file, &name), shell]
            }
            Self::Log { path, config, name, follow, tail, .. } => {
                let file = FileFlags { path, config, ..FileFlags::default() };
                vec![log(&file.sandbox(&name)?, follow, tail)]
            }
            Self::Exe(args) => vec![args.line()],
            Self::Pull { name, .. } => vec![line(&["pull", "--", &name])],
            Self::Version => vec![line(&["version"])],
        };
        run_all(&lines)
    }
}

fn init(directory: Option<PathBuf>) -> CommandResult {
    let path = directory.unwrap_or_default().join(FILE_NAME);
    let failed = |error| io_failure(format!("cannot write {}", path.display()), error);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    file.write_all(TEMPLATE.as_bytes()).map_err(failed)?;
    output::line(&path.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn members(verb: &str, args: &MembersArgs) -> Line {
    [line(&[verb]), args.file.flags(), line(&["--"]), args.names.clone()].concat()
}

fn up(file: &FileFlags, name: &str) -> Line {
    [line(&["up"]), file.flags(), line(&["--", name])].concat()
}

fn log(sandbox: &str, follow: bool, tail: Option<usize>) -> Line {
    // What ran last, as there: a command of `msb run` takes the place of the start script.
    let mut made = line(&["logs", "--latest"]);
    if follow {
        made.push("--follow".to_owned());
    }
    if let Some(tail) = tail {
        made.extend(line(&["--tail", &tail.to_string()]));
    }
    made.extend(line(&["--", sandbox]));
    made
}

fn exec(sandbox: &str, command: &[String], attached: Attached) -> Line {
    [line(&["exec"]), attached.flags(), line(&["--", sandbox]), command.to_vec()].concat()
}

fn run(args: &RunArgs) -> Result<Vec<Line>, Error> {
    let (name, script) = split(&args.name);
    let (sandbox, start) = (args.file.sandbox(name)?, up(&args.file, name));
    let attached = if args.detach { Attached::No } else { Attached::here() };
    if let Some(command) = command(script, args.exec.as_deref(), &args.args) {
        return Ok(vec![start, exec(&sandbox, &command, attached)]);
    }
    if args.detach {
        return Ok(vec![start]);
    }
    // Its start script runs with it; what that prints is what `msb run` showed.
    let project = Project::read(&args.file.args(), Default::default())?;
    let has_start = project.members.iter().any(|member| member.name == name && member.spec.init.is_some());
    match has_start {
        true => Ok(vec![start, log(&sandbox, true, None)]),
        false => Ok(vec![start, exec(&sandbox, &args.args, attached)]),
    }
}

/// The answer to everything else that there was.
pub(super) fn other(words: &[String]) -> Error {
    let verb = words.first().map(String::as_str).unwrap_or_default();
    let hint = match verb {
        "add" | "remove" | "rm" => {
            "Edit the Sandboxfile, then run `msb apply`; docs/sandboxfile.md has every key."
        }
        "install" | "i" | "uninstall" => "Write a script that calls `warren run --image IMAGE PROGRAM`.",
        "clean" => "`warren down --rm` removes a project's sandboxes, `warren prune` what nothing uses.",
        "build" => "`warren build` builds images from a Dockerfile.",
        "tree" => "`warren image inspect IMAGE` shows the layers of an image.",
        "login" => "`warren pull --help` shows how registries are logged in to.",
        "push" => "`warren save` writes an image to a file, which other tools push.",
        "self" => "Warren is one file: replace it, or remove it.",
        _ => "`msb --help` lists its commands, `warren --help` all that there is.",
    };
    let shown: String = verb.chars().filter(|c| !c.is_control()).take(32).collect();
    instead(&format!("`msb {shown}`"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_follows_is_never_taken_for_a_flag() {
        let made = exec("app-db", &words("--version"), Attached::Input);
        assert_eq!(made, words("exec --interactive -- app-db --version"));
        assert_eq!(up(&FileFlags::default(), "--all"), words("up -- --all"));
    }

    #[test]
    fn what_is_not_here_is_answered_with_what_is() {
        for (verb, hint) in [("add", "Sandboxfile"), ("clean", "warren prune"), ("nonsense", "msb --help")] {
            let error = other(&[verb.to_owned()]);
            assert!(error.to_string().contains(verb), "{error}");
            assert!(crate::error::hint(&error).unwrap().contains(hint), "{error}");
        }
    }

    #[test]
    fn names_of_sandboxes_are_no_paths() {
        let file = FileFlags::default();
        for name in ["../x", "a/b", "", "-x"] {
            assert!(file.sandbox(name).is_err(), "{name:?}");
        }
    }
}
