//! Packages: installed by jobs, listed by looking inside.

use std::time::Duration;

use axum::{Json, extract::State, http::StatusCode};
use sandbox::{Error, PackageSpec};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, AskJob, JsonBody},
    v1,
};
use crate::http::ApiResult;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(install, list))
        .routes(routes!(jobs))
        .routes(routes!(job))
        .routes(routes!(wait))
}

/// Installs packages. Answers at once, or with `wait` when the job ended. A failed install is a state, not an error.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/packages", tag = "packages",
    params(("sandbox" = String, Path, description = "Id or name."), v1::InstallQuery),
    request_body = v1::PackageRequest, responses((status = 201, body = v1::PackageJob)))]
async fn install(
    State(rest): State<Rest>,
    ask: Ask<v1::InstallQuery>,
    JsonBody(asked): JsonBody<v1::PackageRequest>,
) -> ApiResult<(StatusCode, Json<v1::PackageJob>)> {
    let spec = PackageSpec {
        manager: asked.manager.unwrap_or_default(),
        packages: asked.packages,
        requirements_file: asked.requirements_file,
        cwd: asked.cwd,
        timeout: asked.timeout_ms.map(Duration::from_millis),
        request_id: asked.request_id,
    };
    let (engine, who, which) = (&rest.engine, &ask.who, &ask.which);
    let mut job = engine.install_packages(who, which, spec).await?;
    if ask.query.wait {
        let timeout = ask.query.timeout_ms.map(Duration::from_millis);
        job = engine.wait_package_job(who, which, &job.id, timeout).await?;
    }
    Ok((StatusCode::CREATED, Json(job)))
}

/// Lists the installed packages, by looking inside; or returns the state of one package.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/packages", tag = "packages",
    params(("sandbox" = String, Path, description = "Id or name."), v1::PackagesQuery),
    responses((status = 200, body = v1::Packages)))]
async fn list(State(rest): State<Rest>, ask: Ask<v1::PackagesQuery>) -> ApiResult<Json<v1::Packages>> {
    let (engine, who, which) = (&rest.engine, &ask.who, &ask.which);
    if let Some(package) = &ask.query.package {
        let status = engine.package_status(who, which, ask.query.manager, package).await?;
        return Ok(Json(v1::Packages { managers: Vec::new(), status: Some(status) }));
    }
    let managers = engine.packages(who, which, ask.query.manager).await?;
    Ok(Json(v1::Packages { managers, status: None }))
}

/// Lists the sandbox's package jobs, oldest first, without their logs.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/package-jobs", tag = "packages",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::PackageJobList)))]
async fn jobs(State(rest): State<Rest>, ask: Ask) -> ApiResult<Json<v1::PackageJobList>> {
    let jobs = rest.engine.package_jobs(&ask.who, &ask.which).await?;
    Ok(Json(v1::PackageJobList { jobs }))
}

/// One package job.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/package-jobs/{job}", tag = "packages",
    params(("sandbox" = String, Path, description = "Id or name."), ("job" = String, Path), v1::NamespaceQuery),
    responses((status = 200, body = v1::PackageJob)))]
async fn job(State(rest): State<Rest>, ask: AskJob) -> ApiResult<Json<v1::PackageJob>> {
    Ok(Json(rest.engine.package_job(&ask.who, &ask.which, &ask.job).await?))
}

/// Answers when the job ended, or as it is after `timeoutMs`.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/package-jobs/{job}/wait", tag = "packages",
    params(("sandbox" = String, Path, description = "Id or name."), ("job" = String, Path), v1::WaitExecQuery),
    responses((status = 200, body = v1::PackageJob)))]
async fn wait(State(rest): State<Rest>, ask: AskJob<v1::WaitExecQuery>) -> ApiResult<Json<v1::PackageJob>> {
    let timeout = ask.query.timeout_ms.map(Duration::from_millis);
    let job = rest.engine.wait_package_job(&ask.who, &ask.which, &ask.job, timeout).await?;
    Ok(Json(job))
}

/// Returns the error for a path that names no job.
pub(super) fn no_such_job(text: &str) -> Error {
    let shown: String = text.chars().take(64).collect();
    Error::not_found(format!("no package job {shown:?}"))
        .with_hint("A job's id is pkg- and 13 characters; GET …/package-jobs lists them.")
}
