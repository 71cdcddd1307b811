//! The secrets of a sandbox: what its programs see in place of them, and when they are refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{SecretName, SecretUse};
use crate::{
    Base, Error, ErrorKind, MountSpec, NetworkPlan, Next, Result, SandboxSpec, is_beneath,
    network::{DnsName, Flow, Protocol, RuleRef, Surroundings},
};

/// Most secrets of one sandbox.
pub const MAX_SECRETS: usize = 32;
/// Where programs inside find the certificates that they trust, in a sandbox that has a secret.
pub const CA_BUNDLE: &str = "/run/warren/ca.pem";
/// The variables by which programs find it.
pub const CA_VARIABLES: [&str; 9] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
];
const TLS_PORT: u16 = 443;
/// Stands for whatever public address a host turns out to have.
const SOMEWHERE_PUBLIC: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 216, 34));

/// One secret of a sandbox, as its record has it. The value is nowhere in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretPlan {
    pub name: SecretName,
    /// The variable inside.
    pub env: SecretName,
    /// The content of the variable.
    pub placeholder: String,
    /// The caller gave its value with the request: it belongs to this sandbox alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", rename = "own")]
    pub is_own: bool,
}

/// A secret that was found for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedSecret {
    /// Its place in the request, for messages.
    pub place: String,
    pub plan: SecretPlan,
    pub hosts: Vec<DnsName>,
}

/// Refuses what can be seen without knowing the secrets.
pub(crate) fn check_uses(spec: &SandboxSpec) -> Result<()> {
    let asked = spec.secrets.iter().enumerate();
    check_variables(asked.map(|(index, asked)| (place(index), asked.variable())), spec)
}

/// The place of a secret in a request.
pub fn place(index: usize) -> String {
    format!("secrets[{index}]")
}

/// The secrets with what programs inside see of them.
pub(crate) fn decide_secrets(
    spec: &SandboxSpec,
    base: &Base,
    network: &NetworkPlan,
) -> Result<Vec<SecretPlan>> {
    let found = &base.secrets;
    if !found.is_empty() {
        check_mounts(spec)?;
    }
    check_variables(found.iter().map(|found| (found.place.clone(), &found.plan.env)), spec)?;
    for ResolvedSecret { place, plan, hosts } in found {
        for host in hosts {
            reaches(network, host).map_err(|by| {
                let SecretPlan { name, .. } = plan;
                let why = network.describe(&by);
                let message =
                    format!("{place}: {name} is for {host}, which the policy does not reach ({why})");
                Error::new(ErrorKind::InvalidRequest, message).with_next(Next::Allow(host.to_string()))
            })?;
        }
    }
    Ok(found.iter().map(|found| found.plan.clone()).collect())
}

/// The certificates must be the sandbox's own: whoever writes to a mount could have its programs trust others.
fn check_mounts(spec: &SandboxSpec) -> Result<()> {
    let (directory, _) = CA_BUNDLE.rsplit_once('/').unwrap_or_default();
    let touches = |mount: &&MountSpec| {
        is_beneath(directory, &mount.guest_path) || is_beneath(&mount.guest_path, directory)
    };
    match spec.mounts.iter().find(touches) {
        None => Ok(()),
        Some(mount) => {
            let message = format!("mount {}: secrets need {directory} for certificates", mount.guest_path);
            Err(Error::invalid(message).with_hint("Mount it elsewhere."))
        }
    }
}

fn check_variables<'a>(
    asked: impl Iterator<Item = (String, &'a SecretName)>,
    spec: &SandboxSpec,
) -> Result<()> {
    let mut taken: BTreeMap<&SecretName, String> = BTreeMap::new();
    for (place, variable) in asked {
        if taken.len() == MAX_SECRETS {
            return Err(Error::invalid(format!("secrets: the limit is {MAX_SECRETS}"))
                .with_hint("Ask only for the secrets that the sandbox needs."));
        }
        if let Some(before) = taken.get(variable) {
            return Err(Error::invalid(format!("{place}: {before} has the variable {variable} too"))
                .with_hint("Give one of them another variable."));
        }
        if spec.env.contains_key(variable.as_str()) {
            return Err(Error::invalid(format!("{place}: env sets the variable {variable} too"))
                .with_hint("Omit it from env, or give the secret another variable."));
        }
        taken.insert(variable, place);
    }
    Ok(())
}

/// Whether TLS to the host can pass, as far as the policy alone decides that.
fn reaches(network: &NetworkPlan, host: &DnsName) -> Result<(), RuleRef> {
    let resolved = network.decide_name(host);
    if resolved.is_denied() {
        return Err(*resolved.by());
    }
    let names = std::slice::from_ref(host);
    let flow = Flow { protocol: Protocol::Tcp, address: SOMEWHERE_PUBLIC, port: TLS_PORT, names };
    let verdict = network.decide(&flow, &Surroundings::default());
    if verdict.is_denied() { Err(*verdict.by()) } else { Ok(()) }
}

/// Adds the variables of the secrets, and those of the certificates unless the request sets them.
pub(crate) fn add_variables(env: &mut BTreeMap<String, String>, secrets: &[SecretPlan], spec: &SandboxSpec) {
    if secrets.is_empty() {
        return;
    }
    for variable in CA_VARIABLES.into_iter().filter(|variable| !spec.env.contains_key(*variable)) {
        env.insert(variable.to_owned(), CA_BUNDLE.to_owned());
    }
    let own = secrets.iter().map(|secret| (secret.env.to_string(), secret.placeholder.clone()));
    env.extend(own);
}

