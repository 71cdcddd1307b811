//! What of a sandbox's traffic was denied while a command ran, said beside its output.

use engine::{ExecView, NetworkDenials, SandboxRef};
use sandbox::{NetworkEvent, network::Protocol};
use serde_json::json;

use crate::mcp::{Call, next_call::written};

/// What was denied since the command began. A sandbox that is gone by then was denied nothing worth telling.
pub(super) async fn during(call: &Call, exec: &ExecView) -> NetworkDenials {
    let which = SandboxRef::from(&exec.sandbox);
    call.engine().network_denials(&call.who, &which, exec.created_at).await.unwrap_or_default()
}

/// One sentence for each target. `sandbox`: what the caller calls it; `None` where it is removed with its command.
pub(super) fn warnings(network: &NetworkDenials, sandbox: Option<&str>) -> Vec<String> {
    let mut told: Vec<_> = network.denied.iter().map(|event| warning(event, sandbox)).collect();
    if network.n_more > 0 {
        told.push(format!("{} more targets were denied: see sandbox_network_log.", network.n_more));
    }
    told
}

fn warning(event: &NetworkEvent, sandbox: Option<&str>) -> String {
    let rule = &event.rule;
    let Some(target) = target(event) else { return format!("The network was not reached: {rule}.") };
    let next = match sandbox {
        Some(name) => {
            format!("call {}", written("sandbox_network", &json!({ "name": name, "allow": [target] })))
        }
        None => format!("call again with {}", json!({ "network": { "allow": [target] } })),
    };
    format!("{target} was not reached: {rule}. If the operator allows it, {next}, then run it again.")
}

/// The target as a rule would have it. Names are those of DNS, so that nothing in them can be a sentence.
fn target(event: &NetworkEvent) -> Option<String> {
    let host = match (&event.name, event.address) {
        (Some(name), _) => name.to_string(),
        (None, Some(address)) if address.is_ipv6() => format!("[{address}]"),
        (None, Some(address)) => address.to_string(),
        (None, None) => return None,
    };
    Some(match (event.protocol, event.port) {
        // A question about a name: nobody knows yet which port would follow.
        (_, 0 | 53) => host,
        (Protocol::Udp, port) => format!("udp@{host}:{port}"),
        (Protocol::Tcp, port) => format!("{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use engine::NetworkReach;
    use sandbox::{NetworkEventKind, SandboxId, network::Rule};

    use super::*;

    fn event(name: Option<&str>, address: Option<&str>, port: u16, protocol: Protocol) -> NetworkEvent {
        NetworkEvent {
            sandbox: SandboxId::from_random([1; 8]),
            kind: NetworkEventKind::Denied,
            protocol,
            name: name.map(|name| name.parse().unwrap()),
            address: address.map(|address| address.parse().unwrap()),
            port,
            rule: "denied: the preset `none` reaches nothing".to_owned(),
            count: 1,
        }
    }

    #[test]
    fn a_denial_is_told_with_the_call_that_would_allow_it() {
        let denied = vec![event(Some("api.example"), None, 443, Protocol::Tcp)];
        let network = NetworkDenials { reach: NetworkReach::Policy, denied, n_more: 2 };
        let told = warnings(&network, Some("lab"));
        let next = json!({ "name": "lab", "allow": ["api.example:443"] });
        let expected = format!(
            "api.example:443 was not reached: denied: the preset `none` reaches nothing. If the operator allows it, \
             call sandbox_network {next}, then run it again."
        );
        assert_eq!(told[0], expected);
        assert!(told[1].starts_with("2 more targets"), "{told:?}");
        assert!(warnings(&network, None)[0].contains("call again with"));
    }

    #[test]
    fn every_target_that_is_named_is_a_rule() {
        for (event, expected) in [
            (event(Some("a.example"), None, 53, Protocol::Udp), "a.example"),
            (event(None, Some("192.0.2.1"), 80, Protocol::Tcp), "192.0.2.1:80"),
            (event(None, Some("2606:4700::1"), 80, Protocol::Tcp), "[2606:4700::1]:80"),
            (event(None, Some("192.0.2.1"), 123, Protocol::Udp), "udp@192.0.2.1:123"),
        ] {
            let named = target(&event).unwrap();
            assert_eq!(named, expected);
            assert!(named.parse::<Rule>().is_ok(), "{named}");
        }
        assert_eq!(target(&event(None, None, 0, Protocol::Tcp)), None);
    }
}
