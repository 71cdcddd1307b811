//! The tools for sandboxes that exist: `sandbox_…`.

use std::{collections::BTreeMap, time::Duration};

use engine::{Force, SandboxFilter, SandboxView};
use sandbox::{Error, ErrorKind, Label, SandboxState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    create::seconds,
    info::SandboxInfo,
    target::{Target, namespace},
    words,
};
use crate::{
    dialects::opensandbox::{
        create, endpoint,
        handle::{SandboxHandle, shown},
        metrics::{MEASURED_OVER, Reading, measure},
        page::{Page, Pagination},
        view,
    },
    mcp::{Answer, Call, Failure, Nullable, ToolResult},
};

const MAX_CONNECT_TIME: Duration = Duration::from_secs(600);

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Which {
    sandbox_id: String,
}

/// The arguments that every tool acting inside a sandbox takes.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Inside {
    pub(super) sandbox_id: String,
    /// No effect
    #[serde(default)]
    #[expect(dead_code, reason = "accepted because their clients send it")]
    connect_if_missing: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Connected {
    pub(super) sandbox_id: String,
    pub(super) info: SandboxInfo,
}

impl Connected {
    pub(super) fn to(view: &SandboxView) -> Self {
        Self { sandbox_id: view.id.to_string(), info: SandboxInfo::of(view) }
    }
}

/// Says in one word that something was done.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Done {
    status: &'static str,
}

