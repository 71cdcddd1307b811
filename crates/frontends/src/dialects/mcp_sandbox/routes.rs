//! The routes besides MCP: files by path, health, and the user's sandboxes.
//!
//! There are no users and passwords here. A user is a key, which the operator makes; a route that would show or renew a
//! key refuses, and names the way to do so.

use axum::{
    Extension, Json, Router,
    extract::{Path, Query, State, rejection::JsonRejection},
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use engine::{Force, LinkLasts, LinkTarget, NewKey, OpenLink, Principal, SandboxRef};
use sandbox::{Error, ErrorKind, KeySpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    MAX_SANDBOXES, WORK_DIRECTORY,
    sandboxes::{User, name_of},
};
use crate::{
    code::Serving,
    http::{
        detailed,
        handler::{AnyHandler, erased},
        http_status,
    },
    links,
    mcp::Mcp,
};

/// The prefix of its routes when another dialect has the plain paths.
const PREFIX: &str = "/mcp-sandbox";

#[derive(Debug, Clone)]
struct Front {
    mcp: Mcp,
    serving: Serving,
}

/// Returns the routes besides MCP: method, path below the prefix, and handler.
fn table() -> [(Method, &'static str, AnyHandler<Front>); 9] {
    [
        (Method::GET, "/sandbox/file", erased(file)),
        (Method::GET, "/health", erased(health)),
        (Method::POST, "/api/register", erased(register)),
        (Method::POST, "/api/token", erased(token)),
        (Method::GET, "/api/users/me", erased(me)),
        (Method::GET, "/api/users/me/api-key", erased(api_key)),
        (Method::POST, "/api/users/me/api-key/regenerate", erased(regenerate)),
        (Method::GET, "/api/users/me/sandboxes", erased(sandboxes)),
        (Method::DELETE, "/api/users/me/sandboxes/{sandbox}", erased(remove)),
    ]
}

/// Method and path of each route, for whoever tries all of them.
pub fn mcp_sandbox_routes() -> impl Iterator<Item = (String, String)> {
    table().into_iter().map(|(method, path, _)| (method.to_string(), format!("{PREFIX}{path}")))
}

/// Below `/mcp-sandbox`, and at the plain paths where they are this dialect's.
pub(in crate::dialects) fn routes(mcp: &Mcp, is_plain: bool) -> Router {
    let own = || {
        let mut router = Router::new();
        for (method, path, handler) in table() {
            // Each method in the table is one that a router can tell apart.
            if let Ok(method) = MethodFilter::try_from(method) {
                router = router.route(path, on(method, handler));
            }
        }
        router
    };
    let named = Router::new().nest(PREFIX, own());
    let all = if is_plain { named.merge(own()) } else { named };
    all.with_state(Front { mcp: mcp.clone(), serving: Serving::default() })
}

/// A failure as their server words it.
struct Refused(Error);

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self(error) = self;
        if matches!(error.kind(), ErrorKind::Internal | ErrorKind::Unavailable) {
            tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
        }
        (http_status(error.kind()), Json(detailed(&error))).into_response()
    }
}

type Answer<T> = Result<T, Refused>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileQuery {
    sandbox_id: String,
    file_path: String,
}

/// A file of the caller's own sandbox. Whoever has no key uses a link.
async fn file(
    State(front): State<Front>,
    Extension(who): Extension<Principal>,
    query: Result<Query<FileQuery>, axum::extract::rejection::QueryRejection>,
    method: Method,
    headers: HeaderMap,
) -> Answer<Response> {
    let Query(query) = query.map_err(|error| {
        Error::invalid(error.body_text()).with_hint("Send sandbox_id and file_path in the query.")
    })?;
    let view = User::new(front.mcp.engine(), &who, None).find(&query.sandbox_id).await?;
    let path = match query.file_path.starts_with('/') {
        true => query.file_path,
        false => format!("{WORK_DIRECTORY}/{}", query.file_path),
    };
    let (target, lasts) = (LinkTarget::File { path }, LinkLasts::WithItsKey);
    let link = OpenLink { who: who.clone(), sandbox: view.id, target, lasts };
    let budget = &front.serving.by_key;
    let answer = links::answer(front.mcp.links(), &link, budget, &method, &headers).await;
    answer.map_err(|refusal| Refused(refusal.error))
}

async fn health() -> Json<Value> {
    Json(json!({ "status": "healthy" }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewUser {
    username: String,
    email: Option<String>,
    /// Taken, because their clients send it, and neither kept nor asked for again.
    #[expect(dead_code, reason = "there are no passwords")]
    password: Option<String>,
}

/// Makes a key for a user, in a namespace of the same name. Only whoever runs the daemon may, which the engine decides.
async fn register(
    State(front): State<Front>,
    Extension(who): Extension<Principal>,
    body: Result<Json<NewUser>, JsonRejection>,
) -> Answer<Json<Value>> {
    let Json(user) = body.map_err(|error| Error::invalid(error.body_text()))?;
    let namespace = user.username.parse().map_err(Error::from)?;
    let spec = KeySpec {
        label: Some(user.username.clone()),
        namespace: Some(namespace),
        max_sandboxes: Some(MAX_SANDBOXES),
        ..KeySpec::default()
    };
    let NewKey { key, secret } = front.mcp.engine().create_key(&who, spec).await?;
    Ok(Json(json!({
        "id": key.id.to_string(),
        "username": user.username,
        "email": user.email,
        "created_at": key.created_at.to_string(),
        "is_active": true,
        "api_key": secret,
    })))
}

async fn token() -> Refused {
    Refused(no_such(
        "there are no passwords and no tokens",
        "Send the key itself: Authorization: Bearer <key>, X-API-Key: <key> or ?api_key=<key>.",
    ))
}

async fn me(Extension(who): Extension<Principal>) -> Json<Value> {
    let id = who.key.as_ref().map_or_else(|| who.name.clone(), ToString::to_string);
    Json(json!({ "id": id, "username": who.name, "email": null, "is_active": true, "api_key": null }))
}

async fn api_key() -> Refused {
    Refused(no_such(
        "the server does not know the key: it keeps a hash",
        "A key is told once, when it is made. `warren key create` on the server makes another one.",
    ))
}

async fn regenerate() -> Refused {
    Refused(no_such(
        "a key cannot make its own successor, because a leaked one could too",
        "Whoever runs the server makes another one with `warren key create`, and ends this one with `warren key revoke`.",
    ))
}

fn no_such(message: &str, hint: &str) -> Error {
    Error::new(ErrorKind::Unsupported, message).with_hint(hint)
}

async fn sandboxes(State(front): State<Front>, Extension(who): Extension<Principal>) -> Answer<Json<Value>> {
    let user = User::new(front.mcp.engine(), &who, None);
    let own = user.sandboxes().await?.into_iter().map(|view| {
        json!({
            "id": view.id.to_string(),
            "user_id": user.id(),
            "name": name_of(&view),
            "created_at": view.created_at.to_string(),
            "docker_container_id": null,
        })
    });
    Ok(Json(json!({ "sandboxes": own.collect::<Vec<_>>() })))
}

async fn remove(
    State(front): State<Front>,
    Extension(who): Extension<Principal>,
    Path(sandbox): Path<String>,
) -> Answer<(StatusCode, Json<Value>)> {
    let engine = front.mcp.engine();
    let view = User::new(engine, &who, None).find(&sandbox).await?;
    engine.remove_sandbox(&who, &SandboxRef::from(&view.id), Force::Yes).await?;
    Ok((StatusCode::OK, Json(json!({ "message": format!("Sandbox {} deleted", name_of(&view)) }))))
}
