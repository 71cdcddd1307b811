//! OpenSandbox's network policies: the field of a new sandbox, and the API of its network sidecar.
//!
//! Theirs is a default and rules for names and addresses, in their order. Rules that deny addresses come first there,
//! whatever their place, so they become `deny` here; all others become `rules`.
//!
//! The package indexes that a sandbox reaches through the daemon have a name of their own in these rules, so that a
//! policy that was read can be sent back.

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

/// The target that stands for all package indexes.
const PACKAGES: &str = "packages.warren.internal";

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
        let rules = Rules::of(self.egress.as_deref().unwrap_or_default())?;
        let preset = match (self.default_action.or(self.default_action_too), rules.packages) {
            (Some(Action::Allow), Some(Action::Deny)) => return Err(packages_stay_open()),
            (Some(Action::Allow), _) => Preset::Public,
            (Some(Action::Deny) | None, Some(Action::Allow)) => Preset::Packages,
            (Some(Action::Deny) | None, _) => Preset::None,
        };
        Ok(NetworkSpec { deny: rules.deny, rules: rules.rules, ..NetworkSpec::preset(preset) })
    }
}

/// Their rules in our words.
#[derive(Debug, Default)]
struct Rules {
    deny: Vec<String>,
    rules: Vec<RuleSpec>,
    /// The first rule for package indexes.
    packages: Option<Action>,
}

