//! The next step after an error, as a tool to call: the table of this front end.

use sandbox::{Error, ErrorKind, Limit, Next, Setting, Subject, Thing};

const NAME_RULE: &str =
    "A name has at most 63 letters, digits, '-', '_' and '.', and starts with a letter or digit.";

/// Returns a sentence that names the next call.
pub(crate) fn hint(error: &Error) -> Option<String> {
    let Some(next) = error.next() else {
        return (error.kind() == ErrorKind::InvalidRequest)
            .then(|| format!("Correct this and call again: {error}."));
    };
    let hint = match next {
        Next::Advice(advice) => return Some(advice.clone()),
        Next::Retry => "Call it again in a moment.",
        Next::Nothing => "No action is needed.",
        Next::Start(_) => "Call sandbox_start first.",
        Next::Resume(_) => "Call sandbox_resume first.",
        Next::Stop(_) => "Call sandbox_stop first.",
        Next::GiveUp(_) => "Try again when its back end responds, or set force: true to abandon it.",
        Next::StopOrForce(_) => "Call sandbox_stop first, or set force: true.",
        Next::AwaitRunning(_) => "Call sandbox_status until it is running, then try again.",
        Next::AwaitStopped(_) => "Call sandbox_wait, then sandbox_start.",
        Next::Restart(_) => "Call sandbox_wait, then sandbox_start, or use another sandbox.",
        Next::Reboot(_) => "Call sandbox_stop, then sandbox_start; its files are kept.",
        Next::Inspect(_) => "Call sandbox_inspect to see its state, then try again.",
        Next::Replace(_) => "Call sandbox_inspect to see the reason, then sandbox_remove.",
        Next::List(what) | Next::Create(what) => list(*what),
        Next::Name(what) => return Some(format!("{NAME_RULE} {}", list(*what))),
        Next::FreeName(Subject { what: Thing::Volume, .. }) => {
            "Choose another name, or call volume_inspect to see the existing volume."
        }
        Next::FreeName(Subject { what: Thing::Snapshot, .. }) => {
            "Choose another name, or call snapshot_list to see the existing snapshot."
        }
        Next::FreeName(_) => "Choose another name, or call sandbox_list to see what uses it.",
        Next::RemoveUsers(Thing::Volume) => "Call sandbox_remove for the sandboxes that mount it first.",
        Next::RemoveUsers(Thing::Secret) => "Call sandbox_remove for the sandboxes that have it first.",
        Next::Allow(host) => return Some(format!("Add {host:?} to network.allow.")),
        Next::SetSecret { name, host } => {
            let host = host.as_deref().unwrap_or("HOST");
            return Some(format!(
                "Call sandbox_secrets to see all secrets, or ask the operator to run: warren secret set {name} --host {host}"
            ));
        }
        Next::RemoveUsers(Thing::Snapshot) => {
            "Call sandbox_remove and snapshot_remove for its users, or snapshot_remove with force and confirm."
        }
        Next::RemoveUsers(_) => "Call sandbox_remove for its users, or image_remove with force and confirm.",
        Next::Pull(image) => {
            return Some(format!(
                "Call image_pull for {image}, or snapshot_load with an archive that includes the image."
            ));
        }
        Next::HostImage(host) => {
            let fallback = match host.can_stand_in {
                true => ", or set imageFallback: true to use it whenever the image cannot be pulled",
                false => "",
            };
            return Some(format!(
                "Check the image's name, or set image: \"host\", which has {}{fallback}.",
                host.listed()
            ));
        }
        Next::Remove(Thing::Sandbox)
        | Next::Raise(Limit::Sandboxes | Limit::KeySandboxes | Limit::KeyMemory) => {
            "Call sandbox_list, then sandbox_remove those you no longer need."
        }
        Next::Remove(Thing::Volume) | Next::Raise(Limit::Volumes) => {
            "Call volume_list, then volume_remove those you no longer need."
        }
        Next::Remove(Thing::Snapshot) | Next::Raise(Limit::Snapshots) => {
            "Call snapshot_list, then snapshot_remove those you no longer need."
        }
        Next::Remove(_) => "Remove some that you no longer need.",
        Next::Raise(Limit::VolumeQuota) => {
            "Remove files with volume_fs_remove, or use a volume with a higher quota."
        }
        Next::Raise(Limit::Execs | Limit::PackageJobs) => {
            "Call sandbox_exec_list to see what is running, and wait for some to finish."
        }
        Next::Raise(Limit::Keys | Limit::RequestRate | Limit::Streams) => {
            "Wait a moment, then call it again."
        }
        Next::Archive(_) => "Use an archive that snapshot_save wrote.",
        Next::VolumeSize => {
            "A disk (kind: disk) takes sizeMib, such as 1024; a directory takes quotaMib instead."
        }
        Next::VolumeQuota => {
            "A directory takes quotaMib, such as 1024; a disk (kind: disk) takes sizeMib instead."
        }
        Next::MakeKey | Next::SignIn => "Ask the daemon's operator for a key.",
        Next::UseBackend(kind) => return Some(format!("Set backend to \"{kind}\", or omit it.")),
        Next::Configure(Setting::PublishAddresses) => {
            "Omit the address for 127.0.0.1, or ask the daemon's operator to allow this one."
        }
        Next::Configure(Setting::Registries) => {
            "Use a public registry, or ask the daemon's operator to allow this one."
        }
        Next::Configure(Setting::Packages) => {
            "Ask the daemon's operator to enable packages, or use an image that has what you need."
        }
        Next::LogIn => {
            "Call image_pull with username and password, or check the name: registries answer the same for images that do not exist."
        }
        Next::Diagnose | Next::Recover | Next::Listen => "Only the daemon's operator can fix this.",
    };
    Some(hint.to_owned())
}

