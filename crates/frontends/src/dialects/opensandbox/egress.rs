//! The API of OpenSandbox's network sidecar. Sandboxes have no network in this version, so the policy is always to deny
//! everything. What asks for less is refused; what asks for that, or for more of it, is already so.

use axum::{Json, Router, http::StatusCode, routing::get};
use sandbox::{Error, ErrorKind, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ask::{Ask, Front},
    handle::shown,
};
use crate::http::{ApiResult, JsonBody, JsonList};

/// Most rules of one request, as OpenSandbox has it.
const MAX_RULES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    Allow,
    Deny,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    action: Action,
    target: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkPolicy {
    #[serde(rename = "defaultAction")]
    #[schemars(rename = "defaultAction")]
    default_action: Option<Action>,
    /// The same
    #[serde(rename = "default_action")]
    #[schemars(rename = "default_action")]
    default_action_too: Option<Action>,
    egress: Option<Vec<Rule>>,
}

impl NetworkPolicy {
    /// Refuses a policy that would let something out.
    pub(super) fn check(&self) -> Result<()> {
        if [self.default_action, self.default_action_too].contains(&Some(Action::Allow)) {
            return Err(no_network("a network policy that allows everything"));
        }
        check_rules(self.egress.as_deref().unwrap_or_default())
    }
}

fn check_rules(rules: &[Rule]) -> Result<()> {
    if rules.len() > MAX_RULES {
        return Err(Error::invalid(format!("{} rules; the limit is {MAX_RULES}", rules.len())));
    }
    match rules.iter().find(|rule| rule.action == Action::Allow) {
        Some(rule) => Err(no_network(&format!("a rule that allows {:?}", shown(&rule.target)))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_that_only_deny_are_met() {
        let check = |value| serde_json::from_value::<NetworkPolicy>(value).unwrap().check();
        let denied = json!({ "defaultAction": "deny", "egress": [{ "action": "deny", "target": "a" }] });
        assert!(check(json!({})).is_ok() && check(denied).is_ok());
        for open in [
            json!({ "defaultAction": "allow" }),
            json!({ "default_action": "allow" }),
            json!({ "egress": [{ "action": "allow", "target": "example.org" }] }),
        ] {
            assert_eq!(check(open.clone()).unwrap_err().kind(), ErrorKind::Unsupported, "{open}");
        }
    }
}
