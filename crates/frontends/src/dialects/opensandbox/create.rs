//! How a sandbox is made, whichever interface asks for it.

use std::{collections::BTreeMap, time::Duration};

use engine::{
    CreateRequest, Engine, Force, Principal, Progress, PullOptions, Reference, SandboxRef, SandboxView,
};
use sandbox::{
    Error, ErrorKind, ImageRef, InitSpec, Lifetime, Namespace, Next, OnExpiry, Result, SandboxSpec, Thing,
};
use serde::Serialize;

use super::{egress::NetworkPolicy, handle::SandboxHandle, resources, view};
use crate::{
    dialects::python,
    images::{Registry, reference},
};

/// The image with interpreters stands for the programs of this machine, which has them or not.
const INTERPRETERS: &str = "opensandbox/code-interpreter";
/// Programs that only the image above has. They start a server that code does not need here.
const OF_INTERPRETERS: &str = "/opt/";
/// Longest lifetime: a year is as good as none.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Longest value of a label.
const MAX_STORED_BYTES: usize = 1024;

/// A sandbox as clients ask for it.
#[derive(Debug, Default)]
pub(super) struct SandboxRequest {
    /// Absent: the host's programs, or what a snapshot has.
    pub(super) image: Option<String>,
    pub(super) registry: Registry,
    pub(super) entrypoint: Option<Vec<String>>,
    /// Absent: it stays until it is deleted.
    pub(super) ttl: Option<Duration>,
    pub(super) resources: BTreeMap<String, String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) extensions: BTreeMap<String, String>,
    pub(super) network_policy: Option<NetworkPolicy>,
}

/// A sandbox to create, and how to get its image.
#[derive(Debug)]
pub(super) struct Creation {
    pub(super) spec: SandboxSpec,
    /// Present: the registry wants to know who asks. Credentials belong into no record.
    pub(super) pull: Option<(Reference, PullOptions)>,
}

impl SandboxRequest {
    pub(super) fn creation(self, namespace: Namespace) -> Result<Creation> {
        view::check_keys(self.metadata.keys())?;
        let network = self.network_policy.as_ref().map(NetworkPolicy::spec).transpose()?;
        if self.extensions.contains_key("poolRef") {
            let message = "extensions.poolRef: there are no pools here";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("Omit it: a sandbox takes milliseconds to create."));
        }
        let mut labels = self.metadata;
        let is_stand_in = self.image.as_deref().is_some_and(stands_in);
        let image = match self.image {
            Some(image) if is_stand_in => {
                labels.insert(view::IMAGE.to_owned(), image);
                ImageRef::host()
            }
            Some(image) => image.parse()?,
            None => ImageRef::host(),
        };
        let entrypoint = self.entrypoint.unwrap_or_default();
        let init = init(&entrypoint, is_stand_in);
        if init.is_none() && !entrypoint.is_empty() {
            labels.insert(view::ENTRYPOINT.to_owned(), stored("entrypoint", &entrypoint)?);
        }
        if !self.extensions.is_empty() {
            labels.insert(view::EXTENSIONS.to_owned(), stored("extensions", &self.extensions)?);
        }
        let pull = match self.registry == Registry::default() || image.is_host() {
            true => None,
            false => Some((reference(image.as_str())?, self.registry.options()?)),
        };
        let spec = SandboxSpec {
            namespace,
            image,
            init,
            limits: resources::limits(&self.resources)?,
            env: self.env,
            labels,
            network: network.unwrap_or_default(),
            lifetime: Lifetime {
                ttl: self.ttl.map(lifetime).transpose()?,
                idle: None,
                on_expiry: OnExpiry::Remove,
            },
            ..SandboxSpec::default()
        };
        Ok(Creation { spec, pull })
    }
}

impl Creation {
    /// In a task of its own, which removes a sandbox that nobody waits for any more: no client would know its id.
    pub(super) async fn make(self, engine: &Engine, who: &Principal) -> Result<SandboxView> {
        let (done, waiting) = tokio::sync::oneshot::channel();
        let (engine, who) = (engine.clone(), who.clone());
        tokio::spawn(async move {
            let made = self.pull_and_create(&engine, &who).await;
            if let Err(Ok(unwanted)) = done.send(made) {
                let which = SandboxRef::from(&unwanted.id);
                // A key that was revoked can do nothing any more, but what it left must go.
                let ender = Principal { key: None, session: None, ..who };
                if let Err(error) = engine.remove_sandbox(&ender, &which, Force::Yes).await {
                    tracing::warn!(%which, error = &error as &dyn std::error::Error, "not removed");
                }
            }
        });
        waiting.await.unwrap_or_else(|_lost| {
            Err(Error::new(ErrorKind::Internal, "creating the sandbox stopped unexpectedly"))
        })
    }

