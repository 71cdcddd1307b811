//! `sandbox_run_code` and the contexts that keep its variables between calls.

mod code_sandbox;
mod contexts;
mod interrupt;
mod run;
#[cfg(test)]
mod tests;

use sandbox::{ContextName, Error, ErrorKind, Next, Thing};

use crate::mcp::{Failure, Tool};

pub(super) fn tools() -> Vec<Tool> {
    run::tools().into_iter().chain(contexts::tools()).chain(interrupt::tools()).collect()
}

fn context_name(text: &str) -> Result<ContextName, Failure> {
    let name = text.parse::<ContextName>();
    Ok(name.map_err(Error::from)?)
}

/// Returns the failure for an error about a context, with the tool that leads on.
fn refused(error: Error) -> Failure {
    let is_about_context = error.is_about(Thing::Context);
    let failure = Failure::from(error);
    let list = || Next::List(Thing::Context);
    match is_about_context {
        true => failure.or_next(ErrorKind::NotFound, list()).or_next(ErrorKind::WrongState, list()),
        false => failure,
    }
}
