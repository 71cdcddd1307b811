//! Values in place of placeholders, in one request: where the operator allows it, and nowhere else.

use std::fmt;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use hyper::{
    Method, Uri,
    header::{self, HeaderMap, HeaderName, HeaderValue},
    http::{request::Parts, uri::PathAndQuery},
};
use memchr::memmem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sandbox::{HeldSecret, SecretRules, network::DnsName};

/// Most bytes of a header or an address with its values: placeholders are short and values may not be.
const MAX_FILLED: usize = 64 * 1024;
/// Everything but what never needs to be escaped in an address.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a request is not sent on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The rules of the secret at this index do not cover where its placeholder is.
    Uncovered { secret: usize, place: PlaceholderSite },
    /// The request is too long with its values.
    TooLong,
}

/// Where a placeholder was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlaceholderSite {
    Header(HeaderName),
    Path,
    Query,
}

impl fmt::Display for PlaceholderSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "the header {name}"),
            Self::Path => f.write_str("the path"),
            Self::Query => f.write_str("the query"),
        }
    }
}

/// The secrets of a sandbox, for requests to one host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filler<'a> {
    pub(crate) secrets: &'a [HeldSecret],
    pub(crate) host: &'a DnsName,
}

impl<'a> Filler<'a> {
    /// Puts values into the head of a request. Returns which secrets were put in.
    pub(crate) fn fill_head(self, head: &mut Parts) -> Result<Vec<usize>, Refusal> {
        let mut used = Vec::new();
        self.fill_headers(head, &mut used)?;
        self.fill_address(head, &mut used)?;
        used.sort_unstable();
        used.dedup();
        Ok(used)
    }

    fn fill_headers(self, head: &mut Parts, used: &mut Vec<usize>) -> Result<(), Refusal> {
        let mut headers = std::mem::take(&mut head.headers);
        for (name, value) in &mut headers {
            for (at, secret) in self.secrets.iter().enumerate() {
                let Some(found) = HeaderPlaceholder::in_header(value, secret) else { continue };
                let is_covered = self.covers(secret, head) && covers_header(&secret.rules, name);
                if !is_covered {
                    return Err(Refusal::Uncovered {
                        secret: at,
                        place: PlaceholderSite::Header(name.clone()),
                    });
                }
                *value = found.filled(secret).ok_or(Refusal::TooLong)?;
                // Never kept in a table of HTTP/2, where its length could be guessed from.
                value.set_sensitive(true);
                used.push(at);
            }
        }
        head.headers = headers;
        Ok(())
    }

    fn fill_address(self, head: &mut Parts, used: &mut Vec<usize>) -> Result<(), Refusal> {
        for (at, secret) in self.secrets.iter().enumerate() {
            let placeholder = secret.placeholder.as_bytes();
            if contains(head.uri.path().as_bytes(), placeholder) {
                return Err(Refusal::Uncovered { secret: at, place: PlaceholderSite::Path });
            }
            let Some(query) = head.uri.query().filter(|query| contains(query.as_bytes(), placeholder)) else {
                continue;
            };
            if !self.covers(secret, head) || !secret.rules.query {
                return Err(Refusal::Uncovered { secret: at, place: PlaceholderSite::Query });
            }
            let value = in_query(secret.value.expose());
            let filled = replace(query.as_bytes(), placeholder, value.as_bytes(), MAX_FILLED);
            head.uri = filled.and_then(|query| with_query(&head.uri, &query)).ok_or(Refusal::TooLong)?;
            used.push(at);
        }
        Ok(())
    }

    /// Whether the body of a request has to be looked at.
    pub(crate) fn fills_body(self, head: &Parts) -> bool {
        // In a compressed body there is no placeholder to be found.
        !head.headers.contains_key(header::CONTENT_ENCODING) && self.for_body(head).next().is_some()
    }

    /// Puts values into a body of up to `limit` bytes; `None` if it gets longer. Returns which secrets were put in.
    pub(crate) fn fill_body(self, head: &Parts, body: &[u8], limit: usize) -> Option<(Vec<u8>, Vec<usize>)> {
        let (mut filled, mut used) = (body.to_vec(), Vec::new());
        let syntax = Syntax::of(&head.headers);
        for (at, secret) in self.for_body(head) {
            let placeholder = secret.placeholder.as_bytes();
            if contains(&filled, placeholder) {
                let value = syntax.write(secret.value.expose());
                filled = replace(&filled, placeholder, value.as_bytes(), limit)?;
                used.push(at);
            }
        }
        Some((filled, used))
    }

