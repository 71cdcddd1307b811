//! One rule, as text and as value.
//!
//! ```text
//! rule   = [ "allow " | "deny " ] [ protocol "@" ] target [ ":" ports ]
//! target = name | "*." name | "**." name | address | range | group | "host" | "sandbox:" name
//! ports  = port | first "-" last, separated by commas
//! ```
//!
//! A word that means something else is a name when a dot follows: `meta` is the group, `meta.` a host of that name.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    address::IpNet,
    name::DnsName,
    ports::Ports,
    surroundings::{Group, HOST_NAME},
};
use crate::{Error, Result, SandboxName};

/// Longest text of one rule.
pub const MAX_RULE_BYTES: usize = 1024;

#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
}

impl Protocol {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// For fields that are left out where they say what is usual.
    pub fn is_tcp(&self) -> bool {
        *self == Self::Tcp
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The effect of a rule on the traffic that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    Allow,
    Deny,
}

impl RuleAction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for RuleAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The subject of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    Name(DnsName),
    /// `*.example.org`: names beneath it, at any depth, and not the name itself.
    Wildcard(DnsName),
    /// `**.example.org`: the name itself and all beneath it.
    Apex(DnsName),
    Net(IpNet),
    Group(Group),
    /// `host:3000`: ports of the daemon's machine. The rule has ports; all ports are [`Group::Host`].
    HostPort,
    /// `sandbox:db:5432`: ports inside another sandbox of the same namespace. The rule has ports.
    Sandbox(SandboxName),
}

/// An ordered list of rules is a policy: the first that matches decides.
///
/// A rule without a protocol denies TCP and UDP, but allows TCP only: UDP carries QUIC, in which no name can be
/// checked. [`Display`](fmt::Display) and [`FromStr`] are inverse; a rule that allows is written without its action.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    pub action: RuleAction,
    pub target: Target,
    pub protocol: Option<Protocol>,
    pub ports: Ports,
}

impl Rule {
    /// Reads a rule that is written without its action.
    pub fn new(action: RuleAction, text: &str) -> Result<Self> {
        if text.len() > MAX_RULE_BYTES {
            return Err(Error::invalid(format!(
                "a rule has at most {MAX_RULE_BYTES} bytes, but this one has {}",
                text.len()
            )));
        }
        parse(action, text)
    }

    /// The rule without its action, as `allow` and `deny` of a request list it.
    pub fn text(&self) -> RuleText<'_> {
        RuleText(self)
    }

    /// Whether it is about this protocol.
    pub fn applies_to(&self, protocol: Protocol) -> bool {
        match (self.protocol, self.action) {
            (Some(own), _) => own == protocol,
            (None, RuleAction::Deny) => true,
            (None, RuleAction::Allow) => protocol == Protocol::Tcp,
        }
    }

    /// Whether it matches every port of both protocols.
    pub fn is_for_all_ports(&self) -> bool {
        self.ports.is_all() && self.applies_to(Protocol::Tcp) && self.applies_to(Protocol::Udp)
    }
}

/// Displays a [`Rule`] without its action.
#[derive(Debug, Clone, Copy)]
pub struct RuleText<'a>(&'a Rule);

impl fmt::Display for RuleText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { target, protocol, ports, .. } = self.0;
        if let Some(protocol) = protocol {
            write!(f, "{protocol}@")?;
        }
        match target {
            Target::Name(name) if is_word(name) => write!(f, "{name}.")?,
            Target::Name(name) => write!(f, "{name}")?,
            Target::Wildcard(name) => write!(f, "*.{name}")?,
            Target::Apex(name) => write!(f, "**.{name}")?,
            Target::Net(net) => write!(f, "{net}")?,
            Target::Group(group) => write!(f, "{group}")?,
            Target::HostPort => f.write_str("host")?,
            Target::Sandbox(name) => write!(f, "sandbox:{name}")?,
        }
        if ports.is_all() { Ok(()) } else { write!(f, ":{ports}") }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            RuleAction::Allow => write!(f, "{}", self.text()),
            RuleAction::Deny => write!(f, "deny {}", self.text()),
        }
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(rest) = text.strip_prefix("deny ") {
            return Self::new(RuleAction::Deny, rest);
        }
        Self::new(RuleAction::Allow, text.strip_prefix("allow ").unwrap_or(text))
    }
}

