//! The parts of a request that extractors read. Functions instead of futures, since none of them waits: a future would
//! be compiled again in each of two hundred handlers.

use axum::{
    extract::{FromRequestParts as _, RawPathParams},
    http::request::Parts,
};
use engine::Principal;
use futures_util::FutureExt as _;
use sandbox::{Error, ErrorKind};

use super::ApiError;

/// Returns the asker, as authentication found.
pub(crate) fn caller(parts: &Parts) -> Result<Principal, ApiError> {
    parts
        .extensions
        .get()
        .cloned()
        .ok_or_else(|| Error::new(ErrorKind::Unauthenticated, "the caller was not identified").into())
}

/// The parameters of the path, decoded.
pub(crate) fn path_parameters(parts: &mut Parts) -> Result<RawPathParams, ApiError> {
    let read = RawPathParams::from_request_parts(parts, &()).now_or_never();
    let read = read.ok_or_else(|| Error::new(ErrorKind::Internal, "the path was not read"))?;
    read.map_err(|error| Error::invalid(format!("invalid path: {error}")).into())
}
