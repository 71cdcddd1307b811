//! Host names of servers inside: `<port>-<sandbox>.localhost`, or below a domain that the operator has for this.
//!
//! Each port has a host name of its own, and so an origin of its own in a browser: its pages can read neither ours nor
//! those of another port. A browser keeps what pages left in an origin (workers, caches, storage), so the origin of a
//! page has the sandbox's id in it, which no other sandbox ever gets. A name, which the next one may get, is for people
//! who type it and for programs.

use std::str::FromStr;

use engine::SandboxRef;
use sandbox::{Error, Result, SandboxId};

/// Longest label of a host name (RFC 1035).
const MAX_LABEL_BYTES: usize = 63;
/// Longest port in digits.
const MAX_PORT_DIGITS: usize = 5;
const LOCALHOST: &str = "localhost";

/// The domain whose direct subdomains are ports: `apps.example`, with a scheme and a port if browsers need them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortDomain {
    /// In lower case.
    name: String,
    port: Option<u16>,
    is_https: Option<bool>,
}

impl FromStr for PortDomain {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "{:?} is not a domain for ports",
                text.chars().take(128).collect::<String>()
            ))
            .with_hint(
                "Write a domain, with scheme and port if needed: apps.example or https://apps.example:8443.",
            )
        };
        let (is_https, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Some(true), rest),
            Some(("http", rest)) => (Some(false), rest),
            Some(_) => return Err(wrong()),
            None => (None, text),
        };
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, Some(port.parse().map_err(|_malformed| wrong())?)),
            None => (rest, None),
        };
        let name = name.strip_prefix("*.").unwrap_or(name).to_ascii_lowercase();
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        if is_address || !name.split('.').all(is_label) {
            return Err(wrong());
        }
        Ok(Self { name, port, is_https })
    }
}

impl PortDomain {
    /// Whether pages below it are reached by TLS, where the operator said so.
    pub(crate) fn is_https(&self) -> Option<bool> {
        self.is_https
    }
}

fn is_label(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_LABEL_BYTES).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A port of a sandbox, as a host name says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortHost {
    pub(crate) port: u16,
    pub(crate) sandbox: SandboxRef,
    /// Below the operator's domain.
    pub(crate) is_of_domain: bool,
    /// Whether it names the sandbox by id, so that it will never be another's.
    pub(crate) is_by_id: bool,
}

impl PortHost {
    /// Reads a host name, without its port and in lower case.
    pub(crate) fn parse(name: &str, domain: Option<&PortDomain>) -> Option<Self> {
        let below = |parent: &str| name.strip_suffix(parent)?.strip_suffix('.');
        let (label, is_of_domain) = match below(LOCALHOST) {
            Some(label) => (label, false),
            None => (below(&domain?.name)?, true),
        };
        let (port, sandbox) = label.split_once('-')?;
        let is_number = port.len() <= MAX_PORT_DIGITS && !port.starts_with('0');
        if !is_number || !port.bytes().all(|byte| byte.is_ascii_digit()) || !is_label(label) {
            return None;
        }
        let is_by_id = sandbox.starts_with(SandboxId::PREFIX);
        Some(Self {
            port: port.parse().ok()?,
            sandbox: SandboxRef::new(sandbox, None).ok()?,
            is_of_domain,
            is_by_id,
        })
    }
}

/// The label of a port, which is never another's.
pub(crate) fn label(sandbox: &SandboxId, port: u16) -> String {
    format!("{port}-{sandbox}")
}

/// The address of a port's own host, for somebody who reaches the daemon at `base`. None where it has none: the daemon
/// is reached by a name below which nothing is its own.
pub(crate) fn url(label: &str, base: &str, domain: Option<&PortDomain>) -> Option<String> {
    let (scheme, authority) = base.split_once("://")?;
    let authority = authority.split('/').next()?;
    let (host, own_port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if let Some(PortDomain { name, port, is_https }) = domain {
        let scheme = match is_https {
            Some(true) => "https",
            Some(false) => "http",
            None => scheme,
        };
        // Where the operator gives a scheme, the port is given or the scheme's own.
        let port = port
            .map(|port| port.to_string())
            .or_else(|| own_port.filter(|_| is_https.is_none()).map(str::to_owned));
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        return Some(format!("{scheme}://{label}.{name}{port}/"));
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = bare.eq_ignore_ascii_case(LOCALHOST)
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    let port = own_port.map(|port| format!(":{port}")).unwrap_or_default();
    is_here.then(|| format!("{scheme}://{label}.{LOCALHOST}{port}/"))
}

/// The port in a path of ours that leads to a server inside: `/v1/sandboxes/{sandbox}/ports/{port}/…`.
pub(crate) fn port_of_path(path: &str) -> Option<u16> {
    let mut segments = path.strip_prefix("/v1/sandboxes/")?.split('/').skip(1);
    let (ports, port) = (segments.next()?, segments.next()?);
    segments.next().filter(|_| ports == "ports")?;
    port.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_of_ports_are_read_and_others_are_not() {
        let domain: PortDomain = "https://*.Apps.example".parse().unwrap();
        let read = |name: &str| {
            PortHost::parse(name, Some(&domain))
                .map(|host| (host.port, host.sandbox.to_string(), host.is_of_domain, host.is_by_id))
        };
        assert_eq!(read("8000-lab.localhost"), Some((8000, "lab".to_owned(), false, false)));
        assert_eq!(read("1-my-lab-2.apps.example"), Some((1, "my-lab-2".to_owned(), true, false)));
        let id = SandboxId::from_random([7; 8]);
        let host = format!("{}.localhost", label(&id, 80));
        assert_eq!(read(&host), Some((80, id.to_string(), false, true)));
        for name in [
            "localhost",
            "apps.example",
            "lab.localhost",
            "8000.localhost",
            "8000-.localhost",
            "-lab.localhost",
            "0-lab.localhost",
            "08-lab.localhost",
            "+8-lab.localhost",
            "70000-lab.localhost",
            "8000-lab.x.localhost",
            "8000-la_b.localhost",
            "8000-lab-.localhost",
            "8000-sbx-short.localhost",
            "8000-lab.localhost.evil.example",
            "8000-lab.evil.example",
            "8000-lablocalhost",
        ] {
            assert_eq!(read(name), None, "{name}");
        }
        assert_eq!(PortHost::parse("80-lab.apps.example", None), None);
    }

    #[test]
    fn addresses_fit_how_the_daemon_is_reached() {
        let of = |base: &str, domain: Option<&str>| {
            let domain = domain.map(|text| text.parse::<PortDomain>().unwrap());
            url("80-lab", base, domain.as_ref())
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(of("http://127.0.0.1:5555", None), is("http://80-lab.localhost:5555/"));
        assert_eq!(of("https://localhost", None), is("https://80-lab.localhost/"));
        assert_eq!(of("http://[::1]:80", None), is("http://80-lab.localhost:80/"));
        assert_eq!(of("https://warren.example/x", None), None);
        assert_eq!(of("http://127.0.0.1:5555", Some("apps.example")), is("http://80-lab.apps.example:5555/"));
        assert_eq!(
            of("http://127.0.0.1:5555", Some("https://apps.example")),
            is("https://80-lab.apps.example/")
        );
        assert_eq!(
            of("http://10.0.0.1", Some("http://apps.example:81")),
            is("http://80-lab.apps.example:81/")
        );
    }

    #[test]
    fn a_domain_is_a_name() {
        for text in ["", "a b", "ftp://a.example", "a.example/x", "127.0.0.1", "a..b", "*", "a.example:x"] {
            assert!(text.parse::<PortDomain>().is_err(), "{text}");
        }
    }
}
