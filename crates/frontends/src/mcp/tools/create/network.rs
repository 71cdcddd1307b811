//! What a new sandbox shall reach on the network.

use sandbox::{
    NetworkSpec, Preset,
    network::{DnsSpec, NetworkLimitsSpec},
};

use super::{
    fields::{Dns, Network},
    prepare::refuse_if,
};
use crate::mcp::Failure;

/// Refuses what has no meaning here, and warns of what has another one.
pub(super) fn plan(network: Option<&Network>, warnings: &mut Vec<String>) -> Result<NetworkSpec, Failure> {
    let Some(network) = network else { return Ok(NetworkSpec::default()) };
    for (field, is_given) in [
        ("network.trustHostCas", network.trust_host_cas == Some(true)),
        ("network.ipv4Pool", network.ipv4_pool.is_some()),
        ("network.ipv6Pool", network.ipv6_pool.is_some()),
        ("network.tls", network.tls.is_some()),
    ] {
        refuse_if(
            field,
            is_given,
            "Omit it; traffic passes as it is, and addresses inside are the sandbox's own.",
        )?;
    }
    let dns = network.dns.as_ref();
    let rebinds = dns.is_some_and(|dns| dns.allow_rebind == Some(true));
    refuse_if("network.dns.allowRebind", rebinds, "Allow the private addresses by a rule instead.")?;
    if dns.is_some_and(|dns| dns.query_timeout_ms.is_some()) {
        warnings.push("network.dns.queryTimeoutMs has no effect here.".to_owned());
    }
    let preset = match (network.disabled, network.preset) {
        (Some(true), Some(preset)) if preset != Preset::None => {
            let message = format!("network.disabled and network.preset {preset} contradict each other");
            return Err(Failure::invalid(message).with_hint("Give one of them."));
        }
        (Some(true), _) => Some(Preset::None),
        (_, preset) => preset,
    };
    let asks_for_ports = network.ports.as_ref().is_some_and(|ports| !ports.is_empty());
    if preset.is_none() && network.allow.is_none() && !asks_for_ports {
        warnings.push(
            "It reaches package indexes only; network.preset and network.allow ask for more.".to_owned(),
        );
    }
    let connections = network.max_connections.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    Ok(NetworkSpec {
        preset,
        allow: network.allow.clone().unwrap_or_default(),
        deny: network.deny.clone().unwrap_or_default(),
        dns: DnsSpec { nameservers: nameservers(dns)?, ..DnsSpec::default() },
        limits: NetworkLimitsSpec { connections, ..NetworkLimitsSpec::default() },
        ..NetworkSpec::default()
    })
}

fn nameservers(dns: Option<&Dns>) -> Result<Vec<std::net::IpAddr>, Failure> {
    let texts = dns.and_then(|dns| dns.nameservers.as_deref()).unwrap_or_default();
    let parse = |text: &String| {
        let shown: String = text.chars().take(64).collect();
        text.parse().map_err(|_not_one| {
            Failure::invalid(format!("network.dns.nameservers: {shown:?} is not an IP address"))
        })
    };
    texts.iter().map(parse).collect()
}
