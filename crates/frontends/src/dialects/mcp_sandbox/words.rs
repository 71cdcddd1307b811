//! The next step after an error, in this dialect's words.

use sandbox::{Error, Limit, Next, Thing};

use crate::mcp::Failure;

pub(super) const YOURS: &str = "Call list_sandboxes to see your sandboxes, or create_sandbox to create one.";

/// The way to delete a sandbox: no tool of theirs does it.
pub(super) const HOW_TO_DELETE: &str = "To delete one, send DELETE /mcp-sandbox/api/users/me/sandboxes/<sandbox_id>, or run `warren rm <sandbox_id>` on the server.";

pub(super) fn failure(error: Error) -> Failure {
    error.into()
}

pub(super) fn hint(error: &Error) -> Option<String> {
    let hint = match error.next()? {
        Next::Advice(advice) => return Some(advice.clone()),
        Next::Retry
        | Next::Start(_)
        | Next::AwaitRunning(_)
        | Next::AwaitStopped(_)
        | Next::Restart(_)
        | Next::Inspect(_)
        | Next::Raise(Limit::RequestRate | Limit::Streams) => "Call it again in a moment.",
        Next::Nothing => "No action is needed.",
        Next::Resume(_) => "The sandbox is paused: run `warren resume` on the server, or create another one.",
        Next::List(Thing::Sandbox) | Next::Create(Thing::Sandbox) | Next::Name(Thing::Sandbox) => YOURS,
        Next::Replace(_) | Next::Reboot(_) | Next::GiveUp(_) => "Create another sandbox with create_sandbox.",
        Next::Remove(Thing::Sandbox)
        | Next::Raise(Limit::Sandboxes | Limit::KeySandboxes | Limit::KeyMemory) => HOW_TO_DELETE,
        Next::Raise(Limit::Execs | Limit::PackageJobs) => {
            "Wait until something that runs in the sandbox has ended, then call it again."
        }
        Next::Raise(Limit::VolumeQuota) => "Delete files from the volume, or use one with a higher quota.",
        Next::MakeKey | Next::SignIn => "Ask the server's operator for a key.",
        Next::Allow(_)
        | Next::AskNetwork(_)
        | Next::Configure(_)
        | Next::Diagnose
        | Next::HostImage(_)
        | Next::Listen
        | Next::LogIn
        | Next::Pull(_)
        | Next::Raise(Limit::Volumes | Limit::Snapshots | Limit::Keys)
        | Next::Recover
        | Next::SetSecret { .. } => "Only the server's operator can fix this.",
        // About what no tool of theirs knows.
        Next::List(_)
        | Next::Create(_)
        | Next::Name(_)
        | Next::FreeName(_)
        | Next::Remove(_)
        | Next::RemoveUsers(_)
        | Next::Stop(_)
        | Next::StopOrForce(_)
        | Next::Archive(_)
        | Next::VolumeSize
        | Next::VolumeQuota
        | Next::UseBackend(_) => return None,
    };
    Some(hint.to_owned())
}
