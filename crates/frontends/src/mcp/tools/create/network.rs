//! The network of a new sandbox, as callers ask for it.

use sandbox::{
    NetworkSpec, Preset,
    network::{DnsSpec, MAX_CONNECTIONS, NetworkLimitsSpec, RuleSpec},
};

use super::{
    fields::{Dns, Network, Tls},
    net_rule,
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
        ("network.tls", network.tls.as_ref().is_some_and(asks_to_intercept)),
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
    let (asked, mut rules) = asked(network)?;
    let preset = match (network.disabled, asked) {
        (Some(true), Some(preset)) if preset != Preset::None => {
            let message = format!("network.disabled and network.preset {preset} contradict each other");
            return Err(Failure::invalid(message).with_hint("Give one of them."));
        }
        (Some(true), _) => Some(Preset::None),
        (_, preset) => preset,
    };
    // The rules that a profile adds come last, as the profile itself does.
    rules.splice(0..0, net_rule::rules(network.rules.as_deref().unwrap_or_default())?);
    let asks_for_ports = network.ports.as_ref().is_some_and(|ports| !ports.is_empty());
    if preset.is_none() && network.allow.is_none() && rules.is_empty() && !asks_for_ports {
        warnings.push(
            "It reaches package indexes only; network.preset and network.allow ask for more.".to_owned(),
        );
    }
    let connections = network.max_connections.map(check_connections).transpose()?;
    let query_timeout_ms = dns.and_then(|dns| dns.query_timeout_ms);
    Ok(NetworkSpec {
        preset,
        allow: network.allow.clone().unwrap_or_default(),
        deny: network.deny.clone().unwrap_or_default(),
        rules,
        dns: DnsSpec { nameservers: nameservers(dns)?, query_timeout_ms, ..DnsSpec::default() },
        limits: NetworkLimitsSpec { connections, ..NetworkLimitsSpec::default() },
    })
}

/// The number that is meant, if it can be one of connections at all; the plan knows how many there may be.
fn check_connections(most: u64) -> Result<u32, Failure> {
    u32::try_from(most).ok().filter(|most| (1..=MAX_CONNECTIONS).contains(most)).ok_or_else(|| {
        Failure::invalid(format!("network.maxConnections: {most} is not between 1 and {MAX_CONNECTIONS}"))
            .with_hint("Omit it for the usual limit.")
    })
}

/// Returns the preset for what is reached without a rule, in our words or in microsandbox's, and the rules that theirs
/// stand for.
fn asked(network: &Network) -> Result<(Option<Preset>, Vec<RuleSpec>), Failure> {
    match (network.preset, &network.policy) {
        (Some(_), Some(_)) => Err(Failure::invalid("network.preset and network.policy say the same thing")
            .with_hint("Give one of them.")),
        (preset, None) => Ok((preset, Vec::new())),
        (None, Some(profile)) => {
            let (preset, rules) = net_rule::profile(profile)?;
            Ok((Some(preset), rules))
        }
    }
}

/// Whether TLS shall be opened. QUIC is always blocked, unless a rule allows UDP.
fn asks_to_intercept(tls: &Tls) -> bool {
    let Tls {
        ports,
        bypass_domains,
        block_quic,
        ca_cert_path,
        ca_key_path,
        upstream_ca_cert_paths,
        trust_host_cas,
    } = tls;
    ports.is_some()
        || bypass_domains.is_some()
        || *block_quic == Some(false)
        || ca_cert_path.is_some()
        || ca_key_path.is_some()
        || upstream_ca_cert_paths.is_some()
        || *trust_host_cas == Some(true)
}

fn nameservers(dns: Option<&Dns>) -> Result<Vec<std::net::IpAddr>, Failure> {
    let texts = dns.and_then(|dns| dns.nameservers.as_deref()).unwrap_or_default();
    let parse = |text: &String| {
        let shown: String = text.chars().take(64).collect();
        // microsandbox also takes a port, which is 53 in all but experiments.
        let address = text.strip_suffix(":53").filter(|rest| !rest.contains(':')).unwrap_or(text);
        address.parse().map_err(|_not_one| {
            Failure::invalid(format!("network.dns.nameservers: {shown:?} is not an IP address"))
                .with_hint("Give addresses without a port; servers are asked at port 53.")
        })
    };
    texts.iter().map(parse).collect()
}
