//! The traffic of a sandbox that was denied while a command ran, said beside the command's output.

use engine::{ExecView, NetworkDenial, NetworkDenials};
use serde_json::json;

use crate::mcp::{Call, next_call::written, surface::Surface, words::KnownTools};

pub(super) const POLICY: &str = "sandbox_network";
const REQUEST: &str = "sandbox_network_request";

pub(super) async fn during(call: &Call, exec: &ExecView) -> NetworkDenials {
    crate::denials::during(call.engine(), &call.who, exec).await
}

/// The same for the caller, who is also told how to list the tool that allows it.
pub(super) fn told(call: &Call, network: &NetworkDenials, sandbox: Option<&str>) -> Vec<String> {
    let mut told = warnings(network, sandbox, &call.surface);
    let tool = if network.denied.iter().any(|denial| denial.may_allow) { POLICY } else { REQUEST };
    if sandbox.is_some() && !network.denied.is_empty() && has_policy_tool(&call.surface) {
        told.extend(KnownTools::of(call, &call.surface).way_to(tool));
    }
    told
}

/// One sentence for each target, with the next step on this surface. `sandbox`: what the caller calls it; `None` where
/// it is removed with its command.
fn warnings(network: &NetworkDenials, sandbox: Option<&str>, surface: &Surface) -> Vec<String> {
    let mut told: Vec<_> = network.denied.iter().map(|denial| warning(denial, sandbox, surface)).collect();
    if network.n_more > 0 {
        let log = log(sandbox, surface).map_or(String::new(), |log| format!(": see {log}"));
        told.push(format!("{} more targets were denied{log}.", network.n_more));
    }
    told
}

fn warning(denial: &NetworkDenial, sandbox: Option<&str>, surface: &Surface) -> String {
    let rule = &denial.event.rule;
    let Some(target) = &denial.target else { return format!("The network was not reached: {rule}.") };
    let next = match sandbox {
        None if denial.may_allow => {
            format!("To allow it, call again with {}.", json!({ "network": { "allow": [target] } }))
        }
        _ if !has_policy_tool(surface) => next_elsewhere(denial.may_allow, sandbox, target),
        Some(name) if denial.may_allow => {
            let call = written(POLICY, &json!({ "name": name, "allow": [target] }));
            format!("To allow it, call {call}, then run it again.")
        }
        Some(name) => {
            let call = request(name, target);
            format!(
                "You may not allow it; to ask a person for it, call {call}, then run it again once it is granted."
            )
        }
        None => format!(
            "You may not allow it; to ask a person for it, call sandbox_create, then {} with its name.",
            request("NAME", target)
        ),
    };
    format!("{target} was not reached: {rule}. {next}")
}

/// For clients of other systems, which know no tool that changes a policy.
fn next_elsewhere(may_allow: bool, sandbox: Option<&str>, target: &str) -> String {
    let by_person = sandbox.map(|name| on_the_host(name, target));
    match (by_person, may_allow) {
        (Some(command), true) => format!(
            "To allow it, call sandbox_create with {} for another sandbox, or have a person run {command}.",
            json!({ "network": { "allow": [target] } })
        ),
        (Some(command), false) => {
            format!("You may not allow it; ask the person who runs this server, for whom it is {command}.")
        }
        (None, _) => "You may not allow it; ask the person who runs this server.".to_owned(),
    }
}

/// Returns the command that a person at the host types to allow a target.
pub(super) fn on_the_host(sandbox: &str, target: &str) -> String {
    format!("`warren network {sandbox} --allow '{target}'`")
}

/// Returns the way for a caller of this surface to see what was denied.
pub(super) fn log(sandbox: Option<&str>, surface: &Surface) -> Option<String> {
    const LOG: &str = "sandbox_network_log";
    match (surface.find(LOG), sandbox) {
        (Some(_), _) => Some(LOG.to_owned()),
        (None, Some(name)) => Some(format!("`warren network {name} --log`")),
        (None, None) => None,
    }
}

/// Whether callers of this surface can change a policy.
pub(super) fn has_policy_tool(surface: &Surface) -> bool {
    surface.find(POLICY).is_some()
}

/// The call that asks for a target.
pub(super) fn request(sandbox: &str, target: &str) -> String {
    let arguments = json!({ "name": sandbox, "rules": [target], "reason": "WHY" });
    written(REQUEST, &arguments)
}

#[cfg(test)]
mod tests {
    use engine::NetworkReach;
    use sandbox::{NetworkEvent, NetworkEventKind, SandboxId, network::Protocol};

    use super::*;
    use crate::mcp::testing::{native, theirs};

    fn denial(may_allow: bool) -> NetworkDenial {
        let event = NetworkEvent {
            sandbox: SandboxId::from_random([1; 8]),
            kind: NetworkEventKind::Denied,
            protocol: Protocol::Tcp,
            name: Some("api.example".parse().unwrap()),
            address: None,
            port: 443,
            rule: "denied: the preset `none` reaches nothing".to_owned(),
            count: 1,
        };
        NetworkDenial { target: event.target(), event, may_allow }
    }

    #[test]
    fn a_denial_is_told_with_the_call_that_would_allow_it() {
        let network = NetworkDenials {
            reach: NetworkReach::Policy,
            denied: vec![denial(true)],
            n_more: 2,
            may_widen: true,
        };
        let told = warnings(&network, Some("lab"), native());
        let next = json!({ "name": "lab", "allow": ["api.example:443"] });
        let expected = format!(
            "api.example:443 was not reached: denied: the preset `none` reaches nothing. To allow it, call \
             sandbox_network {next}, then run it again."
        );
        assert_eq!(told[0], expected);
        assert!(told[1].starts_with("2 more targets"), "{told:?}");
        assert!(warnings(&network, None, native())[0].contains("call again with"));
    }

    #[test]
    fn who_may_not_allow_it_is_told_whom_to_ask() {
        let network = NetworkDenials { denied: vec![denial(false)], ..NetworkDenials::default() };
        let next = json!({ "name": "lab", "rules": ["api.example:443"], "reason": "WHY" });
        let told = warnings(&network, Some("lab"), native()).remove(0);
        assert!(told.contains(&format!("call sandbox_network_request {next}")), "{told}");
        assert!(!told.contains("sandbox_network {"), "{told}");
    }

    #[test]
    fn clients_of_another_system_are_told_of_no_tool_that_they_do_not_have() {
        let surface = theirs();
        for may_allow in [true, false] {
            let network =
                NetworkDenials { denied: vec![denial(may_allow)], n_more: 1, ..NetworkDenials::default() };
            for sandbox in [Some("lab"), None] {
                for told in warnings(&network, sandbox, &surface) {
                    let tools = told.split(|c: char| !c.is_ascii_lowercase() && c != '_');
                    let mut tools = tools.filter(|word| word.starts_with("sandbox_"));
                    assert!(tools.all(|tool| surface.find(tool).is_some()), "{told}");
                    assert!(told.contains("allow") || told.contains("more targets"), "{told}");
                }
            }
        }
    }
}
