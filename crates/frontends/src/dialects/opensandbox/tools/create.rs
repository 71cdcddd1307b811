//! `sandbox_create`.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    sandboxes::{Connected, polling, thirty},
    target::namespace,
    words,
};
use crate::{
    dialects::opensandbox::{create::SandboxRequest, egress::NetworkPolicy, handle::shown},
    images::{Password, Registry},
    mcp::{Answer, Call, Failure, ToolResult},
};

/// The resources of a sandbox for which the caller asks none, as in OpenSandbox's SDK.
const DEFAULT_RESOURCES: [(&str, &str); 2] = [("cpu", "1"), ("memory", "2Gi")];

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
    /// cpu ("0.5", "500m"; default 1), memory ("512Mi"; default 2Gi), disk
    resource: Option<BTreeMap<String, String>>,
    network_policy: Option<NetworkPolicy>,
    extensions: Option<BTreeMap<String, String>>,
    /// Runs beside everything else
    entrypoint: Option<Vec<String>>,
}

fn ten_minutes() -> f64 {
    600.0
}

pub(super) async fn create(call: Call, arguments: Arguments) -> ToolResult<Connected> {
    call.progress.tell(0.1, Some(1.0), "Validating input").await;
    let ignored: Vec<_> = arguments.extensions.iter().flatten().map(|(key, _)| shown(key)).collect();
    let creation = request(arguments)?.creation(namespace(&call)).map_err(words::failure)?;
    call.progress.tell(0.3, Some(1.0), "Creating sandbox").await;
    let made = call.cancelled.run_until_cancelled(creation.make(call.engine(), &call.who)).await;
    let view = made.ok_or_else(words::cancelled)?.map_err(words::failure)?;
    call.progress.tell(0.8, Some(1.0), "Fetching sandbox info").await;
    let connected = Connected::to(&view);
    call.progress.tell(1.0, Some(1.0), "Done").await;
    let warning = (!ignored.is_empty())
        .then(|| format!("These extensions have no effect here: {}.", ignored.join(", ")));
    Ok(Answer::new(connected).warn_all(warning).warn_all(view.warnings))
}

fn request(arguments: Arguments) -> Result<SandboxRequest, Failure> {
    if arguments.auth_username.is_some() != arguments.auth_password.is_some() {
        return Err(Failure::invalid("auth_username and auth_password must be provided together")
            .with_hint("Give both, or neither."));
    }
    let defaults = DEFAULT_RESOURCES.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut resources = BTreeMap::from(defaults);
    resources.extend(arguments.resource.unwrap_or_default());
    Ok(SandboxRequest {
        image: Some(arguments.image),
        registry: Registry {
            username: arguments.auth_username,
            password: arguments.auth_password,
            ..Registry::default()
        },
        entrypoint: arguments.entrypoint,
        ttl: Some(seconds(arguments.timeout_seconds)?),
        resources,
        env: arguments.env.unwrap_or_default(),
        metadata: arguments.metadata.unwrap_or_default(),
        extensions: arguments.extensions.unwrap_or_default(),
        network_policy: arguments.network_policy,
    })
}

pub(super) fn seconds(number: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(number).map_err(|_no_span| {
        Failure::invalid(format!("timeout_seconds: {number} is not a lifetime"))
            .with_hint("Give a number of seconds.")
    })
}