    fn for_body(self, head: &Parts) -> impl Iterator<Item = (usize, &'a HeldSecret)> {
        let all = self.secrets.iter().enumerate();
        all.filter(move |(_, secret)| secret.rules.body && self.covers(secret, head))
    }

    /// Whether a request may have the value at all.
    fn covers(self, secret: &HeldSecret, head: &Parts) -> bool {
        let rules = &secret.rules;
        rules.hosts.contains(self.host)
            && covers_method(rules, &head.method)
            && covers_path(rules, head.uri.path())
    }

    /// Words the answer that the client reads when a placeholder is where it must not be.
    pub(crate) fn in_words(self, refusal: &Refusal) -> String {
        match refusal {
            Refusal::TooLong => "The request is too long with the values of its secrets.\n".to_owned(),
            Refusal::Uncovered { secret, place } => {
                let Some(secret) = self.secrets.get(*secret) else { return String::new() };
                format!(
                    "The secret {} is not put into {place} of this request to {}.\nThe operator allows it {}.\n",
                    secret.name,
                    self.host,
                    allowed(&secret.rules)
                )
            }
        }
    }
}

/// Says in words what the operator allows.
fn allowed(rules: &SecretRules) -> String {
    let list = |items: &[String], any: &str| if items.is_empty() { any.to_owned() } else { items.join(", ") };
    let hosts: Vec<_> = rules.hosts.iter().map(ToString::to_string).collect();
    let mut places = rules.headers.clone();
    places.extend(rules.query.then(|| "the query".to_owned()));
    places.extend(rules.body.then(|| "the body".to_owned()));
    format!(
        "for {} over HTTPS; in: {}; methods: {}; paths: {}",
        hosts.join(", "),
        list(&places, "nowhere"),
        list(&rules.methods, "all"),
        list(&rules.paths, "all")
    )
}

/// A placeholder in a header.
enum HeaderPlaceholder {
    Plain(Vec<u8>),
    /// Within `Basic` credentials, here decoded.
    Basic(Vec<u8>),
}

impl HeaderPlaceholder {
    fn in_header(value: &HeaderValue, secret: &HeldSecret) -> Option<Self> {
        let (bytes, placeholder) = (value.as_bytes(), secret.placeholder.as_bytes());
        if contains(bytes, placeholder) {
            return Some(Self::Plain(bytes.to_vec()));
        }
        let credentials = basic(bytes)?;
        contains(&credentials, placeholder).then_some(Self::Basic(credentials))
    }

    fn filled(&self, secret: &HeldSecret) -> Option<HeaderValue> {
        let (placeholder, value) = (secret.placeholder.as_bytes(), secret.value.expose().as_bytes());
        let filled = match self {
            Self::Plain(bytes) => replace(bytes, placeholder, value, MAX_FILLED)?,
            Self::Basic(credentials) => {
                let credentials = replace(credentials, placeholder, value, MAX_FILLED)?;
                format!("Basic {}", STANDARD.encode(credentials)).into_bytes()
            }
        };
        HeaderValue::from_bytes(&filled).ok()
    }
}

/// The decoded credentials of `Basic`.
fn basic(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = value.split_at_checked(6)?;
    scheme.eq_ignore_ascii_case(b"basic ").then(|| LENIENT.decode(rest.trim_ascii()).ok())?
}

/// How a value is written in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Form,
    Json,
    Plain,
}

impl Syntax {
    fn of(headers: &HeaderMap) -> Self {
        let kind =
            headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            json if json == "application/json" || json.ends_with("+json") => Self::Json,
            _ => Self::Plain,
        }
    }

    fn write(self, value: &str) -> String {
        match self {
            Self::Form => in_query(value),
            Self::Json => in_json(value),
            Self::Plain => value.to_owned(),
        }
    }
}

/// A value as it stands in an address or a form.
fn in_query(value: &str) -> String {
    utf8_percent_encode(value, ESCAPED).to_string()
}

/// A value as it stands in a string of JSON: of visible ASCII two characters are escaped.
fn in_json(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"")
}

fn covers_header(rules: &SecretRules, name: &HeaderName) -> bool {
    rules.headers.iter().any(|allowed| allowed == name.as_str())
}

fn covers_method(rules: &SecretRules, method: &Method) -> bool {
    rules.methods.is_empty() || rules.methods.iter().any(|allowed| allowed == method.as_str())
}

/// Whole segments only, and no path that a server could read as another one.
fn covers_path(rules: &SecretRules, path: &str) -> bool {
    rules.paths.is_empty()
        || (is_plain(path)
            && rules.paths.iter().any(|allowed| is_beneath(path, allowed.trim_end_matches('/'))))
}

