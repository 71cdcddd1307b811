//! Bodies of requests: JSON, bounded and strict, and bytes on their way to the engine.

use std::borrow::Cow;

use axum::{
    body::Body,
    extract::{FromRequest, Request},
    http::{HeaderMap, header::CONTENT_TYPE},
};
use bytes::Bytes;
use engine::ByteStream;
use futures_util::{StreamExt, future::BoxFuture};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sandbox::{Error, ErrorKind};
use serde::de::DeserializeOwned;

use super::ApiError;

/// Longest JSON body. A command with its environment has at most 1 MiB, which JSON escapes may double.
pub(crate) const MAX_JSON_BYTES: usize = 4 * 1024 * 1024;

/// A JSON object.
pub(crate) struct JsonBody<T, const MAX: usize = MAX_JSON_BYTES>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned, const MAX: usize> FromRequest<S> for JsonBody<T, MAX> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        check_type(request.headers())?;
        let bytes = read_bounded(request.into_body(), MAX).await?;
        parse(&bytes, b'{', "a JSON object").map(Self)
    }
}

/// A JSON list.
pub(crate) struct JsonList<T>(pub(crate) Vec<T>);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonList<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        check_type(request.headers())?;
        let bytes = read_bounded(request.into_body(), MAX_JSON_BYTES).await?;
        parse(&bytes, b'[', "a JSON list").map(Self)
    }
}

/// A JSON object, or no body at all.
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let checked = check_type(request.headers());
        let bytes = read_bounded(request.into_body(), MAX_JSON_BYTES).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        checked?;
        parse(&bytes, b'{', "a JSON object").map(Self)
    }
}

/// A browser cannot send this type across origins without asking first, so a hostile page cannot either.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.map(|text| text.split(';').next().unwrap_or(text).trim());
    if essence.is_some_and(|text| text.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let error = Error::invalid("the body must be JSON");
    Err(error.with_hint("Send the header Content-Type: application/json.").into())
}

/// `first`: serde would take a list for a struct, field by field; nobody means that.
fn parse<T: DeserializeOwned>(bytes: &[u8], first: u8, what: &str) -> Result<T, ApiError> {
    if bytes.trim_ascii_start().first().is_some_and(|byte| *byte != first) {
        return Err(Error::invalid(format!("invalid body for this route: it must be {what}")).into());
    }
    serde_json::from_slice(&whole_numbers(bytes))
        .map_err(|error| Error::invalid(format!("invalid body for this route: {error}")).into())
}

/// JSON has one kind of number, so `30.0` is as good as `30` (Python's division writes it), but serde takes only the
/// latter for an integer. Fractions that are zero are left out.
fn whole_numbers(json: &[u8]) -> Cow<'_, [u8]> {
    let mut short = Vec::new();
    let (mut copied, mut at, mut in_text) = (0, 0, false);
    while let Some(byte) = json.get(at) {
        match byte {
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            b'.' if !in_text => {
                let rest = json.get(at + 1..).unwrap_or_default();
                let n_zeros = rest.iter().take_while(|byte| **byte == b'0').count();
                let goes_on = rest.get(n_zeros).is_some_and(|byte| matches!(byte, b'1'..=b'9' | b'e' | b'E'));
                if n_zeros > 0 && !goes_on {
                    short.extend_from_slice(json.get(copied..at).unwrap_or_default());
                    at += n_zeros;
                    copied = at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    short.extend_from_slice(json.get(copied..).unwrap_or_default());
    Cow::Owned(short)
}

/// In a box: every handler with a body waits for it.
fn read_bounded(body: Body, max: usize) -> BoxFuture<'static, Result<Bytes, ApiError>> {
    let reading = async move {
        match Limited::new(body, max).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                let message = format!("the body has more than {max} bytes");
                Err(Error::new(ErrorKind::LimitReached, message)
                    .with_hint("Write large data to a file in the sandbox instead.")
                    .into())
            }
            Err(error) => {
                Err(Error::new(ErrorKind::Cancelled, "the body ended early").with_source(error).into())
            }
        }
    };
    Box::pin(reading)
}

/// A body of any length, on its way to the engine.
pub(crate) fn byte_stream(body: Body) -> ByteStream {
    let ended = |error| Error::new(ErrorKind::Cancelled, "the body ended early").with_source(error);
    body.into_data_stream().map(move |piece| piece.map_err(ended)).boxed()
}

#[cfg(test)]
mod tests {
    use super::whole_numbers;

    #[test]
    fn a_fraction_of_zero_is_left_out_except_in_texts() {
        for (json, short) in [
            (r#"{"a": 30.0, "b":[1.00,-2.0]}"#, r#"{"a": 30, "b":[1,-2]}"#),
            ("30.0", "30"),
            ("[1.5, 1.05, 1.0e3, 10.01, 1.]", "[1.5, 1.05, 1.0e3, 10.01, 1.]"),
            (r#"{"1.0": "2.0 \" 3.0", "\\": 4.0}"#, r#"{"1.0": "2.0 \" 3.0", "\\": 4}"#),
            ("\"1.0", "\"1.0"),
            ("", ""),
        ] {
            assert_eq!(std::str::from_utf8(&whole_numbers(json.as_bytes())), Ok(short));
        }
    }
}
