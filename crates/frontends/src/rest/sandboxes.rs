//! Sandboxes: made, looked at, moved through their life, removed.

use std::time::Duration;

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use engine::{Force, Principal, SandboxFilter, SandboxView};
use sandbox::{Error, Lifetime, Namespace, SandboxName, SandboxSpec, SandboxState, Usage};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, Caller, JsonBody, MAX_CREATE_BYTES, Params},
    patches, pulls,
    stream::Format,
    v1,
};
use crate::{
    http::{About, ApiError, ApiResult, HttpRequestId},
    images::Pulling,
};

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(inspect, change, remove))
        .routes(routes!(start))
        .routes(routes!(stop))
        .routes(routes!(restart))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(drain))
        .routes(routes!(renew))
        .routes(routes!(wait))
        .routes(routes!(usage))
        .routes(routes!(processes))
}

impl From<SandboxView> for v1::Sandbox {
    fn from(view: SandboxView) -> Self {
        Self {
            id: view.id,
            name: view.name,
            namespace: view.namespace,
            backend: view.plan.backend,
            image: view.plan.image,
            state: view.state,
            reason: view.reason,
            unreachable: view.unreachable,
            limits: view.plan.limits,
            env: view.plan.env,
            cwd: view.plan.cwd,
            user: view.plan.user,
            shell: view.plan.shell,
            entrypoint: view.plan.config.entrypoint,
            exposed_ports: view.plan.config.exposed_ports,
            cmd: view.plan.config.cmd,
            init: view.plan.init,
            rlimits: view.plan.rlimits,
            mounts: view.spec.mounts,
            network_preset: view.plan.network.own.preset,
            hostname: view.plan.hostname,
            labels: view.spec.labels,
            lifetime: view.lifetime,
            request_id: view.spec.request_id,
            isolation: view.isolation,
            created_at: view.created_at,
            started_at: view.started_at,
            stopped_at: view.stopped_at,
            expires_at: view.expires_at,
            last_active_at: view.last_active_at,
            owner: view.owner,
            idle_since: view.idle_since,
            running_execs: view.n_running_execs,
            draining: view.draining,
            ports: view.ports,
            warnings: view.warnings,
        }
    }
}

type SandboxAnswer = ApiResult<Json<v1::Sandbox>>;

fn answer(view: SandboxView) -> SandboxAnswer {
    Ok(Json(view.into()))
}

/// A spec as it came. Where it names no namespace the caller's own is meant, as wherever a name is looked up.
#[derive(Default, Deserialize)]
#[serde(try_from = "serde_json::Map<String, serde_json::Value>")]
pub(super) struct CreateRequest {
    spec: SandboxSpec,
    names_namespace: bool,
}

impl TryFrom<serde_json::Map<String, serde_json::Value>> for CreateRequest {
    type Error = serde_json::Error;

    fn try_from(map: serde_json::Map<String, serde_json::Value>) -> Result<Self, Self::Error> {
        let names_namespace = map.contains_key("namespace");
        Ok(Self { spec: serde_json::from_value(map.into())?, names_namespace })
    }
}

impl CreateRequest {
    pub(super) fn spec(self, who: &Principal) -> SandboxSpec {
        let namespace = if self.names_namespace { self.spec.namespace } else { who.home_namespace() };
        SandboxSpec { namespace, ..self.spec }
    }
}

fn millis(span: Option<u64>) -> Option<Duration> {
    span.map(Duration::from_millis)
}

/// Makes a sandbox and starts it.
///
/// Asked for SSE or lines of JSON it streams how far the pull of the image is (status 200), and last the sandbox.
#[utoipa::path(post, path = "/sandboxes", tag = "sandboxes", request_body = SandboxSpec,
    responses((status = 201, body = v1::Sandbox),
        (status = 200, content((v1::PullEvent = "application/x-ndjson"), (v1::PullEvent = "text/event-stream")))))]
