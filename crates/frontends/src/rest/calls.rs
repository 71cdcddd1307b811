//! The audit, to be read.

use axum::{Json, extract::State};
use engine::CallFilter;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Caller, Params},
    v1,
};
use crate::http::ApiResult;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(calls))
}

/// Lists calls that changed something or were refused, in order. A key of one namespace sees the calls in it.
#[utoipa::path(get, path = "/calls", tag = "audit", params(v1::CallsQuery),
    responses((status = 200, body = v1::CallList)))]
async fn calls(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(query): Params<v1::CallsQuery>,
) -> ApiResult<Json<v1::CallList>> {
    let v1::CallsQuery { from, before, limit, who: of, q: search, result } = query;
    let has_failed = result.map(|result| result == v1::CallResult::Refused);
    let filter = CallFilter { from, before, limit, who: of, search, has_failed };
    Ok(Json(v1::CallList { calls: rest.engine.calls(&who, filter).await? }))
}
