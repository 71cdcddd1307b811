//! From an error of the product to an answer.

use std::{error::Error as _, fmt::Write as _, sync::Arc, time::Duration};

use axum::{
    Json,
    http::{
        HeaderValue, StatusCode,
        header::{RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use sandbox::{Error, ErrorKind};

use crate::rest::v1::{ErrorBody, ErrorDetail};

pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// An error on its way out. It travels beside an empty answer until [`super::request::frame`], which alone knows the
/// request's id, logs it and writes its body.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Error);

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

#[derive(Clone)]
pub(crate) struct Failure(pub(crate) Arc<Error>);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = http_status(self.0.kind()).into_response();
        response.extensions_mut().insert(Failure(Arc::new(self.0)));
        response
    }
}

/// An error from the gate, which may know when to try again.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: Error,
    pub(crate) retry_after: Option<Duration>,
}

#[derive(Clone, Copy)]
pub(crate) struct RetryAfter(Duration);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, retry_after: None }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = ApiError(self.error).into_response();
        if let Some(wait) = self.retry_after {
            response.extensions_mut().insert(RetryAfter(wait));
        }
        response
    }
}

/// The table of kinds and statuses. No wildcard: a new kind does not compile until it has an answer here.
pub(crate) fn http_status(kind: ErrorKind) -> StatusCode {
    let code = match kind {
        ErrorKind::InvalidRequest => 400,
        ErrorKind::Unauthenticated => 401,
        ErrorKind::Denied => 403,
        ErrorKind::NotFound => 404,
        ErrorKind::AlreadyExists | ErrorKind::WrongState => 409,
        ErrorKind::LimitReached => 429,
        ErrorKind::Cancelled => 499,
        ErrorKind::Internal => 500,
        ErrorKind::Unsupported => 501,
        ErrorKind::Unavailable => 503,
        ErrorKind::TimedOut => 504,
    };
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

pub(crate) fn body(error: &Error, request_id: &str) -> ErrorBody {
    ErrorBody {
        error: ErrorDetail {
            kind: error.kind(),
            message: error.message().to_owned(),
            hint: error.hint().map(str::to_owned),
            request_id: request_id.to_owned(),
        },
    }
}

pub(crate) fn render(
    status: StatusCode,
    error: &Error,
    retry_after: Option<RetryAfter>,
    request_id: &str,
) -> Response {
    let mut response = (status, Json(body(error, request_id))).into_response();
    let headers = response.headers_mut();
    if error.kind() == ErrorKind::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"warren\""));
    }
    if let Some(RetryAfter(wait)) = retry_after {
        // Whole seconds, and never too few.
        headers.insert(RETRY_AFTER, HeaderValue::from((wait.as_secs_f64().ceil() as u64).max(1)));
    }
    response
}

/// The message and everything beneath it, for the log.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string cannot fail.
        write!(text, ": {cause}").ok();
        source = cause.source();
    }
    text
}
