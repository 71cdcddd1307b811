//! `warren help`

use std::process::ExitCode;

use sandbox::{Error, Result};

use crate::{cli, error::CommandResult, output};

/// Show the help of a command
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command, such as `volume create`
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    output::line(of(&args.words)?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn of(words: &[String]) -> Result<String> {
    let mut root = cli::command();
    root.build();
    let mut command = &mut root;
    for word in words {
        command = command.find_subcommand_mut(word).ok_or_else(|| {
            Error::invalid(format!("there is no command {:?}", words.join(" ")))
                .with_hint("`warren --help` lists all commands.")
        })?;
    }
    Ok(command.render_long_help().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_that_of_the_flag() {
        let of = |words: &[&str]| of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(of(&[]).unwrap().contains("Usage: warren"));
        assert!(of(&["volume", "create"]).unwrap().contains("Usage: warren volume create"));
        assert!(of(&["nonesuch"]).is_err());
    }
}