async fn create(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Extension(id): Extension<HttpRequestId>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<CreateRequest, MAX_CREATE_BYTES>,
) -> ApiResult<Response> {
    let (request, reports) = patches::open(&who, request.spec(&who)).await?;
    let about = |name: SandboxName, namespace| Extension(About::Sandbox { name, namespace });
    if Format::asked(&headers).is_none() {
        let mut view = rest.engine.create_sandbox(&who, request).await?;
        view.warnings.extend(patches::warnings(&reports));
        let about = about(view.name.clone(), view.namespace.clone());
        return Ok((StatusCode::CREATED, about, Json(v1::Sandbox::from(view))).into_response());
    }
    let named = request.spec.name.clone().map(|name| about(name, request.spec.namespace.clone()));
    let (pulling, engine) = (Pulling::default(), rest.engine.clone());
    let progress = pulling.progress();
    let work = async move {
        let mut view = engine.create_sandbox_with(&who, request, progress).await?;
        view.warnings.extend(patches::warnings(&reports));
        Ok(view)
    };
    let last = |view: SandboxView| v1::PullEvent::Created { sandbox: Box::new(view.into()) };
    let response = pulls::follow(&rest, id, &headers, pulling, work, last).await?;
    Ok((named, response).into_response())
}

/// Lists sandboxes. Everything asked for must hold; `state` and `label` may be given several times.
#[utoipa::path(get, path = "/sandboxes", tag = "sandboxes",
    params(
        ("namespace" = Option<Namespace>, Query),
        ("state" = Option<Vec<SandboxState>>, Query, description = "Any of these states."),
        ("label" = Option<Vec<String>>, Query, description = "`key=value`; all of them."),
        ("name" = Option<String>, Query, description = "A part of the name."),
    ),
    responses((status = 200, body = v1::SandboxList)))]
async fn list(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(pairs): Params<Vec<(String, String)>>,
) -> ApiResult<Json<v1::SandboxList>> {
    let found = rest.engine.sandboxes(&who, &filter(pairs)?).await?;
    Ok(Json(v1::SandboxList { sandboxes: found.into_iter().map(Into::into).collect() }))
}

fn filter(pairs: Vec<(String, String)>) -> Result<SandboxFilter, ApiError> {
    let mut filter = SandboxFilter::default();
    for (key, value) in pairs {
        match key.as_str() {
            "namespace" => filter.namespace = Some(value.parse().map_err(Error::from)?),
            "state" => filter.states.push(value.parse().map_err(Error::invalid)?),
            "label" => filter.labels.push(value.parse().map_err(Error::from)?),
            "name" => filter.name_contains = Some(value),
            _ => {
                let shown: String = key.chars().take(64).collect();
                return Err(Error::invalid(format!("{shown:?} is not a filter for sandboxes"))
                    .with_hint("The filters are namespace, state, label and name.")
                    .into());
            }
        }
    }
    Ok(filter)
}

/// One sandbox, with the isolation it got.
#[utoipa::path(get, path = "/sandboxes/{sandbox}", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::Sandbox)))]
async fn inspect(State(rest): State<Rest>, ask: Ask) -> SandboxAnswer {
    answer(rest.engine.sandbox(&ask.who, &ask.which).await?)
}

/// Deletes the record and the files. What runs is refused unless `force`.
#[utoipa::path(delete, path = "/sandboxes/{sandbox}", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::RemoveQuery),
    responses((status = 204)))]
async fn remove(State(rest): State<Rest>, ask: Ask<v1::RemoveQuery>) -> ApiResult<StatusCode> {
    let force = if ask.query.force { Force::Yes } else { Force::No };
    rest.engine.remove_sandbox(&ask.who, &ask.which, force).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Starts a stopped sandbox again, with its files.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/start", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::Sandbox)))]
async fn start(State(rest): State<Rest>, ask: Ask) -> SandboxAnswer {
    answer(rest.engine.start_sandbox(&ask.who, &ask.which).await?)
}

/// Stops gracefully, then by force; keeps the record and the files.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/stop", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::StopQuery),
    responses((status = 200, body = v1::Sandbox)))]
