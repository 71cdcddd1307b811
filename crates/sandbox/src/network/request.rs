//! Requests for more network than a sandbox's policy allows, and what was answered.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{plan::check_request, spec::NetworkSpec};
use crate::{Error, KeyId, NetworkRequestId, RequestId, Result, object::only_object};

/// Most requests that are kept for one sandbox. Of those that were answered, the oldest go.
pub const MAX_REQUESTS: usize = 32;
/// Most requests of one sandbox that wait for an answer: more, and nobody reads them.
pub const MAX_PENDING_REQUESTS: usize = 8;
/// Most grants of one sandbox that hold at the same time: each is judged for each new connection.
pub const MAX_LIVE_GRANTS: usize = 16;
/// Most rules of one request: a person has to read them.
const MAX_REQUEST_RULES: usize = 8;
/// Longest reason of a request or a refusal, in bytes.
const MAX_REASON_BYTES: usize = 1000;
/// How long a grant holds when nobody says: an hour.
pub const DEFAULT_GRANT_SECONDS: u64 = 60 * 60;
/// The longest time of a grant: 30 days. What is needed for longer belongs into the policy.
pub const MAX_GRANT_SECONDS: u64 = 30 * 24 * 60 * 60;

/// A request for more network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NetworkRequestSpec {
    /// The rules to allow, written as in `allow` of a policy.
    #[schema(min_items = 1, max_items = 8, example = json!(["api.example.org:443"]))]
    pub rules: Vec<String>,
    /// Why, for the person who decides.
    #[schema(max_length = 1000)]
    pub reason: String,
    /// The time it is needed for. Whoever grants it decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2592000)]
    pub for_seconds: Option<u64>,
    /// The same id again returns the first request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}
only_object!(NetworkRequestSpec);

impl NetworkRequestSpec {
    /// Refuses what nobody could grant. `policy`: of the sandbox; what one of its rules denies cannot be asked for.
    pub fn check(&self, policy: &NetworkSpec) -> Result<()> {
        match self.rules.len() {
            0 => {
                return Err(Error::invalid("rules: there are none")
                    .with_hint("Name what is needed, such as api.example.org:443."));
            }
            1..=MAX_REQUEST_RULES => {}
            n => {
                let message = format!("rules: there are {n}; the limit is {MAX_REQUEST_RULES}");
                return Err(
                    Error::invalid(message).with_hint("Ask for fewer rules; you can ask again later.")
                );
            }
        }
        if self.reason.trim().is_empty() {
            return Err(Error::invalid("reason: it is empty")
                .with_hint("Say why you need this; a person will decide."));
        }
        check_reason(&self.reason)?;
        self.for_seconds.map_or(Ok(()), check_grant_seconds)?;
        check_request(&self.rules, policy)
    }
}

fn check_reason(reason: &str) -> Result<()> {
    if reason.len() > MAX_REASON_BYTES {
        let n_bytes = reason.len();
        let message = format!("reason: it has {n_bytes} bytes; the limit is {MAX_REASON_BYTES}");
        return Err(Error::invalid(message).with_hint("Say it in a sentence or two."));
    }
    Ok(())
}

/// Refuses a time that no grant can have.
pub fn check_grant_seconds(seconds: u64) -> Result<()> {
    if (1..=MAX_GRANT_SECONDS).contains(&seconds) {
        return Ok(());
    }
    let message = format!("forSeconds: it is {seconds}; it must be between 1 and {MAX_GRANT_SECONDS}");
    Err(Error::invalid(message).with_hint("For longer access, change the sandbox's network policy."))
}

/// A text of a stranger on one line, without characters that steer a terminal or change the order of the text.
pub fn printable(text: &str) -> String {
    let is_hidden = |character: char| {
        character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.split(|character: char| character.is_whitespace() || is_hidden(character))
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkRequestState {
    /// Waits for an answer.
    Pending,
    /// Holds until its time is over.
    Granted,
    Refused,
    /// Was granted, and its time is over.
    Ended,
}

impl NetworkRequestState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Granted => "granted",
            Self::Refused => "refused",
            Self::Ended => "ended",
        }
    }
}

/// One request, with its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRequest {
    pub id: NetworkRequestId,
    pub state: NetworkRequestState,
    /// The requested rules, written as in `allow` of a policy.
    pub rules: Vec<String>,
    /// Why, in the words of whoever asked.
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
    pub asked_at: Timestamp,
    pub asked_by: String,
    /// The key of whoever asked, if one was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// When the grant ends, or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

impl NetworkRequest {
    /// Whether it is a grant that holds at this time.
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.state == NetworkRequestState::Granted && self.until.is_some_and(|until| until > now)
    }

    /// Answers it by a refusal.
    pub fn refuse(&mut self, by: &str, at: Timestamp, reason: Option<&str>) -> Result<()> {
        check_reason(reason.unwrap_or_default())?;
        self.state = NetworkRequestState::Refused;
        self.answered_by = Some(by.to_owned());
        self.answered_at = Some(at);
        self.answer = reason.map(printable).filter(|reason| !reason.is_empty());
        self.until = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(rules: &[&str]) -> NetworkRequestSpec {
        let rules = rules.iter().map(|&rule| rule.to_owned()).collect();
        NetworkRequestSpec { rules, reason: "to read the issue".to_owned(), ..NetworkRequestSpec::default() }
    }

    #[test]
    fn what_nobody_could_grant_is_refused_with_its_place() {
        let policy = NetworkSpec { deny: vec!["*.corp.example".to_owned()], ..NetworkSpec::default() };
        let refused = |spec: NetworkRequestSpec| spec.check(&policy).unwrap_err().to_string();
        for (spec, expected) in [
            (asking(&[]), "rules: there are none"),
            (asking(&["a.example"; 9]), "rules: there are 9; the limit is 8"),
            (asking(&["a.example", "no rule!"]), "rules[1]: "),
            (asking(&["127.0.0.1:80"]), "rules[0]: "),
            (asking(&["db.corp.example"]), "rules[0]: \"db.corp.example\" can never match: deny[0]"),
            (NetworkRequestSpec { reason: " ".to_owned(), ..asking(&["a.example"]) }, "reason: it is empty"),
            (
                NetworkRequestSpec { reason: "x".repeat(1001), ..asking(&["a.example"]) },
                "reason: it has 1001",
            ),
            (NetworkRequestSpec { for_seconds: Some(0), ..asking(&["a.example"]) }, "forSeconds: it is 0"),
            (
                NetworkRequestSpec { for_seconds: Some(MAX_GRANT_SECONDS + 1), ..asking(&["a.example"]) },
                "forSeconds: it is 2592001",
            ),
        ] {
            let words = refused(spec);
            assert!(words.starts_with(expected), "{words}");
        }
        assert!(asking(&["api.example:443", "udp@192.0.2.1:123"]).check(&policy).is_ok());
    }

    #[test]
    fn a_stranger_cannot_steer_a_terminal() {
        assert_eq!(printable("to\u{1b}[2J fetch\r\nthe \u{202e}docs\u{200b}."), "to [2J fetch the docs .");
    }
}
