//! Secrets of a new sandbox: the operator's by name, or values that came with the call.

use engine::{GivenSecrets, OwnSecret, SecretRef};
use sandbox::{
    Error, ErrorKind, Namespace, Next, Result, SecretName, SecretRules, SecretUse, SecretValue, Thing,
    secret_place,
};

use super::fields::{OnViolation, Secret, SecretFields};
use crate::mcp::Call;

/// Headers in which a value that came with the call may go.
const HEADERS: [&str; 2] = ["authorization", "x-api-key"];

/// The secrets that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    pub(super) uses: Vec<SecretUse>,
    pub(super) own: Vec<OwnSecret>,
    /// Hosts that the operator's secrets must be for.
    bound: Vec<Bound>,
}

#[derive(Debug)]
struct Bound {
    place: String,
    name: SecretName,
    host: String,
}

pub(super) fn plan(asked: Vec<Secret>) -> Result<Secrets> {
    let mut secrets = Secrets::default();
    for (index, asked) in asked.into_iter().enumerate() {
        let place = secret_place(index);
        secrets.add(&place, asked).map_err(|error| error.reworded(|words| format!("{place}: {words}")))?;
    }
    Ok(secrets)
}

impl Secrets {
    fn add(&mut self, place: &str, asked: Secret) -> Result<()> {
        let fields = match asked {
            Secret::Name(text) => {
                self.uses.push(text.parse()?);
                return Ok(());
            }
            Secret::Fields(fields) => fields,
        };
        if fields.on_violation == Some(OnViolation::BlockAndTerminate) {
            let message = "onViolation block-and-terminate is not supported in this version";
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint(
                "Omit it: a value that may not go somewhere never leaves, and the attempt is logged.",
            ));
        }
        let SecretFields { name, env, env_var, value, value_env, allowed_host, .. } = fields;
        let env = env_var.or(env).map(|env| env.parse()).transpose()?;
        if let Some(value) = value {
            let name: SecretName = env.ok_or_else(|| missing("envVar"))?;
            let host = allowed_host.ok_or_else(|| missing("allowedHost"))?;
            let hosts = vec![host.parse().map_err(|error| Error::invalid(format!("allowedHost: {error}")))?];
            let headers = HEADERS.map(ToOwned::to_owned).to_vec();
            let rules = SecretRules { hosts, headers, ..SecretRules::default() };
            self.own.push(OwnSecret { name, value: SecretValue::new(value.0)?, rules });
            return Ok(());
        }
        let name: SecretName = value_env.or(name).ok_or_else(|| missing("name"))?.parse()?;
        if let Some(host) = allowed_host {
            self.bound.push(Bound { place: place.to_owned(), name: name.clone(), host });
        }
        self.uses.push(SecretUse { name, env });
        Ok(())
    }

    /// Refuses the operator's secrets that are not for the hosts that were asked for.
    pub(super) async fn check(&self, call: &Call, namespace: &Namespace) -> Result<()> {
        for Bound { place, name, host } in &self.bound {
            let which = SecretRef { namespace: Some(namespace.clone()), name: name.clone() };
            let is_for =
                |hosts: &[sandbox::DnsName]| hosts.iter().any(|one| one.as_str() == host.to_lowercase());
            let refused = match call.engine().secret(&call.who, &which).await {
                Ok(view) if is_for(&view.rules.hosts) => continue,
                Ok(_) => {
                    Error::new(ErrorKind::Denied, format!("{place}: the secret {name} is not for {host}"))
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Error::not_found(format!("{place}: there is no secret {name} for {host}"))
                }
                Err(error) => return Err(error),
            };
            let next = Next::SetSecret { name: name.to_string(), host: Some(host.clone()) };
            return Err(refused.about(Thing::Secret, name.as_str()).with_next(next));
        }
        Ok(())
    }

    pub(super) fn given(self) -> GivenSecrets {
        GivenSecrets::own(self.own)
    }
}

fn missing(field: &str) -> Error {
    Error::invalid(format!("{field} is missing"))
        .with_hint("Give the name of one of the operator's secrets; or envVar, value and allowedHost.")
}
