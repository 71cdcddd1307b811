//! Hands the values of a sandbox's secrets to the network that puts them in, and takes them back.

use sandbox::{
    BackendNetwork, Capability, DnsName, Error, ErrorKind, HeldSecret, HeldSecrets, Next, Result, SecretName,
    SecretPlan, SecretRules, Subject, Thing,
};
use store::{OwnSecret, SandboxRecord, SandboxSecrets, SecretRecord};

use super::GivenSecrets;
use crate::{core::Core, error};

/// Before an instance is made: records what the sandbox has of its own, and has the network hold its secrets. Returns
/// the certificate for its programs to trust; none if it has no secrets.
pub(crate) async fn prepare(
    core: &Core,
    record: &SandboxRecord,
    given: Option<GivenSecrets>,
    label: &Subject,
) -> Result<Option<String>> {
    if record.plan.secrets.is_empty() {
        return Ok(None);
    }
    let network = network(core, record)?;
    let known = core.secrets_in(&record.namespace).await?;
    let before = match given {
        Some(given) => Before {
            secrets: given.of_source.map(|carried| carried.secrets),
            own: given.own,
            is_stored: false,
        },
        None => {
            let secrets = core.store.sandbox_secrets(record.id.clone()).await.map_err(error::from_store)?;
            let own = secrets.as_ref().map(|secrets| secrets.own.clone()).unwrap_or_default();
            Before { secrets, own, is_stored: true }
        }
    };
    let hosts = hosts_of(&record.plan.secrets, &known, &before.own)?;
    let covers = |secrets: &SandboxSecrets| hosts.iter().all(|host| secrets.hosts.contains(host));
    let secrets = match before.secrets {
        Some(secrets) if covers(&secrets) && before.is_stored => secrets,
        Some(secrets) if covers(&secrets) => store(core, record, secrets).await?,
        _ => {
            let made = network.make_authority(&hosts);
            let authority = made.map_err(|error| error::from_backend(error, label))?;
            store(core, record, SandboxSecrets { authority, hosts, own: before.own }).await?
        }
    };
    let certificate = secrets.authority.certificate.clone();
    network.hold_secrets(&record.id, Some(held(&record.plan.secrets, &known, secrets)));
    let used = record.plan.secrets.iter().filter(|plan| !plan.is_own).map(|plan| plan.name.clone()).collect();
    let touched = core.store.touch_secrets(record.namespace.clone(), used, core.clock.now()).await;
    if let Err(error) = touched {
        tracing::warn!(sandbox = %record.id, %error, "could not record when its secrets were used");
    }
    Ok(Some(certificate))
}

/// The secrets that a sandbox had before its instance is made.
struct Before {
    secrets: Option<SandboxSecrets>,
    own: Vec<OwnSecret>,
    is_stored: bool,
}

async fn store(core: &Core, record: &SandboxRecord, secrets: SandboxSecrets) -> Result<SandboxSecrets> {
    let written = core.store.set_sandbox_secrets(record.id.clone(), secrets.clone()).await;
    written.map_err(error::from_store)?;
    Ok(secrets)
}

/// For a sandbox that lives: has the network hold its secrets as they are now. A secret that is gone is left out.
async fn hold(core: &Core, record: &SandboxRecord) -> Result<()> {
    if record.plan.secrets.is_empty() {
        return Ok(());
    }
    let network = network(core, record)?;
    let known = core.secrets_in(&record.namespace).await?;
    let secrets = core.store.sandbox_secrets(record.id.clone()).await.map_err(error::from_store)?;
    let held = secrets.map(|secrets| held(&record.plan.secrets, &known, secrets));
    network.hold_secrets(&record.id, held);
    Ok(())
}

/// Like [`hold`]. If the secrets cannot be read, the network holds none: an earlier value may have been withdrawn.
pub(crate) async fn hold_changed(core: &Core, record: &SandboxRecord) {
    if let Err(error) = hold(core, record).await {
        release(core, record);
        let error: &dyn std::error::Error = &error;
        tracing::error!(sandbox = %record.id, error, "its secrets cannot be read; it has none until its next start");
    }
}

/// The sandbox ended, or could not be made.
pub(crate) fn release(core: &Core, record: &SandboxRecord) {
    if !record.plan.secrets.is_empty()
        && let Ok(network) = network(core, record)
    {
        network.hold_secrets(&record.id, None);
    }
}

fn network<'a>(core: &'a Core, record: &SandboxRecord) -> Result<&'a dyn BackendNetwork> {
    let backend = core.backends.of(&record.plan).ok();
    let network = backend.and_then(|backend| backend.network());
    network.ok_or_else(|| core.backends.lacks(record.plan.backend, Capability::Network))
}

/// Each host of the secrets once. Nothing starts without one of its secrets.
fn hosts_of(plans: &[SecretPlan], known: &[SecretRecord], own: &[OwnSecret]) -> Result<Vec<DnsName>> {
    let mut hosts = Vec::new();
    for plan in plans {
        let (rules, _) = find(plan, known, own).ok_or_else(|| gone(&plan.name))?;
        hosts.extend(rules.hosts.iter().cloned());
    }
    hosts.sort();
    hosts.dedup();
    Ok(hosts)
}

fn find<'a>(
    plan: &SecretPlan,
    known: &'a [SecretRecord],
    own: &'a [OwnSecret],
) -> Option<(&'a SecretRules, &'a sandbox::SecretValue)> {
    match plan.is_own {
        true => own.iter().find(|own| own.name == plan.name).map(|own| (&own.rules, &own.value)),
        false => known.iter().find(|known| known.name == plan.name).map(|known| (&known.rules, &known.value)),
    }
}

fn held(plans: &[SecretPlan], known: &[SecretRecord], secrets: SandboxSecrets) -> HeldSecrets {
    let SandboxSecrets { authority, hosts, own } = secrets;
    let found = plans.iter().filter_map(|plan| {
        let (rules, value) = find(plan, known, &own)?;
        let mut rules = rules.clone();
        // Programs inside do not trust the authority for other hosts: those follow with the next start.
        rules.hosts.retain(|host| hosts.contains(host));
        let (name, placeholder, value) = (plan.name.clone(), plan.placeholder.clone(), value.clone());
        (!rules.hosts.is_empty()).then_some(HeldSecret { name, placeholder, value, rules })
    });
    HeldSecrets { secrets: found.collect(), authority }
}

fn gone(name: &SecretName) -> Error {
    let next = Next::SetSecret { name: name.to_string(), host: None };
    Error::new(ErrorKind::NotFound, format!("its secret {name} was removed"))
        .about(Thing::Secret, name.as_str())
        .with_next(next)
}
