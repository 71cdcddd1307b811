//! The API of OpenSandbox's network sidecar. Sandboxes have no network in this version, so the policy is always to deny
//! everything. What asks for less is refused; what asks for that, or for more of it, is already so.

use axum::{Json, Router, http::StatusCode, routing::get};
use sandbox::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::{Ask, Front};
use crate::http::{ApiResult, JsonBody, JsonList};

/// Most rules of one request, as OpenSandbox has it.
const MAX_RULES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    Allow,
    Deny,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    action: Action,
    target: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NetworkPolicy {
    #[serde(alias = "default_action")]
    default_action: Option<Action>,
    egress: Option<Vec<Rule>>,
}

impl NetworkPolicy {
    /// Refuses a policy that would let something out.
    pub(super) fn check(&self) -> Result<()> {
        if self.default_action == Some(Action::Allow) {
            return Err(no_network("networkPolicy.defaultAction allow"));
        }
        check_rules(self.egress.as_deref().unwrap_or_default())
    }
}

fn check_rules(rules: &[Rule]) -> Result<()> {
    if rules.len() > MAX_RULES {
        return Err(Error::invalid(format!("{} rules; the limit is {MAX_RULES}", rules.len())));
    }
    match rules.iter().find(|rule| rule.action == Action::Allow) {
        Some(rule) => Err(no_network(&format!("a rule that allows {:?}", super::ask::shown(&rule.target)))),
        None => Ok(()),
    }
}

fn no_network(what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{what} cannot be met: sandboxes have no network in this version"),
    )
    .with_hint("Omit it, or deny everything. Packages are installed through the daemon's own gateway.")
}

pub(super) fn routes() -> Router<Front> {
    Router::new()
        .route("/policy", get(policy).post(replace).put(replace).patch(patch).delete(delete))
        .route("/healthz", get(health))
}

/// The same below `/sandboxes/{id}/networkpolicy`.
pub(super) fn lifecycle_routes() -> Router<Front> {
    Router::new()
        .route("/sandboxes/{sandbox}/networkpolicy", get(policy).put(replace).patch(patch).delete(delete))
}

async fn health(_: Ask) -> StatusCode {
    StatusCode::OK
}

async fn policy(_: Ask) -> Json<Value> {
    Json(denied())
}

async fn replace(ask: Ask, JsonBody(asked): JsonBody<NetworkPolicy>) -> ApiResult<Json<Value>> {
    ask.who().may_change()?;
    asked.check()?;
    Ok(Json(denied()))
}

async fn patch(ask: Ask, JsonList(rules): JsonList<Rule>) -> ApiResult<Json<Value>> {
    ask.who().may_change()?;
    check_rules(&rules)?;
    Ok(Json(denied()))
}

/// Targets whose rules go; there are none.
async fn delete(ask: Ask, JsonList(_): JsonList<String>) -> ApiResult<Json<Value>> {
    ask.who().may_change()?;
    Ok(Json(denied()))
}

fn denied() -> Value {
    json!({
        "status": "ok",
        "mode": "deny_all",
        "enforcementMode": "no network",
        "policy": { "defaultAction": "deny", "egress": [] },
    })
}
