//! The next step after an error, as a call of these tools.

use sandbox::{Error, ErrorKind, Limit, Next, Setting, Thing};

use crate::mcp::Failure;

const FIND: &str = "Call sandbox_list to see the sandboxes, or sandbox_create to create one.";
const REMOVE: &str = "Call sandbox_list, then sandbox_kill those that are no longer needed.";
const IMAGES: &str =
    "Name an image that the server can pull, or use image \"host\": the programs of the server's machine.";
const CONNECT: &str = "Call sandbox_connect, then try again.";

pub(super) fn failure(error: Error) -> Failure {
    error.into()
}

pub(super) fn cancelled() -> Failure {
    failure(Error::new(ErrorKind::Cancelled, "the call was cancelled"))
}

pub(super) fn hint(error: &Error) -> Option<String> {
    let Some(next) = error.next() else { return by_subject(error).map(str::to_owned) };
    let hint = match next {
        Next::Advice(advice) => return Some(advice.clone()),
        Next::Retry => "Call it again in a moment.",
        Next::Nothing => "No action is needed.",
        Next::Start(_) | Next::Resume(_) | Next::AwaitStopped(_) | Next::Restart(_) => CONNECT,
        Next::Reboot(_) => "Ask the server's operator to restart the sandbox, or create another.",
        Next::AwaitRunning(_) => "Call sandbox_get_info until it is Running, then try again.",
        Next::Inspect(_) => "Call sandbox_get_info to see its state.",
        Next::Replace(_) => "Call sandbox_get_info to see the reason, then sandbox_kill.",
        Next::Stop(_) | Next::StopOrForce(_) | Next::GiveUp(_) => "Call sandbox_kill to remove it.",
        Next::List(what) | Next::Create(what) | Next::Name(what) => return list(*what).map(str::to_owned),
        Next::FreeName(_) => "Choose another name.",
        Next::Pull(_) | Next::HostImage(_) | Next::LogIn | Next::Configure(Setting::Registries) => IMAGES,
        Next::Remove(Thing::Sandbox)
        | Next::Raise(Limit::Sandboxes | Limit::KeySandboxes | Limit::KeyMemory) => REMOVE,
        Next::Raise(Limit::Execs | Limit::PackageJobs) => {
            "Wait until a command in the sandbox has ended, or end one with command_interrupt."
        }
        Next::Raise(Limit::RequestRate | Limit::Streams) => "Wait a moment, then call it again.",
        Next::Raise(Limit::VolumeQuota) => "Delete files from the volume, or use one with a higher quota.",
        Next::MakeKey | Next::SignIn => "Ask the server's operator for a key.",
        Next::Allow(host) => return Some(format!("Allow {host:?} in the sandbox's network policy.")),
        Next::AskNetwork(_) => "Omit it, or ask the server's operator to allow it.",
        // No tool here makes, changes or removes these.
        Next::Raise(Limit::Volumes | Limit::Snapshots | Limit::Keys)
        | Next::Remove(_)
        | Next::RemoveUsers(_)
        | Next::Archive(_)
        | Next::VolumeSize
        | Next::VolumeQuota
        | Next::Diagnose
        | Next::Recover
        | Next::Listen
        | Next::UseBackend(_)
        | Next::Configure(Setting::PublishAddresses | Setting::Packages)
        | Next::SetSecret { .. } => "Only the server's operator can fix this.",
    };
    Some(hint.to_owned())
}

fn list(what: Thing) -> Option<&'static str> {
    match what {
        Thing::Sandbox => Some(FIND),
        Thing::Exec => Some("Use the id that command_run returned."),
        Thing::File => Some("Call file_search on the parent directory to see what exists."),
        Thing::Image => Some(IMAGES),
        Thing::Context
        | Thing::PackageJob
        | Thing::Volume
        | Thing::Snapshot
        | Thing::Key
        | Thing::SshKey
        | Thing::Secret
        | Thing::HostPath
        | Thing::Patch
        | Thing::Archive
        | Thing::Route
        | Thing::Backend
        | Thing::Port => None,
    }
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
            let told = hint(&Error::invalid("no").with_next(next)).unwrap();
            assert!(told.contains(tool), "{told}");
        }
        assert_eq!(hint(&Error::new(ErrorKind::Internal, "it broke")), None);
        assert_eq!(hint(&Error::invalid("no").with_hint("Try later.")).unwrap(), "Try later.");
    }
}
