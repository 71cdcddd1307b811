//! Asks for confirmation before something is removed for good.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};

use sandbox::Error;

use crate::error::CommandResult;

/// Longest line that is read.
const MAX_ANSWER_BYTES: u64 = 4096;

/// Asks on the terminal. Without one this is an error, because only `--force` skips the question.
pub(super) fn is_sure(question: &str) -> CommandResult<bool> {
    is_sure_or(question, "--force")
}

/// The same, where another flag skips the question.
pub(super) fn is_sure_or(question: &str, flag: &str) -> CommandResult<bool> {
    if !io::stdin().is_terminal() {
        return Err(Error::invalid(format!(
            "cannot ask for confirmation, stdin is not a terminal: {question}"
        ))
        .with_hint(format!("Pass {flag} to remove without confirmation."))
        .into());
    }
    let answer = ask(&format!("{question} [y/N] "))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// The line that a person types at the terminal.
pub(super) fn ask(question: &str) -> CommandResult<String> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question}")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().take(MAX_ANSWER_BYTES).read_line(&mut answer)?;
    Ok(answer)
}
