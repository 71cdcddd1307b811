//! Where a pull for somebody who does not run this daemon may lead: to public addresses, and to what the operator
//! named.
//!
//! A reference names any host, and a registry answers with others: redirects, token services. The guard checks each
//! before it is asked; the client checks the addresses that names resolve to.

use std::env;

use downloads::Guard;
use reqwest::Url;

use super::{Endpoint, docker_hub_or};
use crate::{error::Result, options::Options};

/// Variables from which the HTTP client takes the operator's proxy.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

pub(super) fn guard(options: &Options) -> Result<Guard> {
    let mut guard = Guard::default();
    for mirror in &options.mirrors {
        allow(&mut guard, &Endpoint::mirror(&mirror.url)?.base);
    }
    for registry in options.named_registries() {
        let host = docker_hub_or(registry);
        // A name without a port stands for both schemes.
        for scheme in ["https", "http"] {
            if let Ok(url) = Url::parse(&format!("{scheme}://{host}")) {
                allow(&mut guard, &url);
            }
        }
    }
    let proxies = PROXY_VARIABLES.iter().filter_map(|name| env::var(name).ok());
    for name in proxies.filter_map(|proxy| host_of_proxy(&proxy)) {
        guard.allow_private_name(&name);
    }
    Ok(guard)
}

fn allow(guard: &mut Guard, url: &Url) {
    if let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) {
        guard.allow(host, Some(port));
        guard.allow_private_name(host);
    }
}

fn host_of_proxy(proxy: &str) -> Option<String> {
    let url = Url::parse(proxy).ok().filter(Url::has_host);
    let url = url.or_else(|| Url::parse(&format!("http://{proxy}")).ok())?;
    url.host_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Mirror;

    #[test]
    fn what_is_inside_is_closed_and_what_was_named_is_open() {
        let guard = guard(&Options {
            mirrors: vec![Mirror { registry: "docker.io".into(), url: "http://10.0.0.9:5000/x".into() }],
            insecure: vec!["registry.lan:5000".into(), "127.0.0.1:5001".into()],
            registries: Some(vec!["docker.io".into(), "corp.internal".into(), "[::1]:5002".into()]),
            ..Options::default()
        })
        .unwrap();
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
