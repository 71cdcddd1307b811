//! Where the value of a secret may go: checked once, when the secret is set.

use super::SecretRules;
use crate::{Error, Result};

/// Most servers that one secret is for.
pub const MAX_SECRET_HOSTS: usize = 16;
/// Most headers, and most methods, of one secret.
const MAX_WORDS: usize = 16;
const MAX_WORD_BYTES: usize = 64;
const MAX_PATHS: usize = 32;
const MAX_PATH_BYTES: usize = 1024;
/// Where a value goes if its rules name no header.
const DEFAULT_HEADER: &str = "authorization";
/// Headers that say where a message ends or who it is for. A value there would change what the server reads.
const FRAMING: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

impl SecretRules {
    /// The rules in canonical form: headers in lower case and methods in upper case, each once, and a header where none
    /// is named.
    pub fn checked(mut self) -> Result<Self> {
        if self.hosts.is_empty() || self.hosts.len() > MAX_SECRET_HOSTS {
            let message =
                format!("hosts: a secret is for 1 to {MAX_SECRET_HOSTS} hosts, not for {}", self.hosts.len());
            return Err(Error::invalid(message)
                .with_hint("Name the servers that may get the value, such as api.github.com."));
        }
        once(&mut self.hosts);
        self.headers = words("headers", &self.headers, |word| word.to_ascii_lowercase())?;
        if let Some(header) = self.headers.iter().find(|header| is_framing(header)) {
            return Err(Error::invalid(format!("headers: {header} cannot hold a secret"))
                .with_hint("Use a header for credentials, such as authorization or x-api-key."));
        }
        if self.headers.is_empty() {
            self.headers.push(DEFAULT_HEADER.to_owned());
        }
        self.methods = words("methods", &self.methods, |word| word.to_ascii_uppercase())?;
        check_paths(&self.paths)?;
        once(&mut self.paths);
        Ok(self)
    }
}

fn is_framing(header: &str) -> bool {
    FRAMING.contains(&header) || header.starts_with("proxy-") || header.starts_with("sec-")
}

fn once<T: PartialEq + Clone>(list: &mut Vec<T>) {
    let mut kept: Vec<T> = Vec::with_capacity(list.len());
    for item in list.drain(..) {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    *list = kept;
}

/// Tokens of HTTP, in the form that `canonical` gives them.
fn words(field: &str, asked: &[String], canonical: impl Fn(&str) -> String) -> Result<Vec<String>> {
    if asked.len() > MAX_WORDS {
        return Err(Error::invalid(format!("{field}: there are {}; the limit is {MAX_WORDS}", asked.len())));
    }
    for (index, word) in asked.iter().enumerate() {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if word.is_empty() || word.len() > MAX_WORD_BYTES || !word.bytes().all(is_part) {
            let shown: String = word.chars().take(80).collect();
            return Err(Error::invalid(format!("{field}[{index}]: HTTP has no name {shown:?}"))
                .with_hint(format!("Use up to {MAX_WORD_BYTES} letters, digits and '-'.")));
        }
    }
    let mut words: Vec<_> = asked.iter().map(|word| canonical(word)).collect();
    once(&mut words);
    Ok(words)
}

fn check_paths(paths: &[String]) -> Result<()> {
    if paths.len() > MAX_PATHS {
        return Err(Error::invalid(format!("paths: there are {}; the limit is {MAX_PATHS}", paths.len())));
    }
    for (index, path) in paths.iter().enumerate() {
        let is_plain = |byte: u8| (0x21..0x7f).contains(&byte) && !b"?#".contains(&byte);
        let climbs = path.split('/').any(|part| part == "." || part == "..");
        let is_path = path.starts_with('/') && path.bytes().all(is_plain) && !climbs;
        if !is_path || path.len() > MAX_PATH_BYTES {
            let shown: String = path.chars().take(80).collect();
            let message = format!("paths[{index}]: {shown:?} is not the beginning of a path");
            return Err(Error::invalid(message)
                .with_hint("Give whole segments, such as /repos/acme, without query or blanks."));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> SecretRules {
        SecretRules { hosts: vec!["api.example.org".parse().unwrap()], ..SecretRules::default() }
    }

    fn texts(of: &[&str]) -> Vec<String> {
        of.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn rules_get_one_form_and_a_header() {
        let asked = SecretRules {
            hosts: vec!["api.example.org".parse().unwrap(), "API.example.org".parse().unwrap()],
            headers: texts(&["X-Api-Key", "x-api-key"]),
            methods: texts(&["get"]),
            paths: texts(&["/a/b"]),
            ..SecretRules::default()
        };
        let checked = asked.checked().unwrap();
        assert_eq!((checked.hosts.len(), &checked.headers), (1, &texts(&["x-api-key"])));
        assert_eq!(checked.methods, ["GET"]);
        assert_eq!(checked.clone().checked().unwrap(), checked);
        assert_eq!(rules().checked().unwrap().headers, ["authorization"]);
    }

    #[test]
    fn what_no_request_can_have_is_refused_with_its_place() {
        let refused = |asked: SecretRules, place: &str| {
            let error = asked.checked().unwrap_err();
            assert!(error.to_string().starts_with(place), "{error}");
        };
        refused(SecretRules::default(), "hosts: ");
        refused(SecretRules { hosts: vec![rules().hosts[0].clone(); 17], ..rules() }, "hosts: ");
        refused(SecretRules { headers: texts(&["a", "b c"]), ..rules() }, "headers[1]: ");
        for header in ["Host", "content-length", "transfer-encoding", "Proxy-Authorization"] {
            refused(SecretRules { headers: texts(&[header]), ..rules() }, "headers: ");
        }
        refused(SecretRules { headers: texts(&["a"; 17]), ..rules() }, "headers: ");
        refused(SecretRules { methods: texts(&[""]), ..rules() }, "methods[0]: ");
        for path in ["", "a", "/a?b", "/a/../b", "/a b", "/é"] {
            refused(SecretRules { paths: texts(&[path]), ..rules() }, "paths[0]: ");
        }
        refused(SecretRules { paths: texts(&["/a"; 33]), ..rules() }, "paths: ");
    }
}
