//! A caller who has logged in, and the sandbox that its login leads to.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use engine::{CallRecord, Engine, Force, Frontend, Principal, SandboxRef};
use sandbox::{Error, Lifetime, OnExpiry, Result, SandboxSpec};
use tokio::{sync::OnceCell, time::Instant};

use crate::{Settings, authority::Permissions, destination::Destination, limits::NEW_SANDBOX_IDLE};

/// Marks a sandbox that was made for a login.
const MADE_FOR: &str = "warren.ssh";

#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) engine: Engine,
    pub(crate) who: Principal,
    pub(crate) permissions: Permissions,
    /// The client program's name for itself.
    client: String,
    /// As the client wrote it.
    name: String,
    destination: Result<Destination>,
    new: Option<SandboxSpec>,
    /// The sandbox that was made for this login.
    made: OnceCell<SandboxRef>,
}

impl Login {
    pub(crate) fn new(
        engine: Engine,
        who: Principal,
        permissions: Permissions,
        settings: &Settings,
        name: &str,
        client: String,
    ) -> Arc<Self> {
        let destination = Destination::parse(name);
        let is_new =
            destination.as_ref().is_ok_and(|found| Some(&found.sandbox) == settings.new_name.as_ref());
        let new = is_new.then(|| {
            let asked = destination.as_ref().ok().and_then(|found| found.namespace.clone());
            SandboxSpec {
                namespace: asked.unwrap_or_else(|| who.home_namespace()),
                image: settings.new_image.clone(),
                labels: BTreeMap::from([(MADE_FOR.to_owned(), "login".to_owned())]),
                lifetime: Lifetime {
                    idle: Some(NEW_SANDBOX_IDLE),
                    on_expiry: OnExpiry::Remove,
                    ..Lifetime::default()
                },
                ..SandboxSpec::default()
            }
        });
        let (name, made) = (name.chars().take(128).collect(), OnceCell::new());
        Arc::new(Self { engine, who, permissions, client, name, destination, new, made })
    }

    /// The user inside that commands run as, if the login names one.
    pub(crate) fn user(&self) -> Option<&str> {
        self.destination.as_ref().ok()?.user.as_deref()
    }

    /// The sandbox, running: a stopped one is started, and one that is made for the login is made now.
    pub(crate) async fn running_sandbox(&self) -> Result<SandboxRef> {
        let destination = self.destination.as_ref().map_err(Error::clone)?;
        if let Some(spec) = &self.new {
            let make = || async {
                let view = self.engine.create_sandbox(&self.who, spec.clone()).await?;
                Ok(SandboxRef::from(view.id))
            };
            return self.made.get_or_try_init(make).await.cloned();
        }
        let which = destination.sandbox()?;
        // Whoever may only look may not start it either, and may look at one that runs.
        if self.who.may_change().is_ok() {
            self.engine.ensure_running(&self.who, &which).await?;
        }
        Ok(which)
    }

    /// Removes the sandbox that was made for this login.
    pub(crate) async fn leave(&self) {
        let Some(which) = self.made.get() else { return };
        // A key that was revoked meanwhile can do nothing any more, but what was made for it must go.
        let who = self.without_key();
        if let Err(error) = self.engine.remove_sandbox(&who, which, Force::Yes).await {
            tracing::warn!(sandbox = %which, error = &error as &dyn std::error::Error, "a sandbox outlives its login");
        }
    }

    /// The same caller, for what must be done after its key has ended.
    pub(crate) fn without_key(&self) -> Principal {
        Principal { key: None, ..self.who.clone() }
    }

    /// Records a call in the audit.
    pub(crate) async fn record(&self, action: impl Into<String>, since: Instant, outcome: Option<&Error>) {
        let namespace = self.destination.as_ref().ok().and_then(|found| found.namespace.clone());
        let sandbox = self.destination.as_ref().map_or(&self.name, |found| &found.sandbox);
        let (action, time): (String, _) = (action.into(), since.elapsed());
        // The first word is ours; what follows may be a caller's.
        let sort = action.split(' ').next().unwrap_or_default();
        self.engine.count_request(Frontend::Ssh, sort, outcome.map(|error| error.kind().as_str()), time);
        let record = CallRecord {
            sandbox: Some(sandbox.clone()),
            namespace,
            ..call(action, time, outcome, Some(&self.client))
        };
        self.engine.record_call(&self.who, record).await;
    }
}

/// One line of the audit.
pub(crate) fn call(
    action: String,
    duration: Duration,
    error: Option<&Error>,
    client: Option<&str>,
) -> CallRecord {
    CallRecord {
        frontend: Frontend::Ssh,
        action,
        sandbox: None,
        namespace: None,
        outcome: error.map_or(Ok(()), |error| Err(error.kind().as_str().to_owned())),
        duration,
        client: client.map(str::to_owned),
    }
}
