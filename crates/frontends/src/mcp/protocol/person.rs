//! Questions to the person at a client, where the client can show them (elicitation).

use std::time::Duration;

use futures_util::FutureExt;
use rmcp::{
    RoleServer,
    model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema},
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::client::Way;
use crate::mcp::call::{Consent, Person};

/// How long a person has for an answer.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

const DECISION: &str = "decision";
const ALLOW: &str = "allow";

/// The person at the client of a request. `is_stateless`: the request is of a revision without questions on the way.
pub(super) fn person(way: Way, is_stateless: bool, context: &RequestContext<RoleServer>) -> Person {
    let can_show = context.client_capabilities().is_some_and(|has| has.elicitation.is_some());
    if !can_show || is_stateless || way == Way::SingleAnswers {
        return Person::default();
    }
    let (peer, cancelled) = (context.peer.clone(), context.ct.clone());
    Person::new(move |message| {
        let (peer, cancelled) = (peer.clone(), cancelled.clone());
        async move {
            let Some(requested_schema) = schema() else { return Consent::Unanswered };
            let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
            let asked = timeout(PATIENCE, peer.create_elicitation(params));
            match cancelled.run_until_cancelled(asked).await {
                Some(Ok(Ok(answer))) => consent(&answer),
                _ => Consent::Unanswered,
            }
        }
        .boxed()
    })
}

/// Without a default: a client that fills in forms by itself consents to nothing.
fn schema() -> Option<ElicitationSchema> {
    let decision = json!({ "type": "string", "title": "Decision", "enum": [ALLOW, "refuse"] });
    let schema = json!({ "type": "object", "properties": { DECISION: decision }, "required": [DECISION] });
    serde_json::from_value(schema).ok()
}

fn consent(answer: &ElicitResult) -> Consent {
    let decision = answer.content.as_ref().and_then(|content| content.get(DECISION)).and_then(Value::as_str);
    match (&answer.action, decision) {
        (ElicitationAction::Accept, Some(ALLOW)) => Consent::Given,
        (ElicitationAction::Accept, Some(_)) | (ElicitationAction::Decline, _) => Consent::Refused,
        _ => Consent::Unanswered,
    }
}
