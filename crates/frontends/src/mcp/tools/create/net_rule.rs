//! microsandbox's words for a network: its profiles, and rules such as `allow@*.example.org:tcp:443`.
//!
//! ```text
//! rule = action [ ":" direction ] "@" target [ ":" protocol [ ":" ports ] ]
//! ```
//!
//! The groups are ours. `*.name` is the name itself too, and a name without a dot is written `domain=name`.

use sandbox::{
    Error, ErrorKind, Preset, Result,
    network::{Group, RuleAction, RuleSpec},
};

const FORM: &str = "Write a rule as allow@example.org, deny@*.example.org or allow@10.2.0.0/16:tcp:5432.";

/// Parses a profile: the preset for what is reached without a rule, and the rules that it adds.
pub(super) fn profile(text: &str) -> Result<(Preset, Vec<RuleSpec>)> {
    let (mut is_public, mut is_private, mut rules) = (false, false, Vec::new());
    let words: Vec<_> = text.split(',').map(str::trim).collect();
    for word in &words {
        match *word {
            "none" | "all" | "allow-all" if words.len() > 1 => {
                return Err(Error::invalid(format!("network.policy: {word} cannot be combined with others"))
                    .with_hint("Combine public, private and host only."));
            }
            "none" => return Ok((Preset::None, rules)),
            "all" | "allow-all" => return Ok((Preset::All, rules)),
            "public" | "public-only" => is_public = true,
            "private" => is_private = true,
            "non-local" => (is_public, is_private) = (true, true),
            "host" => rules.push(RuleSpec { action: RuleAction::Allow, target: "host".to_owned() }),
            other => {
                let shown: String = other.chars().take(64).collect();
                return Err(Error::invalid(format!("network.policy: {shown:?} is not a profile")).with_hint(
                    "Use none, public, private, host or all; the middle three combine with commas.",
                ));
            }
        }
    }
    let preset = match (is_public, is_private) {
        (true, true) => Preset::PublicPrivate,
        (true, false) => Preset::Public,
        (false, private) => {
            if private {
                rules.push(RuleSpec { action: RuleAction::Allow, target: "private".to_owned() });
            }
            Preset::None
        }
    };
    Ok((preset, rules))
}

/// The same rules in our words and in their order; one that only says what is so anyway is left out.
pub(super) fn rules(texts: &[String]) -> Result<Vec<RuleSpec>> {
    let mut rules = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let at = |error: Error| error.reworded(|words| format!("network.rules[{index}]: {words}"));
        for part in text.split(',').map(str::trim) {
            rules.extend(rule(part).map_err(at)?);
        }
    }
    Ok(rules)
}

fn rule(text: &str) -> Result<Option<RuleSpec>> {
    let shown: String = text.chars().take(80).collect();
    let Some((left, right)) = text.split_once('@') else {
        return Err(Error::invalid(format!("{shown:?} has no @")).with_hint(FORM));
    };
    let action = match left.split_once(':').map_or((left, "egress"), |parts| parts) {
        ("allow", "egress") => RuleAction::Allow,
        ("deny", "egress") => RuleAction::Deny,
        ("allow" | "deny", "ingress" | "any") => {
            let message = format!("{shown:?} is about connections into a sandbox, which no rule is about");
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("Write it without a direction; network.ports publishes ports."));
        }
        _ => return Err(Error::invalid(format!("{shown:?} neither allows nor denies")).with_hint(FORM)),
    };
    let (target, rest) = split_target(right);
    let mut rest = rest.split(':');
    let protocol = match rest.next().filter(|word| !word.is_empty()) {
        None | Some("any") => "",
        Some("tcp") => "tcp@",
        Some("udp") => "udp@",
        Some("icmpv4" | "icmpv6") => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{shown:?} is about ICMP, which never leaves"),
            )
            .with_hint("Omit the rule, or write it for tcp or udp."));
        }
        Some(_) => return Err(Error::invalid(format!("{shown:?} has an unknown protocol")).with_hint(FORM)),
    };
    let ports = rest.next().filter(|ports| *ports != "any").map(|ports| format!(":{ports}"));
    if rest.next().is_some() {
        return Err(Error::invalid(format!("unexpected text after the ports in {shown:?}")).with_hint(FORM));
    }
    if target == "dns" {
        return match action {
            // The resolver always answers for names that a rule allows.
            RuleAction::Allow => Ok(None),
            RuleAction::Deny => Err(Error::new(
                ErrorKind::Unsupported,
                "names that a rule allows are always resolved, and no others",
            )
            .with_hint("Omit the rule, or use addresses in place of names.")),
        };
    }
    let target = named(target).ok_or_else(|| {
        Error::invalid(format!("{shown:?} has no target"))
            .with_hint("A name without a dot is written domain=NAME; *. comes before a name with a dot.")
    })?;
    Ok(Some(RuleSpec { action, target: format!("{protocol}{target}{}", ports.unwrap_or_default()) }))
}

