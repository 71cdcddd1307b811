//! A question before something goes that does not come back.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use sandbox::Error;

use crate::error::CommandResult;

/// Asks whoever sits there. Where nobody does, nothing is removed: `--force` says it beforehand.
pub(super) fn is_sure(question: &str) -> CommandResult<bool> {
    if !io::stdin().is_terminal() {
        return Err(Error::invalid(format!("nobody is there to be asked: {question}"))
            .with_hint("Give --force to remove without a question.")
            .into());
    }
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
