//! `POST /api/v1/rpc`: the tools as methods of JSON-RPC 2.0, for microsandbox's SDKs. And `GET /api/v1/health`.
//!
//! A failure is an HTTP status with `{error, code}`; only what is wrong with the message itself is told as JSON-RPC
//! does.

use std::sync::{Arc, LazyLock};

use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use engine::Principal;
use sandbox::{Error, ErrorKind};
use serde_json::{Value, json};

use super::surface;
use crate::{
    http::{About, numbered},
    links::BaseUrl,
    mcp::{Call, Failure, JsonObject, Mcp, Surface},
};

/// Longest message, as on our other routes for tools.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const PARSE_ERROR: i32 = -32700;

const METHODS: [(&str, &str); 5] = [
    ("sandbox.start", "sandbox_start"),
    ("sandbox.stop", "sandbox_stop"),
    ("sandbox.repl.run", "sandbox_run_code"),
    ("sandbox.command.run", "sandbox_run_command"),
    ("sandbox.metrics.get", "sandbox_get_metrics"),
];

#[derive(Debug, Clone)]
struct Rpc {
    mcp: Mcp,
    /// Made when the first client comes.
    surface: Arc<LazyLock<Arc<Surface>>>,
}

/// The names of the methods, for whoever tries all of them.
pub fn rpc_methods() -> impl Iterator<Item = &'static str> {
    METHODS.into_iter().map(|(name, _)| name)
}

pub(in crate::dialects) fn routes(mcp: &Mcp) -> Router {
    let rpc = Rpc { mcp: mcp.clone(), surface: Arc::new(LazyLock::new(surface)) };
    Router::new()
        .route("/api/v1/rpc", post(answer))
        .route("/api/v1/health", get(health))
        .layer(DefaultBodyLimit::max(MAX_MESSAGE_BYTES))
        .with_state(rpc)
}

async fn health() -> Json<Value> {
    Json(json!({ "message": "Service is healthy" }))
}

async fn answer(
    State(rpc): State<Rpc>,
    Extension(who): Extension<Principal>,
    base: Option<Extension<BaseUrl>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return refusal(rejection.status(), &rejection.body_text()).into_response(),
    };
    let request = match Request::read(&body) {
        Ok(request) => request,
        Err(wrong) => return wrong.into_response(),
    };
    let call = Call::alone(rpc.mcp, Arc::clone(LazyLock::force(&rpc.surface)), who, base.map(|base| base.0));
    let about = Extension(request.about());
    match run(call, request.tool, request.params).await {
        Ok(result) => {
            (about, Json(json!({ "jsonrpc": "2.0", "id": request.id, "result": result }))).into_response()
        }
        Err(failure) => (about, failed(failure.error())).into_response(),
    }
}

/// Runs in a task of its own: a caller who goes away cancels it, and what it began is ended properly.
async fn run(call: Call, tool: &'static str, params: JsonObject) -> Result<Value, Failure> {
    let turn = call.mcp.turns().take(&call.who)?;
    let _gone = call.cancelled.clone().drop_guard();
    let running = tokio::spawn(async move {
        let _turn = turn;
        let surface = Arc::clone(&call.surface);
        surface.run(tool, call, Some(params)).await
    });
    let ran = running.await.map_err(|error| {
        Failure::from(Error::new(ErrorKind::Internal, "the call stopped unexpectedly").with_source(error))
    })?;
    Ok(ran?.data)
}

struct Request {
    id: Value,
    method: &'static str,
    tool: &'static str,
    params: JsonObject,
}

impl Request {
    fn read(body: &[u8]) -> Result<Self, Wrong> {
        let bad = StatusCode::BAD_REQUEST;
        let message: Value = serde_json::from_slice(body)
            .map_err(|error| wrong(bad, &Value::Null, PARSE_ERROR, &format!("Parse error: {error}")))?;
        let id = message.get("id").filter(|id| id.is_string() || id.is_number()).cloned().unwrap_or_default();
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(wrong(bad, &id, INVALID_REQUEST, "Invalid Request: jsonrpc must be \"2.0\""));
        }
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            return Err(wrong(bad, &id, INVALID_REQUEST, "Invalid Request: method must be a string"));
        };
        let Some((method, tool)) = METHODS.iter().find(|(name, _)| *name == method) else {
            let shown: String = method.chars().take(64).collect();
            let message = format!("Method not found: {shown}");
            return Err(wrong(StatusCode::NOT_FOUND, &id, METHOD_NOT_FOUND, &message));
        };
        let params = match message.get("params") {
            None | Some(Value::Null) => JsonObject::new(),
            Some(Value::Object(params)) => params.clone(),
            Some(_) => return Err(refusal(bad, "params must be an object")),
        };
        Ok(Self { id, method, tool, params })
    }

    /// For the audit.
    fn about(&self) -> About {
        let text = |name: &str| self.params.get(name).and_then(Value::as_str);
        let sandbox = text("sandbox").map(str::to_owned);
        About::Method {
            method: self.method,
            sandbox,
            namespace: text("namespace").and_then(|name| name.parse().ok()),
        }
    }
}

/// Why a message is no request.
struct Wrong(StatusCode, Value);

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

fn wrong(status: StatusCode, id: &Value, code: i32, message: &str) -> Wrong {
    let error = json!({ "code": code, "message": message });
    Wrong(status, json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

fn refusal(status: StatusCode, message: &str) -> Wrong {
    Wrong(status, numbered(ErrorKind::InvalidRequest, message, true).1)
}

fn failed(error: &Error) -> Response {
    let message = match error.kind() {
        ErrorKind::Internal => "Internal server error".to_owned(),
        _ => error.to_string(),
    };
    let (status, body) = numbered(error.kind(), &message, true);
    (status, Json(body)).into_response()
}
