//! The traffic of a sandbox that was denied while a command ran, for every front end to report beside its output.

use engine::{Engine, ExecView, NetworkDenials, Principal, SandboxRef};

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
