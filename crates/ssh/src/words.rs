//! Errors and signals in the words of SSH.

use russh::Sig;
use sandbox::{Error, Limit, Next, Thing};

/// An error as a client shows it. A terminal needs the carriage returns.
pub(crate) fn message(error: &Error) -> String {
    let hint = error.next().and_then(hint).map(|hint| format!("\r\n{hint}")).unwrap_or_default();
    format!("warren: {error}{hint}\r\n")
}

/// The next step of whoever has a shell elsewhere, too: commands are run there.
fn hint(next: &Next) -> Option<String> {
    let command = |what: &str, command: &str, sandbox: &str| format!("{what}: warren {command} {sandbox}");
    Some(match next {
        Next::Advice(advice) => advice.clone(),
        Next::Retry | Next::Raise(Limit::RequestRate | Limit::Streams) => "Try again in a moment.".to_owned(),
        Next::Nothing => "No action is needed.".to_owned(),
        Next::Start(sandbox) => command("Start it first", "start", sandbox),
        Next::Resume(sandbox) => command("Resume it first", "resume", sandbox),
        Next::Stop(sandbox) => command("Stop it first", "stop", sandbox),
        Next::AwaitRunning(_) => "Try again when it is running.".to_owned(),
        Next::AwaitStopped(sandbox) | Next::Restart(sandbox) => {
            command("Start it again when it has stopped", "start", sandbox)
        }
        Next::Reboot(sandbox) => command("Stop it, then connect again", "stop", sandbox),
        Next::Inspect(sandbox) => command("See its state", "inspect", sandbox),
        Next::Replace(sandbox) | Next::StopOrForce(sandbox) | Next::GiveUp(sandbox) => {
            command("Remove it", "rm -f", sandbox)
        }
        Next::List(Thing::Sandbox) | Next::Name(Thing::Sandbox) => "List sandboxes: warren ps -a".to_owned(),
        Next::Create(Thing::Sandbox) => "Create one: warren create".to_owned(),
        Next::Raise(Limit::Execs | Limit::PackageJobs) => {
            "Wait until something that runs in the sandbox has ended.".to_owned()
        }
        Next::Raise(Limit::Sandboxes | Limit::KeySandboxes | Limit::KeyMemory)
        | Next::Remove(Thing::Sandbox) => "Remove a sandbox that you no longer need: warren rm".to_owned(),
        Next::Raise(Limit::VolumeQuota) => "Delete files from the volume.".to_owned(),
        Next::MakeKey => "Register your public key: warren ssh-key add".to_owned(),
        Next::Allow(host) => format!("Allow {host} in the sandbox's network policy."),
        Next::Diagnose => "See what the daemon's host lacks: warren doctor".to_owned(),
        Next::Recover => "Rebuild the daemon's records: warren doctor --recover".to_owned(),
        Next::Listen => "Start a daemon that listens: warren serve".to_owned(),
        Next::Pull(image) => format!("Pull its image first: warren pull {image}"),
        Next::SetSecret { name, .. } => format!("Set the secret first: warren secret set {name}"),
        // About what nobody asks for over SSH.
        Next::AskNetwork(_)
        | Next::List(_)
        | Next::Create(_)
        | Next::Name(_)
        | Next::FreeName(_)
        | Next::Remove(_)
        | Next::RemoveUsers(_)
        | Next::HostImage(_)
        | Next::Raise(Limit::Volumes | Limit::Snapshots | Limit::Keys)
        | Next::Archive(_)
        | Next::VolumeSize
        | Next::VolumeQuota
        | Next::SignIn
        | Next::UseBackend(_)
        | Next::Configure(_)
        | Next::LogIn => return None,
    })
}

pub(crate) fn signal_number(signal: &Sig) -> Option<i32> {
    Some(match signal {
        Sig::HUP => 1,
        Sig::INT => 2,
        Sig::QUIT => 3,
        Sig::ILL => 4,
        Sig::ABRT => 6,
        Sig::FPE => 8,
        Sig::KILL => 9,
        Sig::USR1 => 10,
        Sig::SEGV => 11,
        Sig::PIPE => 13,
        Sig::ALRM => 14,
        Sig::TERM => 15,
        Sig::Custom(name) => match name.as_str() {
            "USR2" => 12,
            "CONT" => 18,
            "STOP" => 19,
            "TSTP" => 20,
            "WINCH" => 28,
            _ => return None,
        },
    })
}

/// The name of a signal; one that has none in SSH is named by its number, as others do.
pub(crate) fn signal_name(number: i32) -> Sig {
    match number {
        1 => Sig::HUP,
        2 => Sig::INT,
        3 => Sig::QUIT,
        4 => Sig::ILL,
        6 => Sig::ABRT,
        8 => Sig::FPE,
        9 => Sig::KILL,
        10 => Sig::USR1,
        11 => Sig::SEGV,
        13 => Sig::PIPE,
        14 => Sig::ALRM,
        15 => Sig::TERM,
        number => Sig::Custom(format!("SIG{number}@warren")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_numbers_and_names() {
        for number in [1, 2, 3, 4, 6, 8, 9, 10, 11, 13, 14, 15] {
            assert_eq!(signal_number(&signal_name(number)), Some(number));
        }
        assert_eq!(signal_number(&Sig::Custom("USR2".to_owned())), Some(12));
        assert_eq!(signal_number(&Sig::Custom("RTMIN+1".to_owned())), None);
        assert!(matches!(signal_name(31), Sig::Custom(name) if name == "SIG31@warren"));
    }
}
