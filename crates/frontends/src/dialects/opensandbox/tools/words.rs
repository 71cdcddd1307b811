//! The next step after an error, as a call of these tools.

use sandbox::{Error, ErrorKind, Limit, Next, Thing};

use crate::mcp::Failure;

const FIND: &str = "Call sandbox_list to see the sandboxes, or sandbox_create to create one.";
const REMOVE: &str = "Call sandbox_list, then sandbox_kill those that are no longer needed.";
const CONNECT: &str = "Call sandbox_connect, then try again.";

pub(super) fn failure(error: Error) -> Failure {
    let hint = hint(&error);
    Failure { hint, ..Failure::from(error) }
}

pub(super) fn cancelled() -> Failure {
    failure(Error::new(ErrorKind::Cancelled, "the call was cancelled"))
}

fn hint(error: &Error) -> Option<String> {
    let Some(next) = error.next() else { return by_subject(error).map(str::to_owned) };
    let hint = match next {
        Next::Advice(advice) => return Some(advice.clone()),
        Next::Retry => "Call it again in a moment.",
        Next::Start(_) | Next::Resume(_) | Next::AwaitStopped(_) | Next::Restart(_) => CONNECT,
        Next::AwaitRunning(_) => "Call sandbox_get_info until it is Running, then try again.",
        Next::Inspect(_) => "Call sandbox_get_info to see its state.",
        Next::Replace(_) => "Call sandbox_get_info to see the reason, then sandbox_kill.",
        Next::List(Thing::Sandbox) | Next::Create(Thing::Sandbox) | Next::Name(Thing::Sandbox) => FIND,
        Next::List(Thing::Exec) => "Use the id that command_run returned.",
        Next::List(Thing::File) => "Call file_search on the parent directory to see what exists.",
        Next::List(Thing::Image) | Next::Pull(_) => {
            "Name an image that the server can pull, or use image \"host\": the programs of the server's machine."
        }
        Next::Remove(Thing::Sandbox)
        | Next::Raise(Limit::Sandboxes | Limit::KeySandboxes | Limit::KeyMemory) => REMOVE,
        Next::Raise(Limit::Execs) => {
            "Wait until a command in the sandbox has ended, or end one with command_interrupt."
        }
        Next::Raise(Limit::RequestRate | Limit::Streams) => "Wait a moment, then call it again.",
        Next::MakeKey | Next::SignIn => "Ask the server's operator for a key.",
        Next::Diagnose | Next::Recover | Next::Listen => "Only the server's operator can fix this.",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn by_subject(error: &Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::NotFound if error.is_about(Thing::Sandbox) => Some(FIND),
        ErrorKind::NotFound => Some("Call file_search on the parent directory to see what exists."),
        ErrorKind::InvalidRequest => Some("Correct this and call it again."),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_tools_of_this_dialect_only() {
        let name = || "web".to_owned();
        for (next, tool) in [
            (Next::Start(name()), "sandbox_connect"),
            (Next::Resume(name()), "sandbox_connect"),
            (Next::Replace(name()), "sandbox_kill"),
            (Next::List(Thing::Sandbox), "sandbox_list"),
            (Next::Raise(Limit::KeySandboxes), "sandbox_kill"),
            (Next::Raise(Limit::Execs), "command_interrupt"),
        ] {
            let told = failure(Error::invalid("no").with_next(next)).hint.unwrap();
            assert!(told.contains(tool), "{told}");
        }
        assert_eq!(failure(Error::new(ErrorKind::Internal, "it broke")).hint, None);
        assert_eq!(failure(Error::invalid("no").with_hint("Try later.")).hint.unwrap(), "Try later.");
    }
}
