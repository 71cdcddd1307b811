//! `sandbox_fork`.

use std::{collections::BTreeMap, time::Duration};

use engine::ForkSpec;
use sandbox::{Error, Lifetime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::waiting;
use crate::mcp::{Answer, Call, ToolResult, tools::select::Status};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ForkArguments {
    /// The sandbox to fork, running or stopped
    name: String,
    /// Number of forks; default 1
    #[schemars(range(min = 1, max = 256))]
    count: Option<usize>,
    /// One fork for each
    names: Option<Vec<String>>,
    /// With count: prefix-1, prefix-2, …
    name_prefix: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    /// Beside those of the source
    env: Option<BTreeMap<String, String>>,
    #[schemars(extend("x-full-only" = true))]
    labels: Option<BTreeMap<String, String>>,
    #[schemars(extend("x-full-only" = true))]
    /// Seconds until they expire; default as the source
    #[schemars(range(min = 1))]
    max_duration: Option<u64>,
    #[schemars(extend("x-full-only" = true))]
    /// Seconds without work until they expire
    #[schemars(range(min = 1))]
    idle_timeout: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Forked {
    /// The sandbox that was forked.
    name: String,
    forks: Vec<Fork>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Fork {
    name: String,
    id: String,
    status: Status,
}

pub(super) async fn fork(call: Call, arguments: ForkArguments) -> ToolResult<Forked> {
    let names = arguments.names.unwrap_or_default();
    let names = names.iter().map(|name| name.parse()).collect::<Result<_, _>>().map_err(Error::from)?;
    let lifetime = match (arguments.max_duration, arguments.idle_timeout) {
        (None, None) => None,
        (ttl, idle) => Some(Lifetime {
            ttl: ttl.map(Duration::from_secs),
            idle: idle.map(Duration::from_secs),
            ..Lifetime::default()
        }),
    };
    let spec = ForkSpec {
        names,
        count: arguments.count,
        name_prefix: arguments.name_prefix,
        env: arguments.env.unwrap_or_default(),
        labels: arguments.labels.unwrap_or_default(),
        limits: None,
        lifetime,
        by_agent: true,
    };
    let which = call.sandbox(&arguments.name)?;
    let made = waiting(&call, call.engine().fork_sandbox(&call.who, &which, spec)).await?;
    let forks = made.iter().map(|view| Fork {
        name: view.name.to_string(),
        id: view.id.to_string(),
        status: Status::of(view),
    });
    let warnings = made.first().map(|view| view.warnings.clone()).unwrap_or_default();
    Ok(Answer::new(Forked { name: arguments.name, forks: forks.collect() }).warn_all(warnings))
}
