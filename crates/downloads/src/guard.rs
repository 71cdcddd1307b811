//! Which hosts a download may reach: those at public addresses, and those that the operator named.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use tokio::net::lookup_host;

use crate::addresses::{is_local_name, is_public};

/// Decides by host and port, before anything is looked up. What names resolve to is for [`PublicOnly`] to check.
#[derive(Debug, Default)]
pub struct Guard {
    /// Hosts that the operator named, each with its port or with all of them. They may be anywhere.
    named: Vec<(String, Option<u16>)>,
    private_names: BTreeSet<String>,
}

/// Why a URL is not requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl Refused {
    fn private(host: &str) -> Self {
        Self(format!("{host} is not at a public address"))
    }
}

impl Guard {
    /// This host may be at any address. `None`: on every port.
    pub fn allow(&mut self, host: &str, port: Option<u16>) {
        self.named.push((host.to_ascii_lowercase(), port));
    }

    /// This name may resolve to private addresses. Only the ports that [`Self::allow`] names are open on it.
    pub fn allow_private_name(&mut self, name: &str) {
        self.private_names.insert(name.to_ascii_lowercase());
    }

    /// The resolver that goes with this guard.
    pub fn resolver(&self) -> PublicOnly {
        PublicOnly { except: self.private_names.clone() }
    }

    /// Whether the operator named this host and port.
    pub fn is_named(&self, url: &Url) -> bool {
        let (Some(host), port) = (url.host_str(), url.port_or_known_default()) else { return false };
        self.named.iter().any(|(name, only)| name == host && (only.is_none() || *only == port))
    }

    /// Refuses a URL that leads inside, as far as the URL alone shows.
    pub fn check(&self, url: &Url) -> Result<(), Refused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused(format!("{}: is neither http nor https", url.scheme())));
        }
        if self.is_named(url) {
            return Ok(());
        }
        let host = url.host_str().unwrap_or_default();
        let is_outside = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => is_public(address),
            Err(_not_an_address) => !is_local_name(host) && !self.private_names.contains(host),
        };
        if is_outside { Ok(()) } else { Err(Refused::private(host)) }
    }
}

/// For a request through a proxy, which looks the name up itself: refuses a name that resolves to a private address
/// here.
pub async fn check_name(url: &Url) -> Result<(), Refused> {
    let host = url.host_str().unwrap_or_default();
    let Ok(mut addresses) = lookup_host((host, 0)).await else { return Ok(()) };
    if addresses.any(|address| !is_public(address.ip())) { Err(Refused::private(host)) } else { Ok(()) }
}

/// Resolves names to public addresses only. The client dials what this returns and nothing else, so a name cannot
/// change its address between the check and the connection.
#[derive(Debug, Default)]
pub struct PublicOnly {
    except: BTreeSet<String>,
}

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        let is_excepted = self.except.contains(&name.as_str().to_ascii_lowercase());
        Box::pin(async move {
            let host = name.as_str();
            let mut addresses: Vec<_> = lookup_host((host, 0)).await?.collect();
            if !is_excepted {
                addresses.retain(|address| is_public(address.ip()));
                if addresses.is_empty() {
                    return Err(Refused::private(host).into());
                }
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(guard: &Guard, url: &str) -> bool {
        guard.check(&url.parse().unwrap()).is_err()
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
            assert!(is_refused(&guard, url), "{url}");
        }
        for url in ["https://index.example/", "http://8.8.8.8/", "https://[2606:4700::1]/x"] {
            assert!(!is_refused(&guard, url), "{url}");
        }
    }

    #[test]
    fn a_named_host_may_be_anywhere_and_opens_only_itself() {
        let mut guard = Guard::default();
        guard.allow("127.0.0.1", Some(3141));
        guard.allow("Files.corp.internal", None);
        guard.allow("[::1]", Some(81));
        guard.allow("registry.lan", Some(5000));
        guard.allow_private_name("registry.lan");
        for url in [
            "http://127.0.0.1:3141/files/x",
            "https://Files.corp.internal:444/x",
            "http://[::1]:81/",
            "http://registry.lan:5000/v2/",
        ] {
            assert!(!is_refused(&guard, url), "{url}");
        }
        for url in [
            "http://127.0.0.1:22/",
            "http://[::1]:82/",
            "http://[::ffff:127.0.0.1]:3141/",
            "ftp://127.0.0.1:3141/x",
            "http://registry.lan/",
        ] {
            assert!(is_refused(&guard, url), "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_resolves_to_public_addresses_or_to_nothing() {
        let resolve = |guard: &Guard| guard.resolver().resolve("localhost".parse().unwrap());
        let mut guard = Guard::default();
        let Err(refused) = resolve(&guard).await else { panic!("localhost was resolved") };
        assert_eq!(
            refused.downcast_ref::<Refused>().map(ToString::to_string).as_deref(),
            Some("localhost is not at a public address")
        );
        guard.allow_private_name("localhost");
        assert!(resolve(&guard).await.is_ok_and(|mut found| found.all(|address| address.ip().is_loopback())));
    }
}