fn parse(action: RuleAction, text: &str) -> Result<Rule> {
    let text = text.trim();
    if let Some((scheme, rest)) = text.split_once("://") {
        return Err(is_url(text, scheme, rest));
    }
    let (protocol, rest) = match text.split_once('@') {
        None => (None, text),
        Some(("tcp", rest)) => (Some(Protocol::Tcp), rest),
        Some(("udp", rest)) => (Some(Protocol::Udp), rest),
        Some((other, _)) => {
            return Err(Error::invalid(format!("{:?} is not a protocol of rules", shown(other)))
                .with_hint("Write tcp@ or udp@ before the target, or nothing."));
        }
    };
    let (target, ports) = parse_target(rest)?;
    let needs_port = matches!(target, Target::Sandbox(_));
    if needs_port && ports.is_all() {
        return Err(Error::invalid(format!("{:?} names no port", shown(rest)))
            .with_hint("Write the port after the sandbox, such as sandbox:db:5432."));
    }
    let target = match target {
        // One value for each text: `host` with a port, and without.
        Target::Group(Group::Host) if !ports.is_all() => Target::HostPort,
        Target::HostPort if ports.is_all() => Target::Group(Group::Host),
        other => other,
    };
    Ok(Rule { action, target, protocol, ports })
}

fn parse_target(text: &str) -> Result<(Target, Ports)> {
    if let Some(rest) = text.strip_prefix("sandbox:") {
        let (name, ports) = split_ports(rest)?;
        return Ok((Target::Sandbox(name.parse()?), ports));
    }
    let (target, ports) = split_ports(text)?;
    Ok((parse_place(target)?, ports))
}

/// Splits the ports off. A colon in an IPv6 address without brackets is none that comes before a port.
fn split_ports(text: &str) -> Result<(&str, Ports)> {
    let is_bare_six = !text.starts_with('[') && text.matches(':').count() > 1;
    let ports_follow = text.rfind(':').filter(|colon| !is_bare_six && !text[*colon..].contains(']'));
    let Some(colon) = ports_follow else { return Ok((text, Ports::all())) };
    let ports = text[colon + 1..].parse().map_err(|invalid: super::ports::InvalidPorts| {
        Error::invalid(invalid.to_string())
            .with_hint("Write ports as 443, 80,443 or 8000-8999 after the target.")
    })?;
    Ok((&text[..colon], ports))
}

/// `https://example.org/x`, of which a rule takes the host and the port.
fn is_url(text: &str, scheme: &str, rest: &str) -> Error {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().filter(|host| !host.is_empty()).unwrap_or("api.example.org");
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = match scheme {
        _ if has_port => "",
        "http" | "ws" => ":80",
        "ssh" | "sftp" => ":22",
        _ => ":443",
    };
    Error::invalid(format!("{:?} is a URL, and a rule names a host", shown(text)))
        .with_hint(format!("Give the host: {}{port}.", shown(host)))
}

fn parse_place(text: &str) -> Result<Target> {
    if let Ok(group) = text.parse() {
        return Ok(Target::Group(group));
    }
    if text.parse::<std::net::IpAddr>().is_ok() || text.contains(['/', '[', ':']) {
        return text.parse().map(Target::Net).map_err(|invalid: super::address::InvalidNet| {
            Error::invalid(invalid.to_string())
                .with_hint("Write an address or a range, such as 10.2.0.0/16 or [2001:db8::]/32.")
        });
    }
    if text.eq_ignore_ascii_case(HOST_NAME) {
        return Ok(Target::HostPort);
    }
    if matches!(text, "*" | "**" | "*." | "**.") {
        return Err(Error::invalid(format!("{text:?} has no target"))
            .with_hint("Use the group any or public, or a wildcard beneath a name, such as *.example.org."));
    }
    let target = if let Some(parent) = text.strip_prefix("**.") {
        Target::Apex(parse_name(parent)?)
    } else if let Some(parent) = text.strip_prefix("*.") {
        Target::Wildcard(parse_name(parent)?)
    } else {
        Target::Name(parse_name(text)?)
    };
    Ok(target)
}

/// Whether the name alone would be read as something else.
fn is_word(name: &DnsName) -> bool {
    let is_group = name.as_str().parse::<Group>().is_ok();
    is_group || name.as_str() == "sandbox" || name.as_str() == HOST_NAME
}

fn parse_name(text: &str) -> Result<DnsName> {
    if text.contains('*') {
        return Err(Error::invalid(format!("{:?} has a star within a name", shown(text)))
            .with_hint("A wildcard stands for whole names at the beginning, such as *.example.org."));
    }
    text.parse().map_err(|invalid: super::name::InvalidDnsName| {
        Error::invalid(invalid.to_string())
            .with_hint("Write a name, an address, a range, a group, host:PORT or sandbox:NAME:PORT.")
    })
}

