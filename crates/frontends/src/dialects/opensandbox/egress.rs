//! OpenSandbox's network policies: the field of a new sandbox, and the API of its network sidecar.
//!
//! Theirs is a default and rules for names and addresses, in their order. Rules that deny addresses come first there,
//! whatever their place, so they become `deny` here; all others become `rules`.

use axum::{Json, Router, http::StatusCode, routing::get};
use engine::{NetworkChange, NetworkPatch, NetworkView};
use sandbox::{
    Error, NetworkSpec, Preset, Result,
    network::{Group, Rule, RuleAction, RuleSpec, Target},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::{Ask, Front};
use crate::http::{ApiResult, JsonList, OptionalJson};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    Allow,
    Deny,
}

impl From<Action> for RuleAction {
    fn from(action: Action) -> Self {
        match action {
            Action::Allow => Self::Allow,
            Action::Deny => Self::Deny,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EgressRule {
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
    egress: Option<Vec<EgressRule>>,
}

impl NetworkPolicy {
    /// The same in our words. What is denied by default is everything, package indexes too.
    pub(super) fn spec(&self) -> Result<NetworkSpec> {
        let preset = match self.default_action.or(self.default_action_too) {
            Some(Action::Allow) => Preset::Public,
            Some(Action::Deny) | None => Preset::None,
        };
        let rules = Rules::of(self.egress.as_deref().unwrap_or_default())?;
        Ok(NetworkSpec { deny: rules.deny, rules: rules.rules, ..NetworkSpec::preset(preset) })
    }
}

/// Their rules in our words.
#[derive(Debug, Default)]
struct Rules {
    deny: Vec<String>,
    rules: Vec<RuleSpec>,
}

impl Rules {
    fn of(theirs: &[EgressRule]) -> Result<Self> {
        let mut ours = Self::default();
        for (index, EgressRule { action, target }) in theirs.iter().enumerate() {
            let target = named(target);
            let rule: Rule = target
                .parse()
                .map_err(|error: Error| error.reworded(|words| format!("egress[{index}]: {words}")))?;
            match (action, rule.target) {
                (Action::Deny, Target::Net(_)) => ours.deny.push(target),
                _ => ours.rules.push(RuleSpec { action: (*action).into(), target }),
            }
        }
        Ok(ours)
    }
}

/// A word that is a group to us is a host of that name to them.
fn named(target: &str) -> String {
    let target = target.trim();
    match target.parse::<Group>() {
        Ok(_) => format!("{target}."),
        Err(()) => target.to_owned(),
    }
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

async fn policy(ask: Ask) -> ApiResult<Json<Value>> {
    let sandbox = ask.sandbox();
    Ok(Json(shape(&sandbox.engine.network(sandbox.who, sandbox.which).await?, None)))
}

async fn replace(ask: Ask, OptionalJson(asked): OptionalJson<NetworkPolicy>) -> ApiResult<Json<Value>> {
    Ok(Json(change(&ask, NetworkChange::Replace(asked.spec()?)).await?))
}

async fn patch(ask: Ask, JsonList(asked): JsonList<EgressRule>) -> ApiResult<Json<Value>> {
    ask.who().may_change()?;
    refuse_empty(&asked, "rules")?;
    let Rules { deny, rules } = Rules::of(&asked)?;
    Ok(Json(
        change(&ask, NetworkChange::Patch(NetworkPatch { deny, rules, ..NetworkPatch::default() })).await?,
    ))
}

/// Removes the rules of some targets. A target without a rule is ignored, as it is there.
async fn delete(ask: Ask, JsonList(targets): JsonList<String>) -> ApiResult<Json<Value>> {
    ask.who().may_change()?;
    refuse_empty(&targets, "targets")?;
    let sandbox = ask.sandbox();
    let view = sandbox.engine.network(sandbox.who, sandbox.which).await?;
    let is_there = |target: &String| ordered(&view.policy).any(|(_, own)| own.eq_ignore_ascii_case(target));
    let mut remove: Vec<_> = targets.iter().map(|target| named(target)).filter(is_there).collect();
    remove.sort_unstable();
    remove.dedup_by(|one, other| one.eq_ignore_ascii_case(other));
    if remove.is_empty() {
        return Ok(Json(shape(&view, Some("no matching targets found"))));
    }
    Ok(Json(change(&ask, NetworkChange::Patch(NetworkPatch { remove, ..NetworkPatch::default() })).await?))
}

fn refuse_empty<T>(list: &[T], what: &str) -> Result<()> {
    if list.is_empty() { Err(Error::invalid(format!("there are no {what} in the list"))) } else { Ok(()) }
}

async fn change(ask: &Ask, change: NetworkChange) -> Result<Value> {
    let sandbox = ask.sandbox();
    let view = sandbox.engine.change_network(sandbox.who, sandbox.which, change).await?;
    let pending = view.is_pending.then_some("it holds once the sandbox has been started again");
    Ok(shape(&view, pending))
}

/// The rules in the order in which they are looked at.
fn ordered(policy: &NetworkSpec) -> impl Iterator<Item = (RuleAction, &str)> {
    let deny = policy.deny.iter().map(|rule| (RuleAction::Deny, rule.as_str()));
    let rules = policy.rules.iter().map(|rule| (rule.action, rule.target.as_str()));
    deny.chain(rules).chain(policy.allow.iter().map(|rule| (RuleAction::Allow, rule.as_str())))
}

fn shape(view: &NetworkView, reason: Option<&str>) -> Value {
    let is_open = view.policy.preset.unwrap_or_default() > Preset::Packages;
    let egress: Vec<_> = ordered(&view.policy)
        .map(|(action, target)| json!({ "action": action.as_str(), "target": target }))
        .collect();
    let mode = match (egress.is_empty(), is_open) {
        (true, true) => "allow_all",
        (true, false) => "deny_all",
        (false, _) => "enforcing",
    };
    let mut answer = json!({
        "status": "ok",
        "mode": mode,
        "enforcementMode": view.held_by.as_deref().unwrap_or("not running"),
        "policy": { "defaultAction": if is_open { "allow" } else { "deny" }, "egress": egress },
    });
    if let Some(reason) = reason {
        answer["reason"] = json!(reason);
    }
    answer
}

#[cfg(test)]
mod tests {
    use sandbox::{ErrorKind, plan_network};

    use super::*;

    fn spec(value: Value) -> Result<NetworkSpec> {
        serde_json::from_value::<NetworkPolicy>(value).unwrap().spec()
    }

    #[test]
    fn a_policy_means_the_same_in_our_words() {
        let spec = spec(json!({ "defaultAction": "deny", "egress": [
            { "action": "allow", "target": "*.Example.org" },
            { "action": "deny", "target": "10.0.0.0/8" },
            { "action": "deny", "target": "evil.test" },
            { "action": "allow", "target": "any" },
        ] }))
        .unwrap();
        assert_eq!(spec.preset, Some(Preset::None));
        let ordered: Vec<_> = ordered(&spec).map(|(action, target)| format!("{action} {target}")).collect();
        assert_eq!(ordered, ["deny 10.0.0.0/8", "allow *.Example.org", "deny evil.test", "allow any."]);
        plan_network(&spec, &[]).unwrap();
    }

    #[test]
    fn without_a_default_everything_is_denied() {
        let preset = |value| spec(value).unwrap().preset;
        assert_eq!(preset(json!({})), Some(Preset::None));
        assert_eq!(preset(json!({ "defaultAction": "allow" })), Some(Preset::Public));
        assert_eq!(preset(json!({ "default_action": "allow" })), Some(Preset::Public));
    }

    #[test]
    fn a_rule_that_is_none_is_refused_with_its_place() {
        for target in ["", "*", "a b", "http://a.example", "a.*.example", "10.0.0.1/8", "a.example:0"] {
            let rules = json!({ "egress": [
                { "action": "allow", "target": "a.example" }, { "action": "deny", "target": target }] });
            let refused = spec(rules).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidRequest, "{target}");
            assert!(refused.to_string().starts_with("egress[1]: "), "{refused}");
        }
    }

    #[test]
    fn the_answer_tells_the_mode() {
        let mode = |policy: NetworkSpec| {
            let (ceilings, requests) = (Vec::new(), Vec::new());
            let view = NetworkView { policy, ceilings, requests, held_by: None, is_pending: false };
            shape(&view, None)["mode"].clone()
        };
        assert_eq!(mode(NetworkSpec::default()), "deny_all");
        assert_eq!(mode(NetworkSpec::preset(Preset::Public)), "allow_all");
        let allow = vec!["a.example".to_owned()];
        assert_eq!(mode(NetworkSpec { allow, ..NetworkSpec::default() }), "enforcing");
    }
}
