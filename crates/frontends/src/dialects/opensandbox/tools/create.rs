//! `sandbox_create`.

use std::{collections::BTreeMap, time::Duration};

use engine::{Force, Progress, PullOptions, Reference, SandboxRef, SandboxView};
use sandbox::{
    ByteSize, CpuCount, Error, ErrorKind, ImageRef, InitSpec, Lifetime, Limits, OnExpiry, PullPolicy,
    SandboxSpec,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    info::DEFAULT_ENTRYPOINT,
    sandboxes::{Connected, polling, thirty},
    target::namespace,
    words,
};
use crate::{
    images::{Password, Registry, reference},
    mcp::{Answer, Call, Failure, ToolResult},
};

/// Longest lifetime: a year is as good as none.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Their image with interpreters; here those of the host are in its place.
const CODE_INTERPRETER: &str = "opensandbox/code-interpreter";
/// Keys that their server keeps for itself.
const RESERVED_METADATA: &str = "opensandbox.io/";
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(2);

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// OCI reference, or host: the programs of this machine
    image: String,
    auth_username: Option<String>,
    auth_password: Option<Password>,
    #[serde(default = "ten_minutes")]
    timeout_seconds: f64,
    /// No effect: it is ready when this returns. So for the next two.
    #[serde(default = "thirty")]
    #[expect(dead_code, reason = "accepted because their clients send it")]
    ready_timeout_seconds: f64,
    #[serde(default = "polling")]
    #[expect(dead_code, reason = "accepted because their clients send it")]
    health_check_polling_interval_ms: i64,
    #[serde(default)]
    #[expect(dead_code, reason = "accepted because their clients send it")]
    skip_health_check: bool,
    env: Option<BTreeMap<String, String>>,
    metadata: Option<BTreeMap<String, String>>,
    /// cpu ("0.5", "500m"; default 1), memory ("512Mi"; default 2Gi)
    resource: Option<BTreeMap<String, String>>,
    network_policy: Option<NetworkPolicy>,
    extensions: Option<BTreeMap<String, String>>,
    /// Runs beside everything else
    entrypoint: Option<Vec<String>>,
}

