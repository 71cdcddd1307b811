//! `sandbox_run_code` and the contexts that keep its variables between calls.

mod code_sandbox;
mod contexts;
mod interrupt;
mod run;
#[cfg(test)]
mod tests;

use sandbox::{ContextName, Error, ErrorKind, Thing};

use crate::mcp::{Failure, Tool};

const LIST_HINT: &str = "Call code_context_list to see the contexts of the sandbox.";

pub(super) fn tools() -> Vec<Tool> {
    run::tools().into_iter().chain(contexts::tools()).chain(interrupt::tools()).collect()
}

fn context_name(text: &str) -> Result<ContextName, Failure> {
    let name = text.parse::<ContextName>();
    Ok(name.map_err(Error::from)?)
}

/// Returns the failure for an error about a context, with the tool that leads on.
fn refused(error: Error) -> Failure {
    let is_about_context = error.is_about(Thing::Context) && error.next().is_none();
    let failure = Failure::from(error);
    match is_about_context {
        true => failure.or_hint(ErrorKind::NotFound, LIST_HINT).or_hint(ErrorKind::WrongState, LIST_HINT),
        false => failure,
    }
}
