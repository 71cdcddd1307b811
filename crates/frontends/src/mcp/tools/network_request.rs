//! `sandbox_network_request`: asks a person for more network than the sandbox's policy allows.
//!
//! The person at the client is asked where the client can show a question. Their consent opens what the caller could
//! have allowed by itself; for more, and for clients that show nothing, the request waits for whoever may grant it.

use std::time::Duration;

use engine::{NetworkRequestView, SandboxRef};
use sandbox::{
    Error, ErrorKind, NetworkRequestId, NetworkRequestSpec, NetworkRequestState, Next, RequestId,
    network::DEFAULT_GRANT_SECONDS,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::mcp::{
    Answer, Call, Failure, ToolResult, call::Consent, next_call::written, tools::telling::while_waiting,
    words::KnownTools,
};

const REQUEST: &str = "sandbox_network_request";
/// The longest wait for an answer in one call, in seconds.
const MAX_WAIT_SECONDS: u64 = 600;
/// Said of a refusal by the person at the client.
const REFUSED_AT_CLIENT: &str = "the person at the client refused it";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Arguments {
    name: String,
    /// Rules to allow, such as api.example.org:443
    #[serde(default)]
    rules: Vec<String>,
    /// Why you need this; a person will decide
    #[serde(default)]
    reason: String,
    /// Duration in seconds; default 3600
    #[schemars(range(min = 1, max = 2_592_000))]
    for_seconds: Option<u64>,
    /// An earlier request, to see its answer instead of asking
    request: Option<String>,
    /// Wait for the answer this many seconds
    #[schemars(range(max = 600))]
    wait_seconds: Option<u64>,
    request_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    name: String,
    request: String,
    /// pending, granted, refused or ended
    state: &'static str,
    rules: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// Why it was refused
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
}

pub(super) async fn request(call: Call, arguments: Arguments) -> ToolResult<Asked> {
    let which = call.sandbox(&arguments.name)?;
    let wait = Duration::from_secs(arguments.wait_seconds.unwrap_or(0).min(MAX_WAIT_SECONDS));
    let view = match &arguments.request {
        Some(id) => {
            let id = id.parse().map_err(|_malformed| no_such(id))?;
            call.engine().network_request(&call.who, &which, &id, Duration::ZERO).await?
        }
        None => {
            let request_id = arguments.request_id.map(|id| id.parse::<RequestId>()).transpose();
            let spec = NetworkRequestSpec {
                rules: arguments.rules,
                reason: arguments.reason,
                for_seconds: arguments.for_seconds,
                request_id: request_id.map_err(Error::from)?,
            };
            let view = call.engine().request_network(&call.who, &which, spec).await?;
            ask_person(&call, &which, view).await?
        }
    };
    let view = answered(&call, &which, view, wait).await?;
    let granted = view.request.state == NetworkRequestState::Granted;
    let needs_start = granted && call.engine().network(&call.who, &which).await?.is_pending;
    let warning = told(&arguments.name, &view, needs_start);
    let request = view.request;
    Ok(Answer::new(Asked {
        name: arguments.name,
        request: request.id.to_string(),
        state: request.state.as_str(),
        rules: request.rules,
        until: request.until.map(|until| until.to_string()),
        answer: request.answer,
    })
    .warn_all(warning))
}

/// Returns the failure of a change that is beyond what callers may allow, with the call that asks a person for it.
pub(super) fn refused(call: &Call, sandbox: &str, error: Error) -> Failure {
    let rules = match error.next() {
        Some(Next::AskNetwork(rules)) if call.surface.find(REQUEST).is_some() => rules.clone(),
        _ => return error.into(),
    };
    let rules = if rules.is_empty() { vec!["HOST:443".to_owned()] } else { rules };
    let ask = written(REQUEST, &json!({ "name": sandbox, "rules": rules, "reason": "WHY" }));
    let way = KnownTools::of(call, &call.surface).way_to(REQUEST);
    let way = way.map_or(String::new(), |way| format!(" {way}"));
    Failure::from(error).with_hint(format!("Omit it, or ask a person for it: call {ask}.{way}"))
}

fn no_such(id: &str) -> Error {
    let shown: String = id.chars().take(64).collect();
    Error::not_found(format!("no request {shown:?}"))
        .with_hint("A request's id is ask- and 13 characters; it is in the answer to the request.")
}

/// Asks the person at the client, if there is one. Somebody else may answer the request meanwhile.
async fn ask_person(
    call: &Call,
    which: &SandboxRef,
    view: NetworkRequestView,
) -> Result<NetworkRequestView, Failure> {
    if view.request.state != NetworkRequestState::Pending {
        return Ok(view);
    }
    let (engine, who, id) = (call.engine(), &call.who, &view.request.id.clone());
    let asked = while_waiting(call, None, call.person.consents(question(&view)));
    let consent = tokio::select! {
        consent = asked => consent,
        answered = engine.network_request(who, which, id, Duration::MAX) => return Ok(answered?),
    };
    match consent {
        None | Some(Consent::Unanswered) => Ok(view),
        Some(Consent::Refused) => {
            let reason = Some(REFUSED_AT_CLIENT.to_owned());
            Ok(engine.refuse_network_request(who, which, id, reason).await?)
        }
        Some(Consent::Given) => match engine.confirm_network_request(who, which, id).await {
            // The person may not open it either.
            Err(error) if error.kind() == ErrorKind::Denied => Ok(view),
            granted => Ok(granted?),
        },
    }
}

fn question(view: &NetworkRequestView) -> String {
    let request = &view.request;
    let seconds = request.for_seconds.unwrap_or(DEFAULT_GRANT_SECONDS);
    format!(
        "May sandbox {} reach {} for {}? The agent says: {:?}",
        view.name,
        request.rules.join(", "),
        span(seconds),
        request.reason
    )
}

fn span(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (hours, 0, 0) => format!("{hours} h"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

async fn answered(
    call: &Call,
    which: &SandboxRef,
    view: NetworkRequestView,
    wait: Duration,
) -> Result<NetworkRequestView, Failure> {
    if wait.is_zero() || view.request.state != NetworkRequestState::Pending {
        return Ok(view);
    }
    let id: NetworkRequestId = view.request.id.clone();
    let waiting = call.engine().network_request(&call.who, which, &id, wait);
    tokio::select! {
        answered = while_waiting(call, Some(wait), waiting) => Ok(answered?),
        () = call.cancelled.cancelled() => Ok(view),
    }
}

/// Returns what the caller should do next, if anything.
fn told(name: &str, view: &NetworkRequestView, needs_start: bool) -> Option<String> {
    let id = view.request.id.as_str();
    let sandbox = json!({ "name": name });
    Some(match view.request.state {
        NetworkRequestState::Pending => {
            let look = json!({ "name": name, "request": id, "waitSeconds": 60 });
            let look = written("sandbox_network_request", &look);
            format!(
                "A person has to grant it (warren network {name} --grant {id}). Go on with other work, or call {look} to \
                 wait for the answer."
            )
        }
        NetworkRequestState::Granted if needs_start => {
            let (stop, start) = (written("sandbox_stop", &sandbox), written("sandbox_start", &sandbox));
            format!("This applies after the next start of the sandbox: call {stop}, then {start}.")
        }
        NetworkRequestState::Granted => return None,
        NetworkRequestState::Refused => {
            "It was refused. Do without it; do not ask for the same again.".to_owned()
        }
        NetworkRequestState::Ended => "Its time is over. Ask again if it is still needed.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use engine::Principal;
    use futures_util::FutureExt;
    use sandbox::Capability;
    use serde_json::Value;

    use super::*;
    use crate::mcp::{
        call::Person,
        testing::{Client, ask},
    };

    fn asking() -> Value {
        json!({ "name": "box", "rules": ["api.example:443"], "reason": "to read the issue", "forSeconds": 5400 })
    }

    /// A client whose person answers so, and the questions that the person was asked.
    fn with_person(client: &Client, consent: Consent) -> (Call, Arc<Mutex<Vec<String>>>) {
        let questions = Arc::new(Mutex::new(Vec::new()));
        let asked = Arc::clone(&questions);
        let person = Person::new(move |question| {
            asked.lock().unwrap().push(question);
            std::future::ready(consent).boxed()
        });
        (Call { person, ..client.call.clone() }, questions)
    }

    async fn client() -> Option<Client> {
        let client = Client::new().await;
        if !client.has(Capability::Network) {
            return None;
        }
        client.data("sandbox_create", json!({ "name": "box" })).await;
        Some(client)
    }

    #[tokio::test]
    async fn without_a_person_at_the_client_a_request_waits_for_one_elsewhere() {
        let Some(client) = client().await else { return };
        let envelope = client.ask("sandbox_network_request", asking()).await;
        let asked = &envelope["data"];
        assert_eq!(asked["state"], "pending", "{envelope:#}");
        let id = asked["request"].as_str().unwrap();
        assert!(envelope["warnings"][0].as_str().unwrap().contains(id), "{envelope:#}");
        let look = json!({ "name": "box", "request": id });
        assert_eq!(client.data("sandbox_network_request", look.clone()).await["state"], "pending");
        let (engine, which) = (client.call.engine(), client.call.sandbox("box").unwrap());
        let owner = Principal::operator("root");
        engine.grant_network_request(&owner, &which, &id.parse().unwrap(), None).await.unwrap();
        let granted = client.data("sandbox_network_request", look).await;
        assert_eq!(granted["state"], "granted", "{granted:#}");
        assert!(granted["until"].is_string(), "{granted:#}");
        let unknown = json!({ "name": "box", "request": "nothing" });
        client.error("sandbox_network_request", unknown, "not_found").await;
    }

    #[tokio::test]
    async fn the_person_at_the_client_decides_what_the_client_could_allow() {
        let Some(client) = client().await else { return };
        for (consent, state) in
            [(Consent::Unanswered, "pending"), (Consent::Refused, "refused"), (Consent::Given, "granted")]
        {
            let (call, questions) = with_person(&client, consent);
            let envelope = ask(call, "sandbox_network_request", asking()).await;
            assert_eq!(envelope["data"]["state"], state, "{envelope:#}");
            let expected =
                "May sandbox box reach api.example:443 for 1 h 30 min? The agent says: \"to read the issue\"";
            assert_eq!(*questions.lock().unwrap(), [expected]);
        }
        // Under a ceiling, the consent of whoever holds the key is not enough.
        let (call, _) = with_person(&client, Consent::Given);
        let bound = Call { who: Principal::developer("dev"), ..call };
        let other = json!({ "name": "box", "rules": ["b.example"], "reason": "a test" });
        let envelope = ask(bound, "sandbox_network_request", other).await;
        assert_eq!(envelope["data"]["state"], "pending", "{envelope:#}");
    }

    #[tokio::test]
    async fn whoever_may_not_allow_it_is_told_how_to_ask() {
        let Some(client) = client().await else { return };
        let bound = || Call { who: Principal::developer("dev"), ..client.call.clone() };
        let change = json!({ "name": "box", "allow": ["example.org:80"] });
        let refused = ask(bound(), "sandbox_network", change).await;
        let request = json!({ "name": "box", "rules": ["example.org:80"], "reason": "WHY" });
        let hint = refused["error"]["hint"].as_str().unwrap();
        assert!(hint.contains(&written(REQUEST, &request)), "{refused:#}");
        assert!(hint.contains(r#"toolset_enable {"toolsets":["network"]}"#), "{refused:#}");
        assert_eq!(ask(bound(), REQUEST, request).await["data"]["state"], "pending");
        let create = json!({ "network": { "preset": "public" } });
        let refused = ask(bound(), "sandbox_create", create).await;
        assert!(refused["error"]["hint"].as_str().unwrap().contains(REQUEST), "{refused:#}");
    }
}