/// The call that lists them, and the one that creates another.
fn list(what: Thing) -> &'static str {
    match what {
        Thing::Sandbox => "Call sandbox_list to see all sandboxes, or sandbox_create to create one.",
        Thing::Volume => "Call volume_list to see all volumes, or volume_create to create one.",
        Thing::Snapshot => "Call snapshot_list to see all snapshots.",
        Thing::Image => "Call image_list to see local images, or image_pull to get one.",
        Thing::Exec => "Call sandbox_exec_list to see the sessions of a sandbox.",
        Thing::Context => "Call code_context_list to see the contexts of the sandbox.",
        Thing::PackageJob => "Call sandbox_package_status to see the jobs of the sandbox.",
        Thing::Port => "Call sandbox_ports to see what listens in the sandbox.",
        Thing::Secret => "Call sandbox_secrets to see all secrets.",
        Thing::File => "Call sandbox_fs_list on the parent directory to see what exists.",
        Thing::Key
        | Thing::SshKey
        | Thing::HostPath
        | Thing::Patch
        | Thing::Archive
        | Thing::Route
        | Thing::Backend => "Check the name.",
    }
}

#[cfg(test)]
mod tests {
    use sandbox::SandboxState;

    use super::*;

    #[test]
    fn hints_name_the_next_tool() {
        let name = || "web".to_owned();
        for (next, tool) in [
            (Next::Start(name()), "sandbox_start"),
            (Next::Resume(name()), "sandbox_resume"),
            (Next::AwaitRunning(name()), "sandbox_status"),
            (Next::AwaitStopped(name()), "sandbox_wait"),
            (Next::Replace(name()), "sandbox_inspect"),
            (Next::List(Thing::Snapshot), "snapshot_list"),
            (Next::Create(Thing::Volume), "volume_create"),
            (Next::Name(Thing::Volume), "volume_list"),
            (Next::Raise(Limit::KeySandboxes), "sandbox_remove"),
        ] {
            let error =
                Error::new(ErrorKind::WrongState, "no").in_state(SandboxState::Stopped).with_next(next);
            let told = hint(&error).unwrap();
            assert!(told.contains(tool) && !told.contains("warren"), "{told}");
        }
        assert!(hint(&Error::invalid("it is odd")).unwrap().contains("it is odd"));
        assert_eq!(hint(&Error::new(ErrorKind::Internal, "it broke")), None);
        assert_eq!(hint(&Error::invalid("full").with_hint("Try later.")), Some("Try later.".to_owned()));
    }
}
