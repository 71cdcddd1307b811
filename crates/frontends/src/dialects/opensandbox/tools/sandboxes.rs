//! `sandbox_connect`, `sandbox_kill`, `sandbox_get_info`, `sandbox_list`, `sandbox_renew`, `sandbox_healthcheck`.

use std::{collections::BTreeMap, time::Duration};

use engine::{Force, SandboxFilter, SandboxView};
use sandbox::{Error, ErrorKind, Label, Lifetime, SandboxState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    create::lifetime,
    info::{SandboxInfo, words_of},
    target::{Target, namespace},
    words,
};
use crate::mcp::{Answer, Call, Failure, ToolResult};

const DEFAULT_PAGE_SIZE: usize = 20;
const MAX_PAGE_SIZE: usize = 200;
const MAX_CONNECT_TIME: Duration = Duration::from_secs(600);

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Which {
    sandbox_id: String,
}

/// What every tool that acts inside a sandbox takes.
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
    let (engine, who, which) = (call.engine(), &call.who, &target.which);
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
    page: Option<usize>,
    #[schemars(range(min = 1, max = 200))]
    page_size: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Listed {
    sandbox_infos: Vec<SandboxInfo>,
    pagination: Pagination,
}

#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct Pagination {
    page: usize,
    page_size: usize,
    total_items: usize,
    total_pages: usize,
    has_next_page: bool,
}

pub(super) async fn list(call: Call, arguments: ListArguments) -> ToolResult<Listed> {
    call.progress.tell(0.1, Some(1.0), "Listing sandboxes").await;
    let filter = arguments.filter.unwrap_or_default();
    let asked = SandboxFilter {
        namespace: Some(namespace(&call)),
        states: states(filter.states.as_deref().unwrap_or_default())?,
        labels: labels(filter.metadata.as_ref())?,
        name_contains: None,
    };
    let mut views = call.engine().sandboxes(&call.who, &asked).await.map_err(words::failure)?;
    views.sort_by(|one, other| (other.created_at, &other.id).cmp(&(one.created_at, &one.id)));
    let page_size = filter.page_size.unwrap_or(DEFAULT_PAGE_SIZE).clamp(1, MAX_PAGE_SIZE);
    let pagination = Pagination::of(filter.page.unwrap_or(1).max(1), page_size, views.len());
    let skipped = (pagination.page - 1).saturating_mul(page_size);
    let sandbox_infos = views.iter().skip(skipped).take(page_size).map(SandboxInfo::of).collect();
    call.progress.tell(1.0, Some(1.0), "Done").await;
    Ok(Answer::new(Listed { sandbox_infos, pagination }))
}

impl Pagination {
    fn of(page: usize, page_size: usize, total_items: usize) -> Self {
        let total_pages = total_items.div_ceil(page_size);
        Self { page, page_size, total_items, total_pages, has_next_page: page < total_pages }
    }
}

/// Their words for states, in any case.
fn states(names: &[String]) -> Result<Vec<SandboxState>, Failure> {
    let known = || SandboxState::ALL.into_iter().map(|state| (words_of(state).0, state));
    let state_of = |name: &String| {
        let found = known().find(|(word, _)| word.eq_ignore_ascii_case(name));
        found.map(|(_, state)| state).ok_or_else(|| {
            let shown: String = name.chars().take(64).collect();
            let words: Vec<_> = known().map(|(word, _)| word).collect();
            Failure::invalid(format!("filter.states: {shown:?} is not a state"))
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
    let ttl = lifetime(arguments.timeout_seconds)?;
    let target = Target::find(&call, &arguments.sandbox_id).await?;
    let lifetime = Lifetime { ttl: Some(ttl), ..target.view.lifetime };
    let renewed = call.engine().renew_sandbox(&call.who, &target.which, lifetime).await;
    let view = renewed.map_err(words::failure)?;
    let expires_at = view.expires_at.ok_or_else(|| {
        let message = format!("sandbox {} does not run, so its time does not either", view.id);
        words::failure(
            Error::new(ErrorKind::WrongState, message).with_next(sandbox::Next::Start(arguments.sandbox_id)),
        )
    })?;
    Ok(Answer::new(Renewed { expires_at: expires_at.to_string() }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted() {
        let page = |page, size, total| {
            let made = Pagination::of(page, size, total);
            (made.total_pages, made.has_next_page)
        };
        assert_eq!(page(1, 20, 0), (0, false));
        assert_eq!(page(1, 20, 20), (1, false));
        assert_eq!(page(1, 20, 21), (2, true));
        assert_eq!(page(2, 20, 21), (2, false));
        assert_eq!(page(usize::MAX, 1, 3), (3, false));
    }

    #[test]
    fn states_are_known_in_any_case_and_others_refused() {
        let named = |name: &str| states(&[name.to_owned()]);
        assert_eq!(named("running").unwrap(), [SandboxState::Running]);
        assert_eq!(named("Terminated").unwrap(), [SandboxState::Stopped]);
        assert!(named("sleepy").unwrap_err().hint.unwrap().contains("Paused"));
    }
}