impl Rules {
    fn of(theirs: &[EgressRule]) -> Result<Self> {
        let mut ours = Self::default();
        for (index, EgressRule { action, target }) in theirs.iter().enumerate() {
            let target = named(target);
            if is_packages(&target) {
                ours.packages.get_or_insert(*action);
                continue;
            }
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

fn is_packages(target: &str) -> bool {
    target.eq_ignore_ascii_case(PACKAGES)
}

fn packages_stay_open() -> Error {
    Error::invalid(format!("{PACKAGES} cannot be denied where everything else is allowed"))
        .with_hint("Deny by default, and allow what is needed.")
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
    let view = sandbox.engine.network(sandbox.who, sandbox.which).await?;
    Ok(Json(shape(&view, open_packages(&view))))
}

async fn replace(ask: Ask, OptionalJson(asked): OptionalJson<NetworkPolicy>) -> ApiResult<Json<Value>> {
    Ok(Json(change(&ask, NetworkChange::Replace(asked.spec()?)).await?))
}

async fn patch(ask: Ask, JsonList(asked): JsonList<EgressRule>) -> ApiResult<Json<Value>> {
    ask.who().may_change()?;
    refuse_empty(&asked, "rules")?;
    let Rules { deny, rules, packages } = Rules::of(&asked)?;
    let preset = match packages {
        Some(action) => with_packages(preset_of(&ask).await?, action)?,
        None => None,
    };
    let patch = NetworkPatch { preset, deny, rules, ..NetworkPatch::default() };
    Ok(Json(change(&ask, NetworkChange::Patch(patch)).await?))
}

async fn preset_of(ask: &Ask) -> Result<Preset> {
    let sandbox = ask.sandbox();
    let view = sandbox.engine.network(sandbox.who, sandbox.which).await?;
    Ok(view.policy.preset.unwrap_or_default())
}

/// Returns the preset after a rule for package indexes, or nothing if the rule changes nothing.
fn with_packages(preset: Preset, action: Action) -> Result<Option<Preset>> {
    match (action, preset) {
        (Action::Allow, Preset::None) => Ok(Some(Preset::Packages)),
        (Action::Deny, Preset::Packages) => Ok(Some(Preset::None)),
        (Action::Deny, Preset::None) | (Action::Allow, _) => Ok(None),
        (Action::Deny, _) => Err(packages_stay_open()),
    }
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
    // Without the rule that allows them, package indexes are denied by default.
    let closes = view.policy.preset.unwrap_or_default() == Preset::Packages
        && targets.iter().any(|target| is_packages(target.trim()));
    let preset = closes.then_some(Preset::None);
    if remove.is_empty() && preset.is_none() {
        return Ok(Json(shape(&view, Some("no matching targets found"))));
    }
    Ok(Json(
        change(&ask, NetworkChange::Patch(NetworkPatch { preset, remove, ..NetworkPatch::default() }))
            .await?,
    ))
}

fn refuse_empty<T>(list: &[T], what: &str) -> Result<()> {
    if list.is_empty() { Err(Error::invalid(format!("there are no {what} in the list"))) } else { Ok(()) }
}

async fn change(ask: &Ask, change: NetworkChange) -> Result<Value> {
    let sandbox = ask.sandbox();
    let view = sandbox.engine.change_network(sandbox.who, sandbox.which, change).await?;
    let pending = view.is_pending.then_some("it holds once the sandbox has been started again");
    Ok(shape(&view, pending.or_else(|| open_packages(&view))))
}

/// The rules in the order in which they are looked at.
fn ordered(policy: &NetworkSpec) -> impl Iterator<Item = (RuleAction, &str)> {
    let deny = policy.deny.iter().map(|rule| (RuleAction::Deny, rule.as_str()));
    let rules = policy.rules.iter().map(|rule| (rule.action, rule.target.as_str()));
    deny.chain(rules).chain(policy.allow.iter().map(|rule| (RuleAction::Allow, rule.as_str())))
}

/// Warns that rules do not close the package indexes: those are reached through the daemon.
fn open_packages(view: &NetworkView) -> Option<&'static str> {
    let has_packages = view.policy.preset.unwrap_or_default() >= Preset::Packages;
    let denies = ordered(&view.policy).any(|(action, _)| action == RuleAction::Deny);
    (has_packages && denies).then_some(
        "package indexes stay reachable through the daemon, whatever rules deny; a policy that denies by default and \
         does not allow packages.warren.internal closes them",
    )
}

fn shape(view: &NetworkView, reason: Option<&str>) -> Value {
    let preset = view.policy.preset.unwrap_or_default();
    let is_open = preset > Preset::Packages;
    let packages = (preset == Preset::Packages).then_some((RuleAction::Allow, PACKAGES));
    let egress: Vec<_> = packages
        .into_iter()
        .chain(ordered(&view.policy))
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

    fn view(policy: NetworkSpec) -> NetworkView {
        NetworkView { policy, ceilings: Vec::new(), requests: Vec::new(), held_by: None, is_pending: false }
    }

    #[test]
    fn a_policy_that_was_read_can_be_sent_back() {
        for preset in [Preset::None, Preset::Packages, Preset::Public] {
            let told = shape(&view(NetworkSpec::preset(preset)), None);
            assert_eq!(spec(told["policy"].clone()).unwrap().preset, Some(preset), "{told}");
        }
        let default = shape(&view(NetworkSpec::default()), None);
        assert_eq!(default["policy"]["egress"], json!([{ "action": "allow", "target": PACKAGES }]));
    }

    #[test]
    fn package_indexes_are_opened_and_closed_by_their_name() {
        use Action::{Allow, Deny};
        assert_eq!(with_packages(Preset::None, Allow).unwrap(), Some(Preset::Packages));
        assert_eq!(with_packages(Preset::Packages, Deny).unwrap(), Some(Preset::None));
        assert_eq!(with_packages(Preset::Public, Allow).unwrap(), None);
        assert!(with_packages(Preset::Public, Deny).is_err());
        let rule = |action| json!({ "egress": [{ "action": action, "target": PACKAGES }] });
        assert_eq!(spec(rule("allow")).unwrap().preset, Some(Preset::Packages));
        assert_eq!(spec(rule("deny")).unwrap().preset, Some(Preset::None));
    }

    #[test]
    fn a_denied_name_does_not_hide_that_packages_stay_open() {
        let deny = vec!["pypi.org".to_owned()];
        let told =
            |preset| open_packages(&view(NetworkSpec { deny: deny.clone(), ..NetworkSpec::preset(preset) }));
        assert_eq!((told(Preset::None).is_some(), told(Preset::Packages).is_some()), (false, true));
        assert_eq!(open_packages(&view(NetworkSpec::default())), None);
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
        let mode = |policy| shape(&view(policy), None)["mode"].clone();
        assert_eq!(mode(NetworkSpec::default()), "enforcing");
        assert_eq!(mode(NetworkSpec::preset(Preset::None)), "deny_all");
        assert_eq!(mode(NetworkSpec::preset(Preset::Public)), "allow_all");
        let allow = vec!["a.example".to_owned()];
        assert_eq!(mode(NetworkSpec { allow, ..NetworkSpec::default() }), "enforcing");
    }
}
