//! Bodies that are read into memory have a limit. Uploads stream, and have none.

use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
};
use http_body_util::Limited;
use sandbox::{Error, ErrorKind};

use crate::http::error::ApiError;

/// Longest JSON body. A command with its environment has at most 1 MiB, which JSON escapes may double.
pub const MAX_JSON_BYTES: usize = 4 * 1024 * 1024;

/// Routes whose bodies end in an error after `max_bytes`, for a front end that reads them by means of its own. A body that
/// says beforehand that it is longer is refused at once.
pub fn bounded(routes: Router, max_bytes: usize) -> Router {
    routes.layer(middleware::from_fn_with_state(max_bytes, bound))
}

async fn bound(State(max_bytes): State<usize>, request: Request, next: Next) -> Result<Response, ApiError> {
    let announced = request.body().size_hint().exact();
    if announced.is_some_and(|n_bytes| n_bytes > max_bytes as u64) {
        return Err(too_long(max_bytes));
    }
    Ok(next.run(request.map(|body| Body::new(Limited::new(body, max_bytes)))).await)
}

pub(crate) fn too_long(max_bytes: usize) -> ApiError {
    let message = format!("the body has more than {max_bytes} bytes");
    Error::new(ErrorKind::LimitReached, message)
        .with_hint("Write large data to a file in the sandbox with PUT …/files/content.")
        .into()
}
