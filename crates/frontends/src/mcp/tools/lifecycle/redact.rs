//! Hides environment variables whose names, or values, look like secrets.

use std::collections::BTreeMap;

const REDACTED: &str = "[redacted]";

pub(super) fn env(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shown = |(name, value): (&String, &String)| {
        let is_secret = is_secret_name(name) || has_password(value);
        (name.clone(), if is_secret { REDACTED.to_owned() } else { value.clone() })
    };
    env.iter().map(shown).collect()
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    let is_anywhere = ["password", "passwd", "passphrase", "secret", "credential", "apikey", "privatekey"];
    let is_word = |word: &str| {
        matches!(word, "key" | "keys" | "auth" | "cookie" | "pass" | "pat" | "tokens")
            || word.ends_with("token")
    };
    is_anywhere.iter().any(|part| name.contains(part))
        || name.split(|c: char| !c.is_alphanumeric()).any(is_word)
}

/// `scheme://user:password@host`.
fn has_password(value: &str) -> bool {
    value.split_once("://").is_some_and(|(_, rest)| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_by_name_or_value_and_plain_things_are_shown() {
        for name in [
            "DB_PASSWORD",
            "token",
            "GITHUB_TOKEN",
            "OPENAI_API_KEY",
            "AWS_ACCESS_KEY_ID",
            "client-secret",
            "apiKey",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["PATH", "HOME", "KEYBOARD", "MONKEY", "TOKENIZERS_PARALLELISM", "PWD", "AUTHOR", "LANG"]
        {
            assert!(!is_secret_name(name), "{name}");
        }
        assert!(has_password("postgres://ana:pw@db/x") && !has_password("https://example.org/a:b@c"));
    }
}
