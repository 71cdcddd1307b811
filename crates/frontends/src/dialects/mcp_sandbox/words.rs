//! The next step after an error, in this dialect's words.

use sandbox::{Error, Limit, Next, Thing};

use crate::mcp::Failure;

pub(super) const YOURS: &str = "Call list_sandboxes to see your sandboxes, or create_sandbox to create one.";

/// Where a sandbox is deleted: no tool of theirs does it.
pub(super) const HOW_TO_DELETE: &str = "To delete one, send DELETE /mcp-sandbox/api/users/me/sandboxes/<sandbox_id>, or run `warren rm <sandbox_id>` on the server.";

pub(super) fn failure(error: Error) -> Failure {
    let hint = hint(&error);
    Failure { hint, ..Failure::from(error) }
}

fn hint(error: &Error) -> Option<String> {
    let hint = match error.next()? {
        Next::Advice(advice) => return Some(advice.clone()),
        Next::Retry | Next::Start(_) | Next::AwaitRunning(_) | Next::AwaitStopped(_) | Next::Restart(_) => {
            "Call it again in a moment."
        }
        Next::Resume(_) => "The sandbox is paused: run `warren resume` on the server, or create another one.",
        Next::List(Thing::Sandbox) | Next::Create(Thing::Sandbox) | Next::Name(Thing::Sandbox) => YOURS,
        Next::Replace(_) => "Create another sandbox with create_sandbox.",
        Next::Remove(Thing::Sandbox)
        | Next::Raise(Limit::Sandboxes | Limit::KeySandboxes | Limit::KeyMemory) => HOW_TO_DELETE,
        Next::Raise(Limit::Execs | Limit::PackageJobs) => {
            "Wait until something that runs in the sandbox has ended, then call it again."
        }
        _ => return None,
    };
    Some(hint.to_owned())
}