/// An IPv6 address stands in brackets.
fn split_target(text: &str) -> (&str, &str) {
    let from = if text.starts_with('[') { text.find(']').unwrap_or(0) } else { 0 };
    match text[from..].find(':') {
        Some(colon) => (&text[..from + colon], &text[from + colon + 1..]),
        None => (text, ""),
    }
}

fn named(target: &str) -> Option<String> {
    if let Some(suffix) = target.strip_prefix("suffix=").or_else(|| target.strip_prefix("*.")) {
        return suffix.contains('.').then(|| format!("**.{suffix}"));
    }
    if let Some(name) = target.strip_prefix("domain=") {
        // With a dot at its end no name is taken for a group.
        return Some(format!("{}.", name.trim_end_matches('.')));
    }
    let is_known = target.parse::<Group>().is_ok() || target.contains(['.', '[']);
    is_known.then(|| target.to_owned())
}

#[cfg(test)]
mod tests {
    use sandbox::{NetworkSpec, plan_network};

    use super::*;

    #[test]
    fn rules_mean_the_same_in_our_words() {
        for (theirs, ours) in [
            ("allow@public", "allow public"),
            ("deny@198.51.100.5", "deny 198.51.100.5"),
            ("allow@example.com:tcp:443", "allow tcp@example.com:443"),
            ("allow:egress@example.com:any:8000-8010", "allow example.com:8000-8010"),
            ("deny@*.ads.example.com", "deny **.ads.example.com"),
            ("allow@suffix=example.com:tcp", "allow tcp@**.example.com"),
            ("allow@domain=host", "allow host."),
            ("allow@host:tcp:3001", "allow tcp@host:3001"),
            ("allow@[2001:db8::]/32:udp:any", "allow udp@[2001:db8::]/32"),
            ("allow@10.0.0.0/8:tcp:5432", "allow tcp@10.0.0.0/8:5432"),
        ] {
            let rules = rules(&[theirs.to_owned()]).unwrap();
            assert_eq!(format!("{} {}", rules[0].action, rules[0].target), ours, "{theirs}");
            plan_network(&NetworkSpec { rules, ..NetworkSpec::default() }, &[]).unwrap();
        }
        let several = rules(&["deny@198.51.100.5,allow@public".to_owned(), "allow@dns".to_owned()]).unwrap();
        assert_eq!(several.len(), 2);
    }

    #[test]
    fn what_is_no_rule_is_refused_with_its_place() {
        let (invalid, unsupported) = (ErrorKind::InvalidRequest, ErrorKind::Unsupported);
        for (text, kind) in [
            ("", invalid),
            ("public", invalid),
            ("permit@public", invalid),
            ("allow:out@public", invalid),
            ("allow@", invalid),
            ("allow@publik", invalid),
            ("allow@*.com", invalid),
            ("allow@public:sctp", invalid),
            ("allow@public:tcp:80:x", invalid),
            ("allow:ingress@private", unsupported),
            ("deny:any@host", unsupported),
            ("allow@public:icmpv4", unsupported),
            ("deny@dns", unsupported),
        ] {
            let error = rules(&["allow@public".to_owned(), text.to_owned()]).expect_err(text);
            assert_eq!(error.kind(), kind, "{text}");
            assert!(error.to_string().starts_with("network.rules[1]: "), "{error}");
            assert!(error.next().is_some(), "{error}");
        }
    }

    #[test]
    fn profiles_are_presets_and_rules() {
        let read = |text: &str| {
            profile(text).map(|(preset, rules)| {
                let targets: Vec<_> = rules.into_iter().map(|rule| rule.target).collect();
                format!("{preset} {}", targets.join(" "))
            })
        };
        assert_eq!(read("none").unwrap(), "none ");
        assert_eq!(read("public").unwrap(), "public ");
        assert_eq!(read("public,private").unwrap(), "public+private ");
        assert_eq!(read("private, host").unwrap(), "none host private");
        assert_eq!(read("all").unwrap(), "all ");
        for wrong in ["", "none,public", "everything"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
