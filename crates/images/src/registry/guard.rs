//! Where a pull for somebody who does not run this daemon may lead.
//!
//! A reference names any host, and a registry answers with further ones: redirects, token services. Only public addresses are
//! reached so, and whatever the operator named. Hosts are checked here before a request and at every redirect; a name is checked
//! again when it is looked up, on the addresses that are dialled.

use std::{collections::BTreeSet, env, fmt, net::IpAddr, sync::Arc};

use addresses::{is_local_name, is_public};
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

use super::{Place, docker_hub_or};
use crate::{error::Result, options::Options};

/// Where the operator's own proxy is told to the HTTP client.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Hosts and ports that the operator named: registries and mirrors. They may be anywhere.
    named: BTreeSet<(String, u16)>,
    /// Hosts of `named`, and of proxies: their names may stand for private addresses.
    names: BTreeSet<String>,
}

/// Why an address is not asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    host: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not at a public address", self.host)
    }
}

impl std::error::Error for Refused {}

impl Guard {
    pub(super) fn new(options: &Options) -> Result<Self> {
        let mut guard = Self::default();
        for mirror in &options.mirrors {
            guard.name(&Place::mirror(&mirror.url)?.base);
        }
        for registry in options.named_registries() {
            let host = docker_hub_or(registry);
            // Without a port in the name: both ways to speak to it.
            for scheme in ["https", "http"] {
                if let Ok(url) = Url::parse(&format!("{scheme}://{host}")) {
                    guard.name(&url);
                }
            }
        }
        let proxies = PROXY_VARIABLES.iter().filter_map(|name| env::var(name).ok());
        guard.names.extend(proxies.filter_map(|proxy| host_of_proxy(&proxy)));
        Ok(guard)
    }

    fn name(&mut self, url: &Url) {
        if let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) {
            self.named.insert((host.to_owned(), port));
            self.names.insert(host.to_owned());
        }
    }

    /// Refuses what can be seen to lead inside without a look-up.
    pub(super) fn check(&self, url: &Url) -> Result<(), Refused> {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        if self.named.contains(&(host.to_owned(), port)) {
            return Ok(());
        }
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_outside = match address {
            Ok(address) => is_public(address),
            // At its lookup a name that was named is free, so its other ports are closed here.
            Err(_not_an_address) => !is_local_name(host) && !self.names.contains(host),
        };
        if is_outside { Ok(()) } else { Err(Refused { host: host.to_owned() }) }
    }
}

fn host_of_proxy(proxy: &str) -> Option<String> {
    let url = Url::parse(proxy).ok().filter(Url::has_host);
    let url = url.or_else(|| Url::parse(&format!("http://{proxy}")).ok())?;
    url.host_str().map(str::to_owned)
}

/// Looks names up for the client that only goes where [`Guard`] allows: the client dials what comes out of this and nothing
/// else, so a name cannot change its mind in between.
pub(super) struct PublicOnly(pub(super) Arc<Guard>);

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.0);
        Box::pin(async move {
            let host = name.as_str();
            let mut found: Vec<_> = tokio::net::lookup_host((host, 0)).await?.collect();
            if !guard.names.contains(host) {
                found.retain(|address| is_public(address.ip()));
                if found.is_empty() {
                    return Err(Refused { host: host.to_owned() }.into());
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Mirror;

    fn guard() -> Guard {
        Guard::new(&Options {
            mirrors: vec![Mirror { registry: "docker.io".into(), url: "http://10.0.0.9:5000/x".into() }],
            insecure: vec!["registry.lan:5000".into(), "127.0.0.1:5001".into()],
            registries: Some(vec!["docker.io".into(), "corp.internal".into(), "[::1]:5002".into()]),
            ..Options::default()
        })
        .unwrap()
    }

    #[test]
    fn what_is_inside_is_closed_and_what_was_named_is_open() {
        let guard = guard();
        for open in [
            "https://registry.example/v2/",
            "http://8.8.8.8/",
            "http://10.0.0.9:5000/v2/",
            "http://registry.lan:5000/v2/",
            "http://127.0.0.1:5001/v2/",
            "https://corp.internal/v2/",
            "http://corp.internal/v2/",
            "http://[::1]:5002/",
            "https://registry-1.docker.io/v2/",
        ] {
            guard.check(&open.parse().unwrap()).unwrap_or_else(|refused| panic!("{open}: {refused}"));
        }
        for closed in [
            "http://127.0.0.1/",
            "http://127.0.0.1:5002/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://localhost:5001/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]:5001/",
            "http://10.0.0.9/",
            "http://169.254.169.254/latest/meta-data",
            "https://registry.lan/",
            "http://registry.lan:22/",
            "https://corp.internal:8443/",
            "http://metadata.google.internal/",
        ] {
            assert!(guard.check(&closed.parse().unwrap()).is_err(), "{closed}");
        }
    }

    #[tokio::test]
    async fn a_name_is_looked_up_to_public_addresses_or_to_nothing() {
        let resolve = |guard: Guard, name: &str| PublicOnly(Arc::new(guard)).resolve(name.parse().unwrap());
        let Err(refused) = resolve(Guard::default(), "localhost").await else { panic!("it was found") };
        assert_eq!(
            refused.downcast_ref::<Refused>().map(ToString::to_string).as_deref(),
            Some("localhost is not at a public address")
        );
        let mut free = Guard::default();
        free.names.insert("localhost".to_owned());
        assert!(
            resolve(free, "localhost").await.is_ok_and(|mut found| found.all(|one| one.ip().is_loopback()))
        );
    }

    #[test]
    fn hosts_of_proxies() {
        for (text, host) in [
            ("http://proxy.lan:3128", Some("proxy.lan")),
            ("proxy.lan:3128", Some("proxy.lan")),
            ("http://me:word@10.1.1.1", Some("10.1.1.1")),
            ("", None),
        ] {
            assert_eq!(host_of_proxy(text).as_deref(), host, "{text}");
        }
    }
}
