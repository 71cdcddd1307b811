//! `warren completions`

use std::{io::Write as _, process::ExitCode};

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{cli::Cli, error::CommandResult};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren completions bash > ~/.local/share/bash-completion/completions/warren
  warren completions zsh > ~/.zfunc/_warren")]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "warren", &mut script);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&script)?;
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}
