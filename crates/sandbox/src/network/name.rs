//! Names of the DNS, in one canonical form.

use std::{borrow::Cow, fmt, str::FromStr};

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Serialize};

/// Longest name in text, without the trailing dot.
pub const MAX_DNS_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;
/// Longest text that is looked at: a name in another script is longer before it becomes ASCII.
const MAX_TEXT_BYTES: usize = 1024;

/// A name in canonical form: ASCII (IDNA), lower case, no trailing dot. Every name goes through [`DnsName::from_str`]
/// before it is compared: rules, DNS questions, SNI and Host.
///
/// An underscore is accepted, since records such as `_dmarc.example.org` have one. A name whose last label is a number
/// is refused: programs read `127.1` and `0x7f.1` as addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "api.example.org")]
pub struct DnsName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDnsName {
    #[error("a name must not be empty")]
    Empty,
    #[error("a name has at most {MAX_DNS_NAME_BYTES} bytes, but this one has {0}")]
    TooLong(usize),
    #[error("{0:?} has a part that is empty or longer than {MAX_LABEL_BYTES} bytes")]
    Label(String),
    #[error("{0:?} is not a name: letters, digits, '-', '_' and dots only")]
    Characters(String),
    #[error("{0:?} ends in a number, so it is neither a name nor a whole address")]
    Number(String),
}

impl DnsName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name lies beneath `parent`: `a.b.example` beneath `b.example`, never a name beneath itself.
    pub fn is_beneath(&self, parent: &Self) -> bool {
        self.0.strip_suffix(&parent.0).is_some_and(|rest| rest.ends_with('.'))
    }
}

impl FromStr for DnsName {
    type Err = InvalidDnsName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(InvalidDnsName::TooLong(text.len()));
        }
        let shown = || text.chars().take(80).collect::<String>();
        let ascii = to_ascii(text).ok_or_else(|| InvalidDnsName::Characters(shown()))?;
        let name = ascii.strip_suffix('.').unwrap_or(&ascii);
        if name.is_empty() {
            return Err(InvalidDnsName::Empty);
        }
        if name.len() > MAX_DNS_NAME_BYTES {
            return Err(InvalidDnsName::TooLong(name.len()));
        }
        if name.split('.').any(|label| label.is_empty() || label.len() > MAX_LABEL_BYTES) {
            return Err(InvalidDnsName::Label(shown()));
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return Err(InvalidDnsName::Characters(shown()));
        }
        if name.rsplit('.').next().is_some_and(is_number) {
            return Err(InvalidDnsName::Number(shown()));
        }
        Ok(Self(name.to_owned()))
    }
}

/// ASCII and lower case. Plain ASCII without `xn--` skips the tables: it is the usual case, and at every DNS question.
fn to_ascii(text: &str) -> Option<Cow<'_, str>> {
    let lower = text.to_ascii_lowercase();
    if text.is_ascii() && !lower.contains("xn--") {
        return Some(lower.into());
    }
    // Hyphens are not checked: names such as `r3---sn-x.example` are in use.
    Uts46::new()
        .to_ascii(text.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Ignore)
        .ok()
        .map(|ascii| Cow::Owned(ascii.to_ascii_lowercase()))
}

/// Whether parsers of addresses would read the label as a number: decimal, octal or hexadecimal.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x") {
        Some(hex) => hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for DnsName {
    type Error = InvalidDnsName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DnsName> for String {
    fn from(name: DnsName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_have_one_form() {
        for (text, expected) in [
            ("Example.ORG", "example.org"),
            ("example.org.", "example.org"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("BÜCHER.example", "xn--bcher-kva.example"),
            ("XN--bcher-kva.example", "xn--bcher-kva.example"),
            // A full-width letter and an ideographic full stop.
            ("ｅxample。org", "example.org"),
            ("_dmarc.example.org", "_dmarc.example.org"),
            ("r3---sn-4g5e.example", "r3---sn-4g5e.example"),
            ("1.0.0.127.in-addr.arpa", "1.0.0.127.in-addr.arpa"),
            ("localhost", "localhost"),
            (&format!("{}.example", "x".repeat(63)), &format!("{}.example", "x".repeat(63))),
        ] {
            assert_eq!(
                text.parse::<DnsName>().map(|name| name.to_string()),
                Ok(expected.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_a_name_is_refused() {
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a..",
            "a b",
            "a\0b",
            "a/b",
            "a:80",
            "a@b",
            "*.a",
            "[::1]",
            "127.0.0.1",
            "127.1",
            "0x7f.1",
            "a.0x7f",
            "2130706433",
            "１２７.0.0.1",
            "xn--a\u{ff}",
            "xn--zzzzzzzzz999999.example",
            &"x".repeat(64),
            &format!("{}.example", "ü".repeat(60)),
            &"x".repeat(100_000),
        ] {
            let read = text.parse::<DnsName>();
            assert!(read.is_err(), "{read:?}");
        }
        // 253 bytes without the last dot, and one more.
        assert!("x.".repeat(127).parse::<DnsName>().is_ok());
        assert!(format!("{}xx", "x.".repeat(126)).parse::<DnsName>().is_err());
    }

    #[test]
    fn beneath_means_whole_labels() {
        let name = |text: &str| text.parse::<DnsName>().unwrap();
        for beneath in ["a.b.example", "c.a.b.example"] {
            assert!(name(beneath).is_beneath(&name("b.example")), "{beneath}");
        }
        for other in ["b.example", "xb.example", "example", "b.example.evil.test"] {
            assert!(!name(other).is_beneath(&name("b.example")), "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_canonical_name_stays_as_it_is(text in "\\PC{0,40}") {
            if let Ok(name) = text.parse::<DnsName>() {
                prop_assert_eq!(name.as_str().parse::<DnsName>(), Ok(name.clone()));
                prop_assert!(name.as_str().is_ascii() && name.as_str().len() <= MAX_DNS_NAME_BYTES);
            }
        }
    }
}
