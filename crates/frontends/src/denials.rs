//! The traffic of a sandbox that was denied while a command ran, for every front end to report beside its output.

use engine::{Engine, ExecView, NetworkDenials, NetworkReach, Principal, SandboxRef};

use crate::lacks;

/// Returns what was denied since the command began. A sandbox that is gone by then was denied nothing worth telling.
pub(crate) async fn during(engine: &Engine, who: &Principal, exec: &ExecView) -> NetworkDenials {
    let which = SandboxRef::from(&exec.sandbox);
    engine.network_denials(who, &which, exec.created_at).await.unwrap_or_default()
}

/// One sentence for each target, with the rule that would allow it. It names no command, tool or route.
pub(crate) fn sentences(network: &NetworkDenials) -> Vec<String> {
    let mut told: Vec<_> = network
        .denied
        .iter()
        .map(|denial| {
            let rule = &denial.event.rule;
            match &denial.target {
                None => format!("The network was not reached: {rule}."),
                Some(target) => format!(
                    "{target} was not reached: {rule}. Whoever may change the sandbox's network policy can allow it with \
                     the rule {target}."
                ),
            }
        })
        .collect();
    if network.n_more > 0 {
        told.push(format!("{} more targets were denied: see the sandbox's network log.", network.n_more));
    }
    told
}

/// [`sentences`] about what was denied since the command began.
pub(crate) async fn told(engine: &Engine, who: &Principal, exec: &ExecView) -> Vec<String> {
    sentences(&during(engine, who, exec).await)
}

/// The same for a command whose output is at hand: without a network nothing is recorded as denied, and only the
/// command itself says what it missed.
pub(crate) async fn told_beside(
    engine: &Engine,
    who: &Principal,
    exec: &ExecView,
    output: [&str; 2],
) -> Vec<String> {
    let network = during(engine, who, exec).await;
    let mut told = sentences(&network);
    let exit_code = exec.exit_code.map_or(0, i32::from);
    let lacks_network =
        || lacks::says_no_network(&output) || lacks::means_no_network(&exec.command, exit_code);
    let has = match network.reach {
        NetworkReach::Nothing => "no network",
        NetworkReach::Packages => "no network but package indexes",
        NetworkReach::Policy => return told,
    };
    if exit_code != 0 && lacks_network() {
        told.push(format!("This sandbox has {has}. A rule of its network policy allows a host."));
    }
    told
}
