//! `WWW-Authenticate`: how a registry wants to be asked.

use http_auth::ChallengeParser;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// Longest header that is looked at.
const MAX_CHALLENGE_BYTES: usize = 8 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl Challenge {
    /// The first that we can answer; tokens rather than passwords.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let challenges: Vec<Self> = headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .filter(|text| text.len() <= MAX_CHALLENGE_BYTES)
            .flat_map(parse)
            .collect();
        let bearer = challenges.iter().find(|challenge| matches!(challenge, Self::Bearer { .. }));
        bearer.or(challenges.first()).cloned()
    }
}

/// A header may hold several: `Bearer realm="…",service="…", Basic realm="…"`.
fn parse(text: &str) -> impl Iterator<Item = Challenge> {
    ChallengeParser::new(text).map_while(std::result::Result::ok).filter_map(|challenge| {
        let value = |key: &str| {
            let parameter = challenge.params.iter().find(|(known, _)| known.eq_ignore_ascii_case(key));
            parameter.map(|(_, value)| value.to_unescaped())
        };
        if challenge.scheme.eq_ignore_ascii_case("basic") {
            return Some(Challenge::Basic);
        }
        let is_bearer = challenge.scheme.eq_ignore_ascii_case("bearer");
        let realm = value("realm").filter(|_| is_bearer)?;
        Some(Challenge::Bearer { realm, service: value("service"), scope: value("scope") })
    })
}

#[cfg(test)]
mod tests {
    use super::Challenge;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        }
    }

    fn parse(text: &str) -> Vec<Challenge> {
        super::parse(text).collect()
    }

    #[test]
    fn challenges() {
        let hub = r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#;
        assert_eq!(
            parse(hub),
            [bearer(
                "https://auth.example/token",
                Some("registry.example"),
                Some("repository:a/b:pull,push")
            )]
        );
        assert_eq!(parse(r#"Basic realm="a \"b\", c=d""#), [Challenge::Basic]);
        assert_eq!(
            parse(r#"Negotiate, Basic realm=x, bearer realm="r""#),
            [Challenge::Basic, bearer("r", None, None)]
        );
        assert_eq!(parse("Basic"), [Challenge::Basic]);
        for nothing in ["", ",,,", "=", "Bearer", "Bearer realm", "Bearer =\"", "\"", "Bearer service=\"x"] {
            assert_eq!(parse(nothing), [], "{nothing}");
        }
    }
}