fn is_beneath(path: &str, beginning: &str) -> bool {
    path.strip_prefix(beginning).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether every server reads a path alike: no segments that lead elsewhere, no escaped separators, none empty, and no
/// escapes that servers drop, replace or end at.
fn is_plain(path: &str) -> bool {
    let Ok(decoded) = percent_decode_str(path).decode_utf8() else { return false };
    let has_escaped_separator = decoded.matches('/').count() != path.matches('/').count();
    // An escape that makes another escape is read twice by some.
    let is_odd = decoded.contains(['\\', '%'])
        || decoded.contains(char::is_control)
        || decoded.contains("//")
        || has_escaped_separator;
    !is_odd && !decoded.split('/').any(leads_elsewhere)
}

/// Whether a segment could be a step to the same or the upper directory: for servers that leave out parameters, what
/// looks like a query, or blanks around it.
fn leads_elsewhere(segment: &str) -> bool {
    let name = segment.split([';', '?', '#']).next().unwrap_or_default();
    matches!(name.trim(), "." | "..")
}

fn with_query(uri: &Uri, query: &[u8]) -> Option<Uri> {
    let whole = [uri.path().as_bytes(), b"?", query].concat();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(whole).ok()?);
    Uri::from_parts(parts).ok()
}

fn contains(text: &[u8], placeholder: &[u8]) -> bool {
    !placeholder.is_empty() && memmem::find(text, placeholder).is_some()
}

/// Replaces every occurrence; `None` if the result is longer than `limit`.
fn replace(text: &[u8], placeholder: &[u8], value: &[u8], limit: usize) -> Option<Vec<u8>> {
    let count = memmem::find_iter(text, placeholder).count();
    let length = text.len() - count * placeholder.len() + count * value.len();
    if length > limit {
        return None;
    }
    let mut filled = Vec::with_capacity(length);
    let mut rest = text;
    while let Some(at) = memmem::find(rest, placeholder) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(value);
        rest = &rest[at + placeholder.len()..];
    }
    filled.extend_from_slice(rest);
    Some(filled)
}

#[cfg(test)]
mod tests {
    use hyper::Request;
    use sandbox::SecretValue;

    use super::*;

    const PLACEHOLDER: &str = "warren-secret_0a1b2c";

    fn secret(rules: SecretRules) -> HeldSecret {
        HeldSecret {
            name: "TOKEN".parse().unwrap(),
            placeholder: PLACEHOLDER.to_owned(),
            value: SecretValue::new("s3cr3t \"&\" value".to_owned()).unwrap(),
            rules,
        }
    }

    fn rules() -> SecretRules {
        SecretRules {
            hosts: vec!["api.example".parse().unwrap()],
            headers: vec!["authorization".to_owned()],
            ..SecretRules::default()
        }
    }

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn fill(rules: SecretRules, host: &str, head: &mut Parts) -> Result<Vec<usize>, Refusal> {
        let secrets = [secret(rules)];
        Filler { secrets: &secrets, host: &host.parse().unwrap() }.fill_head(head)
    }

    #[test]
    fn declared_headers_get_the_value() {
        let mut head = parts("GET", "/", &[("authorization", &format!("Bearer {PLACEHOLDER}"))]);
        assert_eq!(fill(rules(), "api.example", &mut head), Ok(vec![0]));
        assert_eq!(head.headers["authorization"], "Bearer s3cr3t \"&\" value");
        assert!(head.headers["authorization"].is_sensitive());

        let credentials = STANDARD.encode(format!("user:{PLACEHOLDER}"));
        let mut head = parts("GET", "/", &[("authorization", &format!("basic {credentials}"))]);
        assert_eq!(fill(rules(), "api.example", &mut head), Ok(vec![0]));
        let credentials = STANDARD.encode("user:s3cr3t \"&\" value");
        assert_eq!(head.headers["authorization"], format!("Basic {credentials}"));

        let mut head = parts("GET", "/", &[("authorization", "Bearer other"), ("x", "y")]);
        assert_eq!(fill(rules(), "api.example", &mut head), Ok(vec![]));
    }

