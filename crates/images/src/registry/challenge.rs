//! `WWW-Authenticate`: how a registry wants to be asked.

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
fn parse(text: &str) -> Vec<Challenge> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((scheme, parameters)) = next_scheme(rest) {
        let (parameters, after) = parse_parameters(parameters);
        let value = |key: &str| {
            parameters
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(key))
                .map(|(_, value)| value.clone())
        };
        if scheme.eq_ignore_ascii_case("basic") {
            found.push(Challenge::Basic);
        } else if scheme.eq_ignore_ascii_case("bearer")
            && let Some(realm) = value("realm")
        {
            found.push(Challenge::Bearer { realm, service: value("service"), scope: value("scope") });
        }
        rest = after;
    }
    found
}

fn next_scheme(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches([' ', ',', '\t']);
    if text.is_empty() {
        return None;
    }
    Some(text.split_once(' ').unwrap_or((text, "")))
}

/// `key="value", key=value`, up to a word that no `=` follows: the next scheme.
fn parse_parameters(mut text: &str) -> (Vec<(String, String)>, &str) {
    let mut parameters = Vec::new();
    loop {
        text = text.trim_start_matches([' ', ',', '\t']);
        let key_length = text.find(['=', ' ', ',']).unwrap_or(text.len());
        if !text[key_length..].starts_with('=') {
            return (parameters, text);
        }
        let (key, after) = (&text[..key_length], &text[key_length + 1..]);
        let (value, after) = parse_value(after);
        parameters.push((key.to_owned(), value));
        text = after;
    }
}

fn parse_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let length = text.find([',', ' ']).unwrap_or(text.len());
        return (text[..length].to_owned(), &text[length..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        }
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
