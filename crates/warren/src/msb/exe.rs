//! Programs: `msb exe`, and how a program of any `msb` command is attached to this terminal.

use frontends::dialects;
use sandbox::ImageRef;

use super::{Line, line};
use crate::{output, terminal};

#[derive(Debug, clap::Args)]
pub(super) struct ExeArgs {
    /// Has no effect: everything here is an image
    #[arg(long, short)]
    image: bool,
    /// The image, and the program to run in it
    #[arg(value_name = "IMAGE[~PROGRAM]")]
    name: String,
    /// Number of CPUs
    #[arg(long, alias = "cpu")]
    cpus: Option<u32>,
    /// Memory in MiB
    #[arg(long)]
    memory: Option<u32>,
    /// Mount a host path: HOST:GUEST
    #[arg(long = "volume", short)]
    volumes: Vec<String>,
    /// Publish a port: HOST:GUEST
    #[arg(long = "port")]
    ports: Vec<String>,
    /// Environment variable: KEY=VALUE
    #[arg(long = "env")]
    envs: Vec<String>,
    /// Working directory
    #[arg(long)]
    workdir: Option<String>,
    /// Network scope: none, public or any
    #[arg(long)]
    scope: Option<String>,
    /// Run this command
    #[arg(long, short, value_name = "COMMAND")]
    exec: Option<String>,
    /// Arguments for the program or command
    #[arg(last = true)]
    args: Vec<String>,
}

impl ExeArgs {
    /// As `warren run`.
    pub(super) fn line(&self) -> Line {
        let (image, program) = split(&self.name);
        let image = if dialects::stand_in(image).is_some() { ImageRef::HOST } else { image };
        let mut made = line(&["run", &format!("--image={image}")]);
        made.extend(Attached::here().flags());
        if let Some(cpus) = self.cpus {
            made.extend(line(&["--cpus", &cpus.to_string()]));
        }
        if let Some(memory) = self.memory {
            made.extend(line(&["--memory", &format!("{memory}m")]));
        }
        for (flag, values) in [("--volume", &self.volumes), ("--publish", &self.ports), ("--env", &self.envs)]
        {
            for value in values {
                made.push(format!("{flag}={value}"));
            }
        }
        match self.scope.as_deref() {
            None => {}
            Some(preset @ ("none" | "public")) => made.push(format!("--network={preset}")),
            Some("any") => made.push("--network=all".to_owned()),
            Some(scope) => output::warn(&format!("scope {scope:?}: it reaches package indexes only")),
        }
        if let Some(workdir) = &self.workdir {
            made.push(format!("--cwd={workdir}"));
        }
        made.push("--".to_owned());
        made.extend(command(program, self.exec.as_deref(), &self.args).unwrap_or_else(|| self.args.clone()));
        made
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attached {
    Terminal,
    Input,
    No,
}

impl Attached {
    /// A terminal where there is one.
    pub(super) fn here() -> Self {
        if terminal::stdin_is_terminal() { Self::Terminal } else { Self::Input }
    }

    pub(super) fn flags(self) -> Line {
        match self {
            Self::Terminal => line(&["--interactive", "--tty"]),
            Self::Input => line(&["--interactive"]),
            Self::No => line(&["--detach"]),
        }
    }
}

/// The script or command with its arguments; none if neither is named.
pub(super) fn command(script: Option<&str>, exec: Option<&str>, args: &[String]) -> Option<Vec<String>> {
    let own = match (exec, script) {
        // A shell reads it, and gets the arguments as its own.
        (Some(exec), _) => line(&["sh", "-c", &format!("{exec} \"$@\""), "sh"]),
        (None, Some(script)) => line(&[script]),
        (None, None) => return None,
    };
    Some([own, args.to_vec()].concat())
}

/// A name, and what follows it after `~`.
pub(super) fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once('~') {
        Some((name, script)) => (name, Some(script)),
        None => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn scripts_and_commands_get_their_arguments() {
        assert_eq!(command(None, None, &words("a b")), None);
        assert_eq!(command(Some("test"), None, &words("-v")), Some(words("test -v")));
        let run = command(Some("ignored"), Some("echo hi"), &words("there")).unwrap();
        assert_eq!(run, ["sh", "-c", "echo hi \"$@\"", "sh", "there"]);
    }
}