    async fn pull_and_create(self, engine: &Engine, who: &Principal) -> Result<SandboxView> {
        if let Some((reference, options)) = self.pull
            && engine.image(who, &reference.to_string()).await.is_err()
        {
            engine.pull_image(who, &reference, options, Progress::none()).await?;
        }
        let is_stand_in = self.spec.labels.contains_key(view::IMAGE);
        let made = engine.create_sandbox(who, CreateRequest::of_agent(self.spec)).await?;
        if is_stand_in {
            python::add(engine, who, &SandboxRef::from(&made.id)).await;
        }
        Ok(made)
    }
}

/// Sets when a sandbox expires: `ttl` from now.
pub(super) async fn renew(sandbox: SandboxHandle<'_>, ttl: Duration) -> Result<SandboxView> {
    sandbox.who.may_change()?;
    let (ttl, view) = (lifetime(ttl)?, sandbox.view().await?);
    if view.expires_at.is_none() {
        let id = view.id.as_str();
        let (message, next) = match view.lifetime.ttl {
            Some(_) => (
                format!("sandbox {id} does not run, so its time does not either"),
                Some(Next::Start(id.into())),
            ),
            None => (format!("sandbox {id} has no expiry that could be renewed"), None),
        };
        return Err(Error::new(ErrorKind::WrongState, message).about(Thing::Sandbox, id).with_next(next));
    }
    let lifetime = Lifetime { ttl: Some(ttl), ..view.lifetime };
    sandbox.engine.renew_sandbox(sandbox.who, sandbox.which, lifetime).await
}

fn lifetime(span: Duration) -> Result<Duration> {
    if (Duration::from_secs(1)..=MAX_LIFETIME).contains(&span) {
        return Ok(span);
    }
    Err(Error::invalid(format!("a lifetime of {} seconds is out of bounds", span.as_secs_f64()))
        .with_hint(format!("Give 1 to {} seconds.", MAX_LIFETIME.as_secs())))
}

fn stands_in(image: &str) -> bool {
    let name = image.split([':', '@']).next().unwrap_or(image);
    name.strip_prefix("docker.io/").unwrap_or(name) == INTERPRETERS
}

/// The program beside the others; none where it would do nothing.
fn init(entrypoint: &[String], is_stand_in: bool) -> Option<InitSpec> {
    let (path, args) = entrypoint.split_first()?;
    let is_missing = is_stand_in && path.starts_with(OF_INTERPRETERS);
    (entrypoint != view::DEFAULT_ENTRYPOINT && !is_missing).then(|| InitSpec {
        path: path.clone(),
        args: args.to_vec(),
        env: BTreeMap::new(),
    })
}

/// Returns a value as JSON for a label, which has little room.
fn stored(field: &str, value: &impl Serialize) -> Result<String> {
    let text = serde_json::json!(value).to_string();
    if text.len() > MAX_STORED_BYTES {
        let message = format!("{field} has {} bytes as JSON; the limit is {MAX_STORED_BYTES}", text.len());
        return Err(Error::invalid(message));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(image: &str, entrypoint: &[&str]) -> Result<SandboxSpec> {
        let entrypoint = entrypoint.iter().map(|word| (*word).to_owned()).collect();
        let request = SandboxRequest {
            image: Some(image.to_owned()),
            entrypoint: Some(entrypoint),
            ..Default::default()
        };
        request.creation(Namespace::default()).map(|creation| creation.spec)
    }

    #[test]
    fn their_interpreters_are_this_machines() {
        let stand_in =
            spec("opensandbox/code-interpreter:v1.0.2", &["/opt/code-interpreter/code-interpreter.sh"])
                .unwrap();
        assert!(stand_in.image.is_host() && stand_in.init.is_none());
        assert_eq!(stand_in.labels[view::IMAGE], "opensandbox/code-interpreter:v1.0.2");
        assert!(spec("docker.io/opensandbox/code-interpreter", &["sleep"]).unwrap().init.is_some());
        let other = spec("evil/opensandbox/code-interpreter", &["/opt/x"]).unwrap();
        assert!(!other.image.is_host() && other.init.is_some());
        for wrong in ["", "/etc", "../x", "a b"] {
            assert_eq!(spec(wrong, &[]).unwrap_err().kind(), ErrorKind::InvalidRequest, "{wrong}");
        }
    }

    #[test]
    fn the_default_entry_point_stands_for_nothing() {
        assert!(spec("host", &view::DEFAULT_ENTRYPOINT).unwrap().init.is_none());
        assert!(spec("host", &[]).unwrap().init.is_none());
        assert_eq!(spec("host", &["sleep", "9"]).unwrap().init.unwrap().args, ["9"]);
    }

    #[test]
    fn lifetimes_have_bounds() {
        assert!(lifetime(Duration::from_millis(1500)).is_ok());
        for wrong in [Duration::ZERO, Duration::from_millis(500), MAX_LIFETIME * 2] {
            assert_eq!(lifetime(wrong).unwrap_err().kind(), ErrorKind::InvalidRequest, "{wrong:?}");
        }
    }
}