impl SecretUse {
    /// The variable inside.
    pub fn variable(&self) -> &SecretName {
        self.env.as_ref().unwrap_or(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BackendKind, Capabilities, Capability, Defaults, NetworkSpec, Policy, Preset, SandboxId, SandboxPlan,
        check_spec, plan,
    };

    fn found(name: &str, env: &str, host: &str) -> ResolvedSecret {
        let (name, env) = (name.parse().unwrap(), env.parse().unwrap());
        let plan = SecretPlan { name, env, placeholder: "wrn-secret-0".to_owned(), is_own: false };
        ResolvedSecret { place: place(0), plan, hosts: vec![host.parse().unwrap()] }
    }

    fn spec(secrets: &[&str], allow: &[&str]) -> SandboxSpec {
        let network = NetworkSpec {
            allow: allow.iter().map(|rule| (*rule).to_owned()).collect(),
            ..NetworkSpec::default()
        };
        let secrets = secrets.iter().map(|secret| secret.parse().unwrap()).collect();
        SandboxSpec { network, secrets, ..SandboxSpec::default() }
    }

    fn decide(
        spec: &SandboxSpec,
        secrets: Vec<ResolvedSecret>,
        ceilings: Vec<Policy>,
    ) -> Result<SandboxPlan> {
        let base = Base { secrets, ..Base::host() };
        let defaults = Defaults { ceilings, ..Defaults::default() };
        let able = [Capabilities::all(BackendKind::Namespace)];
        plan(&SandboxId::from_random([7; 8]), &"box".parse().unwrap(), spec, &defaults, &base, &able)
    }

    #[test]
    fn programs_see_the_placeholder_and_the_certificates() {
        let mut asked = spec(&["TOKEN=GH_TOKEN"], &["api.example.org:443"]);
        asked.env.insert("PIP_CERT".to_owned(), "/own.pem".to_owned());
        let plan = decide(&asked, vec![found("TOKEN", "GH_TOKEN", "api.example.org")], vec![]).unwrap();
        assert_eq!(plan.env["GH_TOKEN"], "wrn-secret-0");
        assert_eq!(
            (plan.env["SSL_CERT_FILE"].as_str(), plan.env["PIP_CERT"].as_str()),
            (CA_BUNDLE, "/own.pem")
        );
        assert_eq!(plan.secrets[0].name.as_str(), "TOKEN");
        let without = decide(&spec(&[], &[]), vec![], vec![]).unwrap();
        assert!(!without.env.contains_key("SSL_CERT_FILE") && without.secrets.is_empty());
    }

    #[test]
    fn a_host_out_of_reach_is_refused_with_the_rule_to_add() {
        let secret = || vec![found("TOKEN", "TOKEN", "api.example.org")];
        for allow in [&[][..], &["other.example.org"], &["api.example.org:80"], &["93.184.216.0/24"]] {
            let error = decide(&spec(&["TOKEN"], allow), secret(), vec![]).unwrap_err();
            assert!(error.to_string().starts_with("secrets[0]: TOKEN is for api.example.org"), "{error}");
            assert_eq!(error.next(), Some(&Next::Allow("api.example.org".to_owned())));
        }
        for allow in ["api.example.org", "*.example.org", "api.example.org:443", "public"] {
            decide(&spec(&["TOKEN"], &[allow]), secret(), vec![]).unwrap();
        }
        let mut public = spec(&["TOKEN"], &[]);
        public.network.preset = Some(Preset::Public);
        decide(&public, secret(), vec![]).unwrap();
        let ceiling =
            NetworkSpec { deny: vec!["api.example.org".to_owned()], ..NetworkSpec::preset(Preset::Public) };
        let error = decide(&public, secret(), vec![Policy::from_spec(&ceiling).unwrap()]).unwrap_err();
        assert!(error.to_string().starts_with("secrets[0]: "), "{error}");
    }

    #[test]
    fn nothing_is_mounted_where_the_certificates_are() {
        let secret = || vec![found("TOKEN", "TOKEN", "api.example.org")];
        let mounted = |path: &str| {
            let mount = serde_json::json!({ "kind": "tmpfs", "guestPath": path });
            let mounts = vec![serde_json::from_value(mount).unwrap()];
            SandboxSpec { mounts, ..spec(&["TOKEN"], &["api.example.org"]) }
        };
        for path in ["/run", "/run/warren", "/run/warren/ca.pem"] {
            let error = decide(&mounted(path), secret(), vec![]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("mount {path}: ")), "{error}");
            decide(&SandboxSpec { secrets: vec![], ..mounted(path) }, vec![], vec![]).unwrap();
        }
        decide(&mounted("/run/other"), secret(), vec![]).unwrap();
    }

    #[test]
    fn a_variable_is_set_once() {
        let able = [Capabilities::all(BackendKind::Namespace)];
        let refused = |spec: &SandboxSpec, words: &str| {
            let error = check_spec(spec, &Defaults::default(), &able).unwrap_err();
            assert_eq!(error.to_string(), words);
        };
        refused(&spec(&["A", "B=A"], &[]), "secrets[1]: secrets[0] has the variable A too");
        let mut asked = spec(&["B", "A=TOKEN"], &[]);
        asked.env.insert("TOKEN".to_owned(), "1".to_owned());
        refused(&asked, "secrets[1]: env sets the variable TOKEN too");
        let many: Vec<_> = (0..=MAX_SECRETS).map(|n| format!("A{n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        refused(&spec(&many, &[]), "secrets: the limit is 32");
    }

    #[test]
    fn a_secret_needs_a_back_end_with_a_network() {
        let has = Capability::ALL.into_iter().filter(|one| *one != Capability::Network).collect();
        let bare = [Capabilities { has, ..Capabilities::all(BackendKind::Oci) }];
        let error = check_spec(&spec(&["A"], &[]), &Defaults::default(), &bare).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