pub(super) fn done(status: &'static str) -> Answer<Done> {
    Answer::new(Done { status })
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ConnectArguments {
    sandbox_id: String,
    #[serde(default = "thirty")]
    #[schemars(range(min = 0))]
    connect_timeout_seconds: f64,
    /// No effect: nothing is polled.
    #[serde(default = "polling")]
    #[expect(dead_code, reason = "accepted because their clients send it")]
    health_check_polling_interval_ms: i64,
    #[serde(default)]
    skip_health_check: bool,
}

pub(super) fn thirty() -> f64 {
    30.0
}

pub(super) fn polling() -> i64 {
    200
}

pub(super) async fn connect(call: Call, arguments: ConnectArguments) -> ToolResult<Connected> {
    let target = Target::find(&call, &arguments.sandbox_id).await?;
    if arguments.skip_health_check {
        return Ok(Answer::new(Connected::to(&target.view)));
    }
    let patience = Duration::try_from_secs_f64(arguments.connect_timeout_seconds).unwrap_or(MAX_CONNECT_TIME);
    let view = call
        .cancelled
        .run_until_cancelled(usable(&call, &target, patience.min(MAX_CONNECT_TIME)))
        .await
        .ok_or_else(words::cancelled)?
        .map_err(words::failure)?;
    Ok(Answer::new(Connected::to(&view)))
}

/// Makes a sandbox run, whatever it does now.
async fn usable(call: &Call, target: &Target, patience: Duration) -> sandbox::Result<SandboxView> {
    let SandboxHandle { engine, who, which } = target.sandbox(call);
    engine.ensure_running(who, which).await?;
    match engine.sandbox(who, which).await?.state {
        SandboxState::Paused => engine.resume_sandbox(who, which).await,
        SandboxState::Failed => {
            let why = target.view.reason.as_deref().unwrap_or("no reason is known");
            let message = format!("sandbox {} has failed: {why}", target.view.id);
            Err(Error::new(ErrorKind::WrongState, message)
                .in_state(SandboxState::Failed)
                .with_next(sandbox::Next::Replace(target.view.id.to_string())))
        }
        _ => engine.wait_sandbox(who, which, SandboxState::Running, Some(patience)).await,
    }
}

pub(super) async fn kill(call: Call, Which { sandbox_id }: Which) -> ToolResult<Done> {
    let named = call.sandbox(&sandbox_id).map_err(words::failure)?;
    call.engine().remove_sandbox(&call.who, &named, Force::Yes).await.map_err(words::failure)?;
    Ok(done("killed"))
}

pub(super) async fn get_info(call: Call, Which { sandbox_id }: Which) -> ToolResult<SandboxInfo> {
    let target = Target::find(&call, &sandbox_id).await?;
    Ok(Answer::new(SandboxInfo::of(&target.view)))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListArguments {
    filter: Option<Filter>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Filter {
    /// Any of these
    states: Option<Vec<String>>,
    /// All of these
    metadata: Option<BTreeMap<String, String>>,
    #[schemars(range(min = 1))]
    page: Option<u64>,
    #[schemars(range(min = 1, max = 200))]
    page_size: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Listed {
    sandbox_infos: Vec<SandboxInfo>,
    pagination: Pagination,
}

pub(super) async fn list(call: Call, arguments: ListArguments) -> ToolResult<Listed> {
    call.progress.tell(0.1, Some(1.0), "Listing sandboxes").await;
    let filter = arguments.filter.unwrap_or_default();
    let page = Page::new(filter.page, filter.page_size).map_err(words::failure)?;
    let asked = SandboxFilter {
        namespace: Some(namespace(&call)),
        states: states(filter.states.as_deref().unwrap_or_default())?,
        labels: labels(filter.metadata.as_ref())?,
        name_contains: None,
    };
    let found = view::list(call.engine(), &call.who, &asked).await.map_err(words::failure)?;
    let (views, pagination) = page.cut(found);
    call.progress.tell(1.0, Some(1.0), "Done").await;
    Ok(Answer::new(Listed { sandbox_infos: views.iter().map(SandboxInfo::of).collect(), pagination }))
}

fn states(names: &[String]) -> Result<Vec<SandboxState>, Failure> {
    let state_of = |name: &String| {
        view::state_named(name).ok_or_else(|| {
            let words = SandboxState::ALL.map(view::state);
            Failure::invalid(format!("filter.states: {:?} is not a state", shown(name)))
                .with_hint(format!("The states are {}.", words.join(", ")))
        })
    };
    names.iter().map(state_of).collect()
}

fn labels(metadata: Option<&BTreeMap<String, String>>) -> Result<Vec<Label>, Failure> {
    let pairs = metadata.into_iter().flatten();
    pairs.map(|(key, value)| Label::new(key, value).map_err(|error| words::failure(error.into()))).collect()
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RenewArguments {
    sandbox_id: String,
    /// From now
    timeout_seconds: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Renewed {
    expires_at: String,
}

pub(super) async fn renew(call: Call, arguments: RenewArguments) -> ToolResult<Renewed> {
    let ttl = seconds(arguments.timeout_seconds)?;
    let target = Target::find(&call, &arguments.sandbox_id).await?;
    let view = create::renew(target.sandbox(&call), ttl).await.map_err(words::failure)?;
    let expires_at = view.expires_at.map(|at| at.to_string()).unwrap_or_default();
    Ok(Answer::new(Renewed { expires_at }))
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Health {
    sandbox_id: String,
    healthy: bool,
}

pub(super) async fn healthcheck(call: Call, arguments: Inside) -> ToolResult<Health> {
    let target = Target::find(&call, &arguments.sandbox_id).await?;
    let is_running = target.view.state == SandboxState::Running && !target.view.unreachable;
    // Asks the program inside.
    let healthy = is_running && call.engine().stat(&call.who, &target.which, "/", true).await.is_ok();
    Ok(Answer::new(Health { sandbox_id: arguments.sandbox_id, healthy }))
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Metrics {
    cpu_count: f64,
    /// Of cpu_count
    cpu_used_percentage: Nullable<f64>,
    memory_total_in_mib: f64,
    memory_used_in_mib: Nullable<f64>,
    /// Milliseconds since 1970
    timestamp: i64,
}

pub(super) async fn get_metrics(call: Call, arguments: Inside) -> ToolResult<Metrics> {
    let target = Target::find(&call, &arguments.sandbox_id).await?;
    let reading = match target.view.state {
        SandboxState::Running | SandboxState::Paused => {
            measure(target.sandbox(&call), MEASURED_OVER).await.map_err(words::failure)?
        }
        _ => Reading::idle(&target.view),
    };
    Ok(Answer::new(Metrics {
        cpu_count: reading.cpu_count,
        cpu_used_percentage: Nullable(reading.cpu_percent),
        memory_total_in_mib: reading.memory_total_mib,
        memory_used_in_mib: Nullable(reading.memory_used_mib),
        timestamp: reading.at_ms,
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct EndpointArguments {
    #[serde(flatten)]
    inside: Inside,
    #[schemars(range(min = 1, max = 65535))]
    port: u16,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Endpoint {
    /// Host, port and path, without a scheme
    endpoint: String,
    headers: BTreeMap<&'static str, String>,
    origin: (),
}

pub(super) async fn get_endpoint(call: Call, arguments: EndpointArguments) -> ToolResult<Endpoint> {
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let found = endpoint::Endpoint::of(&call.links(), &target.view.id, arguments.port, None);
    let endpoint::Endpoint { address, header } = found.map_err(words::failure)?;
    Ok(Answer::new(Endpoint { endpoint: address, headers: [header].into(), origin: () }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_known_in_any_case_and_others_refused() {
        let named = |name: &str| states(&[name.to_owned()]);
        assert_eq!(named("running").unwrap(), [SandboxState::Running]);
        assert_eq!(named("Terminated").unwrap(), [SandboxState::Stopped]);
        assert!(words::hint(named("sleepy").unwrap_err().error()).unwrap().contains("Paused"));
    }
}