async fn stop(State(rest): State<Rest>, ask: Ask<v1::StopQuery>) -> SandboxAnswer {
    answer(rest.engine.stop_sandbox(&ask.who, &ask.which, millis(ask.query.grace_ms)).await?)
}

/// Stops, then starts.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/restart", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::StopQuery),
    responses((status = 200, body = v1::Sandbox)))]
async fn restart(State(rest): State<Rest>, ask: Ask<v1::StopQuery>) -> SandboxAnswer {
    answer(rest.engine.restart_sandbox(&ask.who, &ask.which, millis(ask.query.grace_ms)).await?)
}

/// Freezes every process of the workload.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/pause", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::Sandbox)))]
async fn pause(State(rest): State<Rest>, ask: Ask) -> SandboxAnswer {
    answer(rest.engine.pause_sandbox(&ask.who, &ask.which).await?)
}

/// Lets a paused sandbox go on.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/resume", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::Sandbox)))]
async fn resume(State(rest): State<Rest>, ask: Ask) -> SandboxAnswer {
    answer(rest.engine.resume_sandbox(&ask.who, &ask.which).await?)
}

/// Takes no new execs, waits for the running ones, then stops.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/drain", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::DrainQuery),
    responses((status = 200, body = v1::Sandbox)))]
async fn drain(State(rest): State<Rest>, ask: Ask<v1::DrainQuery>) -> SandboxAnswer {
    answer(rest.engine.drain_sandbox(&ask.who, &ask.which, millis(ask.query.timeout_ms)).await?)
}

/// Changes the name of a sandbox, or limits while it runs: memory, swap, cpus and pids.
#[utoipa::path(patch, path = "/sandboxes/{sandbox}", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = v1::SandboxChange, responses((status = 200, body = v1::Sandbox)))]
async fn change(
    State(rest): State<Rest>,
    ask: Ask,
    JsonBody(change): JsonBody<v1::SandboxChange>,
) -> SandboxAnswer {
    let v1::SandboxChange { name, limits } = change;
    // Limits first: they can be refused by more, and then nothing has changed.
    let limited = match limits {
        Some(limits) => Some(rest.engine.change_limits(&ask.who, &ask.which, limits).await?),
        None => None,
    };
    match (name, limited) {
        (Some(name), _) => answer(rest.engine.rename_sandbox(&ask.who, &ask.which, name).await?),
        (None, Some(limited)) => answer(limited),
        (None, None) => Err(Error::invalid("nothing to change").with_hint("Give a name or limits.").into()),
    }
}

/// Gives the sandbox a new lifetime, counted from now.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/renew", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = Lifetime, responses((status = 200, body = v1::Sandbox)))]
async fn renew(State(rest): State<Rest>, ask: Ask, JsonBody(lifetime): JsonBody<Lifetime>) -> SandboxAnswer {
    answer(rest.engine.renew_sandbox(&ask.who, &ask.which, lifetime).await?)
}

/// Answers when the sandbox is in a state.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/wait", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::WaitQuery),
    responses((status = 200, body = v1::Sandbox)))]
async fn wait(State(rest): State<Rest>, ask: Ask<v1::WaitQuery>) -> SandboxAnswer {
    let timeout = millis(ask.query.timeout_ms);
    answer(rest.engine.wait_sandbox(&ask.who, &ask.which, ask.query.state, timeout).await?)
}

/// The current usage of the sandbox.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/usage", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = Usage)))]
async fn usage(State(rest): State<Rest>, ask: Ask) -> ApiResult<Json<Usage>> {
    Ok(Json(rest.engine.usage(&ask.who, &ask.which).await?))
}

/// The processes inside.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/processes", tag = "sandboxes",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::ProcessList)))]
async fn processes(State(rest): State<Rest>, ask: Ask) -> ApiResult<Json<v1::ProcessList>> {
    Ok(Json(v1::ProcessList { processes: rest.engine.processes(&ask.who, &ask.which).await? }))
}