    #[test]
    fn everything_else_is_refused() {
        let bearer = format!("Bearer {PLACEHOLDER}");
        let authorization = [("authorization", bearer.as_str())];
        let only_get = SecretRules { methods: vec!["GET".to_owned()], ..rules() };
        let only_repos = SecretRules { paths: vec!["/repos/".to_owned()], ..rules() };
        for (rules, host, mut head) in [
            (rules(), "other.example", parts("GET", "/", &authorization)),
            (rules(), "api.example", parts("GET", "/", &[("x-other", &bearer)])),
            (rules(), "api.example", parts("GET", &format!("/?q={PLACEHOLDER}"), &[])),
            (rules(), "api.example", parts("GET", &format!("/{PLACEHOLDER}"), &[])),
            (only_get.clone(), "api.example", parts("POST", "/", &authorization)),
            (only_repos.clone(), "api.example", parts("GET", "/", &authorization)),
            (only_repos.clone(), "api.example", parts("GET", "/reposx/", &authorization)),
        ] {
            let refused = fill(rules, host, &mut head);
            assert!(matches!(refused, Err(Refusal::Uncovered { .. })), "{host} {head:?}: {refused:?}");
        }
        for mut head in
            [parts("GET", "/repos", &authorization), parts("GET", "/repos/a%20b?c", &authorization)]
        {
            assert_eq!(fill(only_repos.clone(), "api.example", &mut head), Ok(vec![0]));
        }
    }

    #[test]
    fn a_path_that_can_be_read_in_two_ways_is_not_covered() {
        let rules = SecretRules { paths: vec!["/repos".to_owned()], ..rules() };
        for path in [
            "/repos/../admin",
            "/repos/%2e%2E/admin",
            "/repos/..;/admin",
            "/repos/.;x/a",
            "/repos/%2fadmin",
            "/repos//admin",
            "/repos/..%5cadmin",
            "/repos/%252e%252e/admin",
            "/repos/%c0%ae%c0%ae/admin",
            "/repos/..%09/admin",
            "/repos/..%20/admin",
            "/repos/..%3f/admin",
            "/repos/a%0d%0ab",
            "/repos/a%00b",
            "/repos/a%7fb",
            "/repos/a%C2%85b",
            "/repos/%ff",
            "/Repos/x",
        ] {
            assert!(!covers_path(&rules, path), "{path}");
        }
        for path in ["/repos/caf%C3%A9", "/repos/a%20b/..c", "/repos/a;b=1", "/repos/a%3Fb"] {
            assert!(covers_path(&rules, path), "{path}");
        }
    }

    #[test]
    fn queries_and_bodies_need_the_operators_word() {
        let open = SecretRules { query: true, body: true, ..rules() };
        let mut head = parts("GET", &format!("https://api.example/a?x=1&q={PLACEHOLDER}"), &[]);
        assert_eq!(fill(open.clone(), "api.example", &mut head), Ok(vec![0]));
        assert_eq!(head.uri, "https://api.example/a?x=1&q=s3cr3t%20%22%26%22%20value");

        let (secrets, host) = ([secret(open)], "api.example".parse().unwrap());
        let filler = Filler { secrets: &secrets, host: &host };
        for (kind, written) in [
            ("text/plain", "k=s3cr3t \"&\" value"),
            ("application/x-www-form-urlencoded", "k=s3cr3t%20%22%26%22%20value"),
            ("application/json; charset=utf-8", "k=s3cr3t \\\"&\\\" value"),
        ] {
            let head = parts("POST", "/", &[("content-type", kind)]);
            assert!(filler.fills_body(&head));
            let filled = filler.fill_body(&head, format!("k={PLACEHOLDER}").as_bytes(), 100);
            assert_eq!(filled, Some((written.as_bytes().to_vec(), vec![0])));
        }
        let head = parts("POST", "/", &[]);
        assert_eq!(filler.fill_body(&head, PLACEHOLDER.repeat(10).as_bytes(), 100), None);
        let secrets = [secret(rules())];
        assert!(!Filler { secrets: &secrets, host: &host }.fills_body(&head));
    }

    #[test]
    fn a_value_cannot_be_multiplied_without_end() {
        let long = SecretValue::new("x".repeat(8000)).unwrap();
        let secrets = [HeldSecret { value: long, ..secret(rules()) }];
        let mut head = parts("GET", "/", &[("authorization", &PLACEHOLDER.repeat(1000))]);
        let filler = Filler { secrets: &secrets, host: &"api.example".parse().unwrap() };
        assert_eq!(filler.fill_head(&mut head), Err(Refusal::TooLong));
    }

    #[test]
    fn a_refusal_says_what_is_allowed() {
        let secrets = [secret(rules())];
        let filler = Filler { secrets: &secrets, host: &"api.example".parse().unwrap() };
        let place = PlaceholderSite::Header(HeaderName::from_static("x-other"));
        let words = filler.in_words(&Refusal::Uncovered { secret: 0, place });
        assert!(words.contains("TOKEN") && words.contains("in: authorization"), "{words}");
        assert!(!words.contains("s3cr3t"));
    }
}
