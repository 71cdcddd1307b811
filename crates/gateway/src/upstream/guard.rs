//! Where we go. A page may name any address; the host's own network is not for sandboxes to look into.

use std::net::IpAddr;

use addresses::{is_local_name, is_public};
use url::{Host, Url};

use crate::config::Manager;

/// Decides by manager, host and port; names are looked up by the caller, which asks again for each address.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// The configured indexes, each for its manager, and whatever the operator added, for all. They may be anywhere.
    trusted: Vec<Trusted>,
}

#[derive(Debug)]
struct Trusted {
    manager: Option<Manager>,
    host: String,
    port: Option<u16>,
}

impl Guard {
    pub(crate) fn trust(&mut self, manager: Manager, url: &Url) {
        if let Some(host) = url.host_str() {
            self.trusted.push(Trusted {
                manager: Some(manager),
                host: host.to_ascii_lowercase(),
                port: url.port_or_known_default(),
            });
        }
    }

    /// `name` or `name:port`; an address of version 6 in brackets.
    pub(crate) fn trust_named(&mut self, text: &str) {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => (text, None),
            },
            _ => (text, None),
        };
        self.trusted.push(Trusted { manager: None, host: host.to_ascii_lowercase(), port });
    }

    pub(crate) fn is_trusted(&self, manager: Manager, url: &Url) -> bool {
        let (Some(host), port) = (url.host_str(), url.port_or_known_default()) else { return false };
        self.trusted.iter().any(|one| {
            one.manager.is_none_or(|only| only == manager)
                && one.host.eq_ignore_ascii_case(host)
                && (one.port.is_none() || one.port == port)
        })
    }

    /// Why this address may not be asked at all, before anything is looked up.
    pub(crate) fn refusal(&self, manager: Manager, url: &Url) -> Option<&'static str> {
        if !matches!(url.scheme(), "http" | "https") {
            return Some("it is neither http nor https");
        }
        if self.is_trusted(manager, url) {
            return None;
        }
        let is_public = match url.host() {
            Some(Host::Ipv4(address)) => is_public(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => is_public(IpAddr::V6(address)),
            Some(Host::Domain(name)) => !is_local_name(name),
            None => false,
        };
        (!is_public).then_some("it is not a public address")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(guard: &Guard, url: &str) -> bool {
        guard.refusal(Manager::Pip, &url.parse().unwrap()).is_some()
    }

    #[test]
    fn the_hosts_own_network_is_closed() {
        let guard = Guard::default();
        for url in [
            "http://127.0.0.1/",
            "http://localhost:8080/",
            "http://LOCALHOST./",
            "http://a.localhost/",
            "http://0.0.0.0/",
            "http://0/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://10.1.2.3/",
            "http://172.16.0.1/",
            "http://192.168.1.1/",
            "http://169.254.169.254/latest/meta-data/",
            "http://100.64.0.1/",
            "http://224.0.0.1/",
            "http://255.255.255.255/",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::a00:1]/",
            "http://[2002:7f00:1::]/",
            "http://[fe80::1]/",
            "http://[fd00::1]/",
            "http://metadata.google.internal/",
            "file:///etc/passwd",
            "ftp://index.example/x",
            "gopher://index.example/",
        ] {
            assert!(refused(&guard, url), "{url}");
        }
        for url in ["https://index.example/", "http://8.8.8.8/", "https://[2606:4700::1]/x"] {
            assert!(!refused(&guard, url), "{url}");
        }
    }

    #[test]
    fn a_configured_index_may_be_anywhere_and_opens_only_itself() {
        let mut guard = Guard::default();
        guard.trust(Manager::Pip, &"http://127.0.0.1:3141/root/".parse().unwrap());
        guard.trust(Manager::Npm, &"http://127.0.0.1:4873/".parse().unwrap());
        guard.trust_named("files.corp.internal");
        guard.trust_named("[::1]:81");
        assert!(!refused(&guard, "http://127.0.0.1:3141/files/x"));
        assert!(refused(&guard, "http://127.0.0.1:22/"));
        assert!(refused(&guard, "http://127.0.0.1:4873/"), "another manager's");
        assert!(!refused(&guard, "https://Files.corp.internal:444/x"));
        assert!(!refused(&guard, "http://[::1]:81/"));
        assert!(refused(&guard, "http://[::1]:82/"));
        assert!(refused(&guard, "ftp://127.0.0.1:3141/x"));
    }
}