/// The beginning of a caller's text, for a message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

impl TryFrom<String> for Rule {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_people_write_them_and_shown_in_one_form() {
        for (text, shown) in [
            ("api.github.com", "api.github.com"),
            ("API.GitHub.com.", "api.github.com"),
            ("*.pypi.org:443", "*.pypi.org:443"),
            ("**.pypi.org:80,443", "**.pypi.org:80,443"),
            ("10.2.0.0/16:5432", "10.2.0.0/16:5432"),
            ("10.2.0.7", "10.2.0.7"),
            ("2001:db8::/32", "[2001:db8::]/32"),
            ("[2001:db8::]/32:443", "[2001:db8::]/32:443"),
            ("[2001:db8::1]:8000-8010", "[2001:db8::1]:8000-8010"),
            ("2001:db8::1", "[2001:db8::1]"),
            ("udp@1.2.3.4:123", "udp@1.2.3.4:123"),
            ("tcp@public:443", "tcp@public:443"),
            ("private", "private"),
            ("link-local", "link-local"),
            ("host", "host"),
            ("host:3000", "host:3000"),
            ("host.warren.internal:3000", "host:3000"),
            ("Host.Warren.Internal", "host"),
            ("host.warren.internal.:3000", "host.warren.internal.:3000"),
            ("meta.:80", "meta.:80"),
            ("sandbox", "sandbox."),
            ("sandbox.:443", "sandbox.:443"),
            ("sandbox:db:5432", "sandbox:db:5432"),
            ("sandbox:Py_3.11:1-2", "sandbox:Py_3.11:1-2"),
            ("allow example.org", "example.org"),
            ("deny *.corp.example", "deny *.corp.example"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            (" example.org ", "example.org"),
        ] {
            let rule: Rule = text.parse().unwrap();
            assert_eq!(rule.to_string(), shown, "{text}");
            assert_eq!(shown.parse::<Rule>().unwrap(), rule, "{text}");
            let json = serde_json::to_string(&rule).unwrap();
            assert_eq!(serde_json::from_str::<Rule>(&json).unwrap(), rule);
        }
    }

    #[test]
    fn what_is_not_a_rule_is_refused_with_a_hint() {
        for text in [
            "",
            " ",
            ":",
            ":443",
            "*",
            "**",
            "*.",
            "a.*.example",
            "*example.org",
            "***.example.org",
            "example.org:",
            "example.org:0",
            "example.org:65536",
            "example.org:443:443",
            "example.org:https",
            "http://example.org",
            "https://example.org/path",
            "example.org/path",
            "icmp@example.org",
            "@example.org",
            "udp@",
            "udp@tcp@example.org",
            "sandbox:db",
            "sandbox::5432",
            "sandbox:../x:80",
            "10.2.3.4/16",
            "10.0.0/8",
            "127.1",
            "2001:db8::1:443:x",
            "[2001:db8::1",
            "[2001:db8::1]443",
            "fe80::1%eth0",
            "deny deny example.org",
            "example.org evil.example",
            "a\0b",
        ] {
            let error = text.parse::<Rule>().expect_err(text);
            assert!(error.next().is_some(), "{text:?} {error}");
        }
        assert!("x.".repeat(MAX_RULE_BYTES).parse::<Rule>().is_err());
    }

    #[test]
    fn whoever_gives_a_url_is_told_its_host() {
        for (url, host) in [
            ("https://gitlab.example/x", "gitlab.example:443"),
            ("http://example.org", "example.org:80"),
            ("https://example.org:8443/a?b", "example.org:8443"),
            ("ssh://git@example.org/x.git", "example.org:22"),
            ("deny https://", "api.example.org:443"),
        ] {
            let error = url.parse::<Rule>().unwrap_err();
            let advice = crate::Next::Advice(format!("Give the host: {host}."));
            assert_eq!(error.next(), Some(&advice), "{error}");
        }
    }

    #[test]
    fn without_a_protocol_a_rule_allows_tcp_and_denies_both() {
        let applies = |text: &str| {
            let rule: Rule = text.parse().unwrap();
            (rule.applies_to(Protocol::Tcp), rule.applies_to(Protocol::Udp))
        };
        assert_eq!(applies("example.org"), (true, false));
        assert_eq!(applies("deny example.org"), (true, true));
        assert_eq!(applies("udp@example.org"), (false, true));
        assert_eq!(applies("deny tcp@example.org"), (true, false));
    }
}