fn ten_minutes() -> f64 {
    600.0
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct NetworkPolicy {
    #[serde(rename = "defaultAction")]
    #[schemars(rename = "defaultAction")]
    default_action: Option<Action>,
    /// The same
    #[serde(rename = "default_action")]
    #[schemars(rename = "default_action")]
    default_action_too: Option<Action>,
    egress: Option<Vec<Rule>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    Allow,
    Deny,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Rule {
    action: Action,
    target: String,
}

/// What is made, and how its image is got.
#[derive(Debug)]
struct Wanted {
    spec: SandboxSpec,
    /// Present: the registry wants to know who asks.
    pull: Option<(Reference, PullOptions)>,
    warnings: Vec<String>,
}

pub(super) async fn create(call: Call, arguments: Arguments) -> ToolResult<Connected> {
    call.progress.tell(0.1, Some(1.0), "Validating input").await;
    let Wanted { spec, pull, warnings } = wanted(&call, arguments)?;
    call.progress.tell(0.3, Some(1.0), "Creating sandbox").await;
    let made = call.cancelled.run_until_cancelled(make(&call, spec, pull)).await;
    let view = made.ok_or_else(words::cancelled)?.map_err(words::failure)?;
    call.progress.tell(0.8, Some(1.0), "Fetching sandbox info").await;
    let connected = Connected::to(&view);
    call.progress.tell(1.0, Some(1.0), "Done").await;
    Ok(Answer::new(connected).warn_all(warnings).warn_all(view.warnings))
}

/// In a task of its own, which removes a sandbox that nobody waits for any more: no caller would know its id.
async fn make(
    call: &Call,
    mut spec: SandboxSpec,
    pull: Option<(Reference, PullOptions)>,
) -> sandbox::Result<SandboxView> {
    let (done, waiting) = tokio::sync::oneshot::channel();
    let call = call.clone();
    tokio::spawn(async move {
        let (engine, ender) = (call.engine().clone(), call.ender());
        let made = async {
            if let Some((reference, options)) = pull {
                engine.pull_image(&call.who, &reference, options, Progress::none()).await?;
                spec.pull = PullPolicy::Never;
            }
            engine.create_sandbox(&call.who, spec).await
        };
        if let Err(Ok(unwanted)) = done.send(made.await) {
            let which = SandboxRef::from(&unwanted.id);
            if let Err(error) = engine.remove_sandbox(&ender, &which, Force::Yes).await {
                tracing::warn!(%which, error = &error as &dyn std::error::Error, "not removed");
            }
        }
    });
    waiting.await.unwrap_or_else(|_lost| {
        Err(Error::new(ErrorKind::Internal, "creating the sandbox stopped unexpectedly"))
    })
}

fn wanted(call: &Call, arguments: Arguments) -> Result<Wanted, Failure> {
    if arguments.auth_username.is_some() != arguments.auth_password.is_some() {
        return Err(Failure::invalid("auth_username and auth_password must be provided together")
            .with_hint("Give both, or neither."));
    }
    refuse_openings(&arguments.network_policy.unwrap_or_default())?;
    let warnings = look_at_extensions(&arguments.extensions.unwrap_or_default())?;
    let labels = arguments.metadata.unwrap_or_default();
    if let Some(key) = labels.keys().find(|key| key.starts_with(RESERVED_METADATA)) {
        return Err(Failure::invalid(format!(
            "metadata {key:?}: keys with {RESERVED_METADATA} are reserved"
        ))
        .with_hint("Choose another key."));
    }
    let image = image(&arguments.image)?;
    let asking = Registry {
        username: arguments.auth_username,
        password: arguments.auth_password,
        ..Registry::default()
    };
    let pull = match asking == Registry::default() || image.is_host() {
        true => None,
        false => {
            let name = reference(image.as_str()).map_err(words::failure)?;
            Some((name, asking.options().map_err(words::failure)?))
        }
    };
    let spec = SandboxSpec {
        namespace: namespace(call),
        image,
        env: arguments.env.unwrap_or_default(),
        labels,
        limits: limits(&arguments.resource.unwrap_or_default())?,
        init: init(arguments.entrypoint.unwrap_or_default()),
        lifetime: Lifetime {
            ttl: Some(lifetime(arguments.timeout_seconds)?),
            idle: None,
            on_expiry: OnExpiry::Remove,
        },
        ..SandboxSpec::default()
    };
    Ok(Wanted { spec, pull, warnings })
}

/// Seconds as a span that can be kept.
pub(super) fn lifetime(seconds: f64) -> Result<Duration, Failure> {
    let span = Duration::try_from_secs_f64(seconds).ok();
    span.filter(|span| *span >= Duration::from_secs(1) && *span <= MAX_LIFETIME).ok_or_else(|| {
        Failure::invalid(format!("timeout_seconds: {seconds} is not a lifetime"))
            .with_hint(format!("Give 1 to {} seconds.", MAX_LIFETIME.as_secs()))
    })
}

fn image(text: &str) -> Result<ImageRef, Failure> {
    let name = text.rsplit_once('@').map_or(text, |(name, _)| name);
    if name.split(':').next() == Some(CODE_INTERPRETER) {
        return Ok(ImageRef::host());
    }
    text.parse().map_err(|error: sandbox::InvalidImage| words::failure(error.into()))
}

/// Nothing runs in place of their default, which only keeps a container alive.
fn init(entrypoint: Vec<String>) -> Option<InitSpec> {
    if entrypoint == DEFAULT_ENTRYPOINT {
        return None;
    }
    let mut words = entrypoint.into_iter();
    let path = words.next()?;
    Some(InitSpec { path, args: words.collect(), env: BTreeMap::new() })
}

fn limits(resource: &BTreeMap<String, String>) -> Result<Limits, Failure> {
    let mut limits =
        Limits { cpus: Some(CpuCount::whole(1)), memory: Some(DEFAULT_MEMORY), ..Limits::default() };
    for (name, text) in resource {
        match name.as_str() {
            "cpu" => limits.cpus = Some(cpus(text)?),
            "memory" => {
                limits.memory = Some(text.parse().map_err(|error: sandbox::InvalidSize| {
                    Failure::invalid(format!("resource.memory: {error}"))
                        .with_hint("Write it as 512Mi or 2Gi.")
                })?);
            }
            other => {
                let shown: String = other.chars().take(64).collect();
                let error =
                    Error::new(ErrorKind::Unsupported, format!("resource {shown:?} cannot be limited here"));
                return Err(words::failure(error.with_hint("Give cpu and memory only.")));
            }
        }
    }
    Ok(limits)
}

/// Whole processors or thousandths: "2", "0.5", "500m".
fn cpus(text: &str) -> Result<CpuCount, Failure> {
    let count = match text.trim().strip_suffix('m') {
        Some(thousandths) => thousandths.parse::<f64>().map(|number| number / 1000.0),
        None => text.trim().parse(),
    };
    count.ok().and_then(CpuCount::from_f64).ok_or_else(|| {
        let shown: String = text.chars().take(64).collect();
        Failure::invalid(format!("resource.cpu: {shown:?} is not a number of processors"))
            .with_hint("Write it as 1, 0.5 or 500m.")
    })
}

/// A policy that only denies is met: sandboxes have no network. One that opens something is not.
fn refuse_openings(policy: &NetworkPolicy) -> Result<(), Failure> {
    let is_open = [policy.default_action, policy.default_action_too].contains(&Some(Action::Allow));
    let allowed = policy.egress.iter().flatten().find(|rule| rule.action == Action::Allow);
    let asked = match (is_open, allowed) {
        (true, _) => "defaultAction allow".to_owned(),
        (false, Some(rule)) => format!("allow {:?}", rule.target.chars().take(128).collect::<String>()),
        (false, None) => return Ok(()),
    };
    let message = format!("network_policy: {asked} cannot be met, because sandboxes have no network");
    Err(words::failure(Error::new(ErrorKind::Unsupported, message).with_hint("Omit network_policy.")))
}

fn look_at_extensions(extensions: &BTreeMap<String, String>) -> Result<Vec<String>, Failure> {
    if extensions.contains_key("poolRef") {
        let error = Error::new(ErrorKind::Unsupported, "extensions.poolRef: there are no pools here");
        return Err(words::failure(error.with_hint("Omit it: a sandbox takes milliseconds to create.")));
    }
    let ignored: Vec<_> = extensions.keys().map(|key| key.chars().take(64).collect::<String>()).collect();
    Ok(match ignored.is_empty() {
        true => Vec::new(),
        false => vec![format!("These extensions have no effect here: {}.", ignored.join(", "))],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn map(value: Value) -> BTreeMap<String, String> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn resources_are_read_as_kubernetes_writes_them() {
        let given =
            |value| limits(&map(value)).map(|limits| (limits.cpus.unwrap().millis, limits.memory.unwrap()));
        assert_eq!(given(json!({})).unwrap(), (1000, ByteSize::gib(2)));
        assert_eq!(given(json!({ "cpu": "500m", "memory": "512Mi" })).unwrap(), (500, ByteSize::mib(512)));
        for wrong in [
            json!({ "cpu": "many" }),
            json!({ "cpu": "-1" }),
            json!({ "memory": "x" }),
            json!({ "gpu": "1" }),
        ] {
            assert!(given(wrong.clone()).unwrap_err().hint.is_some(), "{wrong}");
        }
    }

    #[test]
    fn policies_that_only_deny_are_met() {
        let policy = |value| refuse_openings(&serde_json::from_value(value).unwrap());
        for met in
            [json!({}), json!({ "defaultAction": "deny", "egress": [{ "action": "deny", "target": "a" }] })]
        {
            assert!(policy(met.clone()).is_ok(), "{met}");
        }
        for open in [
            json!({ "defaultAction": "allow" }),
            json!({ "default_action": "allow" }),
            json!({ "egress": [{ "action": "allow", "target": "example.org" }] }),
        ] {
            assert_eq!(policy(open.clone()).unwrap_err().code, "unsupported", "{open}");
        }
    }

    #[test]
    fn lifetimes_are_spans() {
        assert_eq!(lifetime(1.5).unwrap(), Duration::from_millis(1500));
        for wrong in [0.0, -1.0, 0.5, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(lifetime(wrong).unwrap_err().code, "invalid_request", "{wrong}");
        }
    }

    #[test]
    fn their_own_image_stands_for_the_host_and_the_default_entry_point_for_nothing() {
        for own in ["opensandbox/code-interpreter", "opensandbox/code-interpreter:v1.0.1"] {
            assert!(image(own).unwrap().is_host(), "{own}");
        }
        assert_eq!(image("python:3.12").unwrap().as_str(), "python:3.12");
        for wrong in ["", "/etc", "../x", "a b"] {
            assert_eq!(image(wrong).unwrap_err().code, "invalid_request", "{wrong}");
        }
        let words = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert!(init(words(&DEFAULT_ENTRYPOINT)).is_none() && init(vec![]).is_none());
        assert_eq!(init(words(&["sleep", "9"])).unwrap().args, ["9"]);
    }
}
