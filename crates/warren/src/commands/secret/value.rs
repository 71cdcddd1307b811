//! Reads the value of a secret. Never from an argument, which every process of the machine can read.

use std::{
    fs::File,
    io::{self, BufRead, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use sandbox::{Error, MAX_SECRET_BYTES, SecretName, SecretValue};
use tokio::sync::oneshot;

use crate::{
    error::CommandResult,
    interrupt::unless_interrupted,
    output,
    terminal::{self, RawMode},
};

/// A value with the line break after it, and one byte more, so that a longer one is noticed.
const MAX_READ_BYTES: u64 = MAX_SECRET_BYTES as u64 + 3;

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(super) struct ValueArgs {
    /// Read the value from a file
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// Read the value from a variable of this command's environment
    #[arg(long, value_name = "VARIABLE")]
    from_env: Option<String>,
    /// Read the value from the output of a command, which `sh` runs here as you
    #[arg(long, value_name = "COMMAND")]
    from_command: Option<String>,
}

impl ValueArgs {
    pub(super) async fn read(&self, name: &SecretName) -> CommandResult<SecretValue> {
        let text = match (&self.from_file, &self.from_env, &self.from_command) {
            (Some(path), ..) => of_file(path)?,
            (_, Some(variable), _) => of_variable(variable)?,
            (_, _, Some(command)) => of_command(command)?,
            _ if terminal::stdin_is_terminal() => typed(&format!("value of {name}")).await?,
            _ => limited(io::stdin().lock()).map_err(|error| unreadable("stdin", error))?,
        };
        Ok(SecretValue::new(without_line_break(text))?)
    }
}

/// One line break at the end belongs to the file or the command, not to the value.
fn without_line_break(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

fn limited(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_READ_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn unreadable(what: &str, error: io::Error) -> Error {
    Error::invalid(format!("cannot read the value from {what}")).with_source(error)
}

fn of_file(path: &Path) -> CommandResult<String> {
    let read = File::open(path).and_then(limited);
    Ok(read.map_err(|error| unreadable(&path.display().to_string(), error))?)
}

fn of_variable(variable: &str) -> CommandResult<String> {
    let found = std::env::var(variable);
    Ok(found.map_err(|_unset| {
        Error::invalid(format!("{variable} is not set in the environment, or is not text"))
    })?)
}

fn of_command(command: &str) -> CommandResult<String> {
    let failed = |error| unreadable("the command", error);
    let mut child =
        Command::new("sh").args(["-c", command]).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let text = child.stdout.take().map(limited).transpose().map_err(failed);
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(Error::invalid(format!("the command failed: {status}")).into());
    }
    Ok(text?.unwrap_or_default())
}

/// Asks the person at the terminal, without showing what is typed.
pub(crate) async fn typed(what: &str) -> CommandResult<String> {
    let silent = RawMode::without_echo()?;
    output::note(&format!("{what} (not shown):"));
    let (tell, told) = oneshot::channel();
    // A thread of its own: nothing waits for it if a signal ends the command.
    thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().lock().take(MAX_READ_BYTES).read_line(&mut line).map(|_len| line);
        drop(tell.send(read));
    });
    let line = unless_interrupted(async { Ok(told.await) }).await;
    drop(silent);
    Ok(line?.map_err(io::Error::other)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_break_at_the_end_is_removed() {
        for (text, expected) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("\n", ""), ("a\r", "a\r")]
        {
            assert_eq!(without_line_break(text.to_owned()), expected, "{text:?}");
        }
    }
}
