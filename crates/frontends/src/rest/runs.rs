//! Runs: a new sandbox and what runs first in it, in one request.

use std::time::Duration;

use axum::{Extension, Json, extract::State, http::StatusCode};
use engine::{NewRun, Progress};
use sandbox::{Error, ExecSpec};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    code::{self, Running},
    extract::{Caller, JsonBody, MAX_CREATE_BYTES, Params},
    output, patches,
    sandboxes::CreateRequest,
    v1,
};
use crate::{
    code::language,
    http::{About, ApiResult},
    links::BaseUrl,
};

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(run))
}

/// A `v1::RunRequest` as it came.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default)]
    sandbox: CreateRequest,
    exec: Option<v1::ExecRequest>,
    code: Option<v1::CodeRequest>,
}

type RunAnswer = (StatusCode, Extension<About>, Json<v1::RunResult>);

/// Makes a sandbox and runs a command or code in it: the same as two requests, in less time.
///
/// The sandbox is kept. If the command could not be started for a reason that is not its own, no sandbox is left.
#[utoipa::path(post, path = "/runs", tag = "sandboxes", params(v1::RunQuery), request_body = v1::RunRequest,
    responses((status = 201, body = v1::RunResult)))]
async fn run(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(query): Params<v1::RunQuery>,
    base: Option<Extension<BaseUrl>>,
    JsonBody(asked): JsonBody<Asked, MAX_CREATE_BYTES>,
) -> ApiResult<RunAnswer> {
    let Asked { sandbox, exec, code } = asked;
    let spec = first(exec, code)?;
    let (is_code, is_tracked) = (spec.cell.is_some(), spec.track_files);
    let (request, reports) = patches::open(&who, sandbox.spec(&who)).await?;
    let NewRun { mut sandbox, exec, .. } =
        rest.engine.create_and_exec(&who, request, spec.into(), Progress::none()).await?;
    sandbox.warnings.extend(patches::warnings(&reports));
    let about =
        Extension(About::Sandbox { name: sandbox.name.clone(), namespace: sandbox.namespace.clone() });
    let sandbox = v1::Sandbox::from(sandbox);
    let answer = |exec, code| (StatusCode::CREATED, about, Json(v1::RunResult { sandbox, exec, code }));
    if is_code {
        let running = Running::new(&rest, who, &exec, base.as_deref()).await?;
        return Ok(answer(None, Some(running.finish_reading().await?)));
    }
    let result = if query.wait {
        let timeout = query.timeout_ms.map(Duration::from_millis);
        let links = is_tracked.then(|| rest.links.of(&who, base.as_deref()));
        output::wait_and_capture(&rest.engine, &who, &exec, timeout, links.as_ref()).await?
    } else {
        v1::ExecResult { exec, stdout: None, stderr: None, files: None, warnings: Vec::new() }
    };
    Ok(answer(Some(result), None))
}

fn first(exec: Option<v1::ExecRequest>, asked: Option<v1::CodeRequest>) -> Result<ExecSpec, Error> {
    match (exec, asked) {
        (Some(exec), None) => Ok(exec),
        (None, Some(asked)) => {
            let language = asked.language.as_deref().map(str::parse).transpose();
            let language = language.map_err(|unknown| language::unknown(&unknown))?;
            code::exec_spec(asked, language.unwrap_or(language::DEFAULT))
        }
        _ => Err(Error::invalid("a run has either exec or code").with_hint("Give one of the two.")),
    }
}
