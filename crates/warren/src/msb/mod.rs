//! `msb`, the command line of microsandbox up to version 0.2, for scripts and fingers that know it.
//!
//! Most commands are one or two commands of `warren` in other words ([`project`]); [`server`] starts and stops the
//! daemon. A flag keeps its meaning, or is refused with what to use instead: nothing is ignored in silence.

mod exe;
mod project;
mod server;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sandbox::{Error, ErrorKind};

use self::{project::ProjectCommand, server::ServerArgs};
use crate::{cli::Cli, commands, error::CommandResult};

/// The command line of microsandbox, for Warren's sandboxes
///
/// `warren --help` shows all that there is.
#[derive(Debug, Parser)]
#[command(name = "msb", version, max_term_width = 100, disable_help_subcommand = true)]
struct Msb {
    #[command(flatten)]
    levels: Levels,
    #[command(subcommand)]
    command: Command,
}

/// How much the server logs.
#[derive(Debug, clap::Args)]
struct Levels {
    /// Log errors only
    #[arg(long, global = true, group = "level")]
    error: bool,
    /// Log warnings too
    #[arg(long, global = true, group = "level")]
    warn: bool,
    /// Log what happens
    #[arg(long, global = true, group = "level")]
    info: bool,
    /// Log for debugging
    #[arg(long, global = true, group = "level")]
    debug: bool,
    /// Log everything
    #[arg(long, global = true, group = "level")]
    trace: bool,
}

impl Levels {
    fn name(&self) -> Option<&'static str> {
        let Self { error, warn, info, debug, trace } = *self;
        let levels = [(error, "error"), (warn, "warn"), (info, "info"), (debug, "debug"), (trace, "trace")];
        levels.into_iter().find(|(is_on, _)| *is_on).map(|(_, name)| name)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    Server(ServerArgs),
    #[command(flatten)]
    Project(ProjectCommand),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// One command of `warren`, as its arguments.
type Line = Vec<String>;

pub(crate) fn main() -> ExitCode {
    let args = match Msb::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // If our output is closed, there is nobody to report to.
            error.print().ok();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let result = match args.command {
        Command::Server(server) => server.run(args.levels.name()),
        Command::Project(command) => command.run(),
        Command::Other(words) => Err(project::other(&words).into()),
    };
    result.unwrap_or_else(|error| error.report(false))
}

/// Runs commands of `warren`, one after the other, until one does not succeed.
fn run_all(lines: &[Line]) -> CommandResult {
    for line in lines {
        let code = run_line(line)?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_line(line: &Line) -> CommandResult {
    let words = std::iter::once("warren").chain(line.iter().map(String::as_str));
    let cli = Cli::try_parse_from(words).map_err(|error| {
        let text = error.render().to_string();
        let words = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Error::invalid(words).with_hint("`msb COMMAND --help` shows its arguments.")
    })?;
    commands::run(cli)
}

fn line(words: &[&str]) -> Line {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns the error for something that Warren does another way, which the hint names.
fn instead(what: &str, instead: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what} is not part of Warren")).with_hint(instead)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Msb::command().debug_assert();
    }
}
