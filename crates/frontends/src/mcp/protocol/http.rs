//! Streamable HTTP at `/mcp`.
//!
//! Clients of the older revisions have sessions with streams that can be resumed; those of the newest send each request
//! by itself. Whoever does not want a stream is answered with one piece of JSON and needs no session either.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{ACCEPT, CONTENT_TYPE},
        request::Parts,
    },
    response::{IntoResponse, Response},
    routing::any,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use rmcp::{
    model::ErrorCode,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService,
        session::{SessionManager, never::NeverSessionManager},
    },
};
use sandbox::{Error, ErrorKind};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    MAX_MESSAGE_BYTES, Profile,
    client::{Client, Owner, Way},
    fixed_list,
    sessions::Sessions,
};
use crate::http::{ApiError, ApiResult};

const PATH: &str = "/mcp";

/// Returns the path of a surface for clients over HTTP; without a dialect, of what the daemon serves plainly.
pub fn http_path(dialect: Option<&str>) -> String {
    dialect.map_or_else(|| PATH.to_owned(), |name| format!("{PATH}/{name}"))
}

const SESSION_HEADER: &str = "mcp-session-id";
const JSON: &[u8] = b"application/json";
const EVENT_STREAM: &str = "text/event-stream";
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// The time between two comments on a silent stream: shorter than the idle limit of common proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Clone)]
struct Http<P> {
    profile: P,
    sessions: Arc<Sessions>,
    config: StreamableHttpServerConfig,
}

pub(super) fn routes<P: Profile>(profile: P, at: &str, stop: CancellationToken) -> Router {
    let sessions = Sessions::new();
    sessions.prune_until(stop.clone());
    let config = StreamableHttpServerConfig::default()
        // The layers around look at Host and Origin, for every front end alike.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        .with_cancellation_token(stop);
    Router::new().route(&format!("{PATH}{at}"), any(serve::<P>)).with_state(Http {
        profile,
        sessions,
        config,
    })
}

async fn serve<P: Profile>(State(http): State<Http<P>>, request: Request) -> ApiResult<Response> {
    let (mut parts, body) = request.into_parts();
    let (bytes, body) = match parts.method {
        Method::POST => match message(body).await {
            Ok(bytes) => (bytes.clone(), Body::from(bytes)),
            Err(refusal) => return Ok(refusal),
        },
        _ => (Bytes::new(), body),
    };
    let is_json = parts.headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(JSON));
    let is_single = parts.method == Method::POST && wants_one_answer(&parts.headers);
    let way = if is_single { Way::SingleAnswers } else { Way::Requests };
    let client = Client::of(&parts, http.profile.settings(), way)?;
    let own = http.sessions.of(Owner::of(&client.who), client.ended.clone());
    if let Some(id) = parts.headers.get(SESSION_HEADER) {
        if !id.to_str().is_ok_and(|id| own.has(id)) {
            return Err(no_session());
        }
        if is_json
            && let Some(list) = http.profile.fixed_list()
            && let Some(id) = fixed_list::asked(&bytes, &parts.headers)
        {
            return Ok(fixed_list::answer(id, list));
        }
    }
    if is_single {
        // The library insists on both, and gives what it can.
        parts.headers.insert(ACCEPT, BOTH);
        let config = http.config.with_legacy_session_mode(false);
        let sessions = Arc::new(NeverSessionManager::default());
        let response = answer(http.profile, client, sessions, config, parts, body).await;
        return Ok(readable(response, is_json, &bytes));
    }
    let is_delete = parts.method == Method::DELETE;
    let response = answer(http.profile, client, Arc::clone(&own), http.config, parts, body).await;
    if own.is_full() {
        return Err(too_many_sessions());
    }
    let response = readable(response, is_json, &bytes);
    if is_delete && response.status() == StatusCode::ACCEPTED {
        // It is done when the answer comes, and some clients complain about less.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(response)
}

async fn answer<P: Profile, M: SessionManager>(
    profile: P,
    client: Client,
    sessions: Arc<M>,
    config: StreamableHttpServerConfig,
    parts: Parts,
    body: Body,
) -> Response {
    // Made for this request: what it makes belongs to the one who sent it.
    let service = StreamableHttpService::new(move || Ok(profile.handler(client.clone())), sessions, config);
    service.handle(Request::from_parts(parts, body)).await.map(Body::new)
}

/// The whole message of a request, or why there is none.
async fn message(body: Body) -> Result<Bytes, Response> {
    match Limited::new(body, MAX_MESSAGE_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("the message has more than {MAX_MESSAGE_BYTES} bytes");
            Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::INVALID_REQUEST, &message))
        }
        Err(_cut_short) => {
            Err(refusal(StatusCode::BAD_REQUEST, ErrorCode::PARSE_ERROR, "the message ended early"))
        }
    }
}

/// The library answers a message that it cannot read as if its type were wrong, and in plain text.
fn readable(response: Response, is_json: bool, message: &[u8]) -> Response {
    if !is_json || response.status() != StatusCode::UNSUPPORTED_MEDIA_TYPE {
        return response;
    }
    let (code, message) = match serde_json::from_slice::<Value>(message) {
        Ok(_) => (ErrorCode::INVALID_REQUEST, "the message is not a JSON-RPC message".to_owned()),
        Err(error) => (ErrorCode::PARSE_ERROR, format!("the message is not JSON: {error}")),
    };
    refusal(StatusCode::BAD_REQUEST, code, &message)
}

/// An answer to what could not be read, and so has no id.
fn refusal(status: StatusCode, code: ErrorCode, message: &str) -> Response {
    let error = json!({ "code": code.0, "message": message });
    (status, Json(json!({ "jsonrpc": "2.0", "id": null, "error": error }))).into_response()
}

fn too_many_sessions() -> ApiError {
    ApiError(
        Error::new(ErrorKind::LimitReached, "too many MCP sessions are open, and all of them are in use")
            .with_hint("End one with DELETE and its Mcp-Session-Id, or close a stream; idle sessions are closed when room is needed."),
    )
}

fn no_session() -> ApiError {
    ApiError(
        Error::not_found("no such MCP session")
            .with_hint("Initialize again, without the header Mcp-Session-Id."),
    )
}

/// Whether the client takes JSON and has not said that it takes a stream.
fn wants_one_answer(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<_> = values
        .flat_map(|value| value.split(','))
        .map(|range| range.split(';').next().unwrap_or(range).trim())
        .collect();
    let takes_json = ranges.is_empty()
        || ranges.iter().any(|range| matches!(*range, "application/json" | "application/*" | "*/*"));
    takes_json && !ranges.contains(&EVENT_STREAM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_no_stream_gets_one_answer() {
        let wants = |accept: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, HeaderValue::from_static(value));
            }
            wants_one_answer(&headers)
        };
        assert!(wants(&[]) && wants(&["*/*"]) && wants(&["text/html, application/json;q=0.9"]));
        assert!(!wants(&["application/json, text/event-stream"]));
        assert!(!wants(&["application/json", "text/event-stream;q=0.5"]));
        assert!(!wants(&["text/html"]));
    }
}
