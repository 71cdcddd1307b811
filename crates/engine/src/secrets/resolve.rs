//! From the secrets that a request asks for to those that exist, each with a placeholder.

use std::fmt::Write as _;

use sandbox::{
    Error, Next, ResolvedSecret, Result, SandboxSpec, SecretName, SecretPlan, Thing, secret_place,
};
use store::{OwnSecret, SandboxRecord, SandboxSecrets};

use crate::{core::Core, error, names};

/// How every placeholder begins, so that a person who finds one knows what it is.
const PLACEHOLDER: &str = "wrn-secret-";

/// Secrets of a new sandbox beyond those that its spec names. No record has them.
#[derive(Debug, Clone, Default)]
pub struct GivenSecrets {
    /// Values that the caller sent: they belong to the new sandbox alone, each in the variable of its name.
    pub(crate) own: Vec<OwnSecret>,
    /// The secrets of a fork's source. The memory of the source's programs, and so of its files, knows the
    /// placeholders.
    pub(crate) of_source: Option<CarriedSecrets>,
}

#[derive(Debug, Clone)]
pub(crate) struct CarriedSecrets {
    plans: Vec<SecretPlan>,
    pub(crate) secrets: SandboxSecrets,
}

/// Returns the secrets that a fork takes over from its source.
pub(crate) async fn carried(core: &Core, of: &SandboxRecord) -> Result<GivenSecrets> {
    if of.plan.secrets.is_empty() {
        return Ok(GivenSecrets::default());
    }
    let secrets = core.store.sandbox_secrets(of.id.clone()).await.map_err(error::from_store)?;
    let of_source = secrets.map(|secrets| CarriedSecrets { plans: of.plan.secrets.clone(), secrets });
    let own = of_source.as_ref().map(|carried| carried.secrets.own.clone()).unwrap_or_default();
    Ok(GivenSecrets { own, of_source })
}

/// Finds the secrets of a new sandbox.
pub(crate) async fn resolve(
    core: &Core,
    spec: &SandboxSpec,
    given: &GivenSecrets,
) -> Result<Vec<ResolvedSecret>> {
    if spec.secrets.is_empty() && given.own.is_empty() {
        return Ok(Vec::new());
    }
    let known = core.secrets_in(&spec.namespace).await?;
    let mut found = Vec::with_capacity(spec.secrets.len() + given.own.len());
    for (index, asked) in spec.secrets.iter().enumerate() {
        let record = known.iter().find(|record| record.name == asked.name);
        let record = record.ok_or_else(|| missing(&secret_place(index), &asked.name))?;
        let plan = given.plan(&asked.name, asked.variable(), false)?;
        found.push(ResolvedSecret { place: secret_place(index), plan, hosts: record.rules.hosts.clone() });
    }
    for own in &given.own {
        let plan = given.plan(&own.name, &own.name, true)?;
        let place = format!("secrets.{}", own.name);
        found.push(ResolvedSecret { place, plan, hosts: own.rules.hosts.clone() });
    }
    Ok(found)
}

impl GivenSecrets {
    /// Values that came with a request.
    pub fn own(own: Vec<OwnSecret>) -> Self {
        Self { own, of_source: None }
    }

    /// With the placeholder of the fork's source, or a new one.
    fn plan(&self, name: &SecretName, env: &SecretName, is_own: bool) -> Result<SecretPlan> {
        let carried = self.of_source.iter().flat_map(|carried| &carried.plans);
        let mut carried =
            carried.filter(|plan| plan.env == *env && plan.name == *name && plan.is_own == is_own);
        let placeholder = match carried.next() {
            Some(plan) => plan.placeholder.clone(),
            None => new_placeholder()?,
        };
        Ok(SecretPlan { name: name.clone(), env: env.clone(), placeholder, is_own })
    }
}

fn new_placeholder() -> Result<String> {
    let random: [u8; 16] = names::random_bytes()?;
    let mut placeholder = PLACEHOLDER.to_owned();
    for byte in random {
        // Writing to a string cannot fail.
        write!(placeholder, "{byte:02x}").unwrap_or(());
    }
    Ok(placeholder)
}

fn missing(place: &str, name: &SecretName) -> Error {
    let next = Next::SetSecret { name: name.to_string(), host: None };
    Error::not_found(format!("{place}: there is no secret {name} in the namespace"))
        .about(Thing::Secret, name.as_str())
        .with_next(next)
}
