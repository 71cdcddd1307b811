//! The whole fleet, and the machine it is on.

use std::fmt;

use axum::{Json, extract::State};
use futures_util::future::BoxFuture;
use sandbox::{Error, ErrorKind};
use utoipa_axum::router::OpenApiRouter;

use super::{Rest, extract::Caller, v1};
use crate::http::ApiResult;

/// Looks at the daemon's machine.
pub trait Doctor: fmt::Debug + Send + Sync {
    fn diagnose(&self) -> BoxFuture<'_, Result<v1::Diagnosis, Error>>;
}

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(fleet)).routes(routes!(doctor))
}

/// Totals over all namespaces, now and over the last hour. Only for callers of all namespaces.
#[utoipa::path(get, path = "/fleet", tag = "fleet", responses((status = 200, body = v1::Fleet)))]
async fn fleet(State(rest): State<Rest>, Caller(who): Caller) -> ApiResult<Json<v1::Fleet>> {
    Ok(Json(rest.engine.fleet(&who).await?))
}

/// The working features of the daemon's machine, and how to fix the others. Only for the daemon's owner.
#[utoipa::path(get, path = "/doctor", tag = "fleet", responses((status = 200, body = v1::Diagnosis)))]
async fn doctor(State(rest): State<Rest>, Caller(who): Caller) -> ApiResult<Json<v1::Diagnosis>> {
    who.may_diagnose()?;
    match &rest.doctor {
        Some(doctor) => Ok(Json(doctor.diagnose().await?)),
        None => Err(Error::new(ErrorKind::Unsupported, "this daemon has no doctor").into()),
    }
}
