//! The section `network`: what sandboxes may reach at most, and the proxy through which this host reaches the internet.

use backends::namespace::HostProxy;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use edge::UpstreamProxy;
use gateway::Url;
use sandbox::{
    Policy,
    network::{IpNet, Rule},
};
use toml::Value;

use crate::env;

/// The daemon's owner is not bound by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NetworkConfig {
    pub(crate) ceiling: Policy,
    /// In place of the environment's.
    pub(super) proxy: Option<Url>,
}

impl NetworkConfig {
    /// The proxy of the configuration, or else of the daemon's environment.
    pub(crate) fn host_proxy(&self) -> Option<HostProxy> {
        let url = self.proxy.clone().or_else(|| {
            let text = env::proxy()?;
            let url = parse(&text);
            if url.is_none() {
                tracing::warn!(
                    "the proxy of the environment is not an http:// address: sandboxes do not use it"
                );
            }
            url
        })?;
        host_proxy(&url, &env::no_proxy().unwrap_or_default())
    }

    /// Sets one key of the section. The error describes the expected value.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), &'static str> {
        match key {
            "network.ceiling" => {
                let preset = value.as_str().and_then(|text| text.parse().ok());
                self.ceiling.preset = preset.ok_or("none, packages, public, public+private or all")?;
            }
            "network.proxy" => {
                let url = value.as_str().and_then(parse);
                self.proxy =
                    Some(url.ok_or("the address of an HTTP proxy such as \"http://proxy.example:3128\"")?);
            }
            _ => {
                let rule = |text: &Value| text.as_str().and_then(|text| text.parse::<Rule>().ok());
                let rules = value.as_array().and_then(|list| list.iter().map(rule).collect());
                self.ceiling.rules =
                    rules.ok_or("a list of rules such as [\"deny *.corp.example\", \"host:3000\"]")?;
            }
        }
        Ok(())
    }
}

/// `http://`, which may be missing as in the variables.
fn parse(text: &str) -> Option<Url> {
    let url = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
    let url = url.ok()?;
    (url.scheme() == "http" && url.has_host()).then_some(url)
}

/// `excepted`: as `NO_PROXY` has it. `None` if that excepts everything.
fn host_proxy(url: &Url, excepted: &str) -> Option<HostProxy> {
    let mut settings = UpstreamProxy::default();
    for word in excepted.split(',').map(str::trim) {
        if word == "*" {
            return None;
        }
        let name = word.trim_start_matches("*.").trim_start_matches('.');
        if let Ok(net) = word.parse::<IpNet>() {
            settings.direct.push(net);
        } else if let Ok(name) = name.split(':').next().unwrap_or(name).parse() {
            settings.direct_names.push(name);
        }
    }
    if !url.username().is_empty() {
        let decode = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<_>>();
        let (user, password) = (decode(url.username()), decode(url.password().unwrap_or_default()));
        let pair = [&user[..], b":", &password].concat();
        settings.authorization = Some(format!("Basic {}", BASE64_STANDARD.encode(pair)));
    }
    let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
    Some(HostProxy { host, port: url.port_or_known_default()?, settings })
}

#[cfg(test)]
mod tests {
    use sandbox::Preset;

    use super::*;

    #[test]
    fn what_the_file_says_is_what_is_used() {
        let mut config = NetworkConfig::default();
        assert_eq!(config.ceiling.preset, Preset::Packages);
        config.set("network.ceiling", &Value::from("public")).unwrap();
        config.set("network.ceiling_rules", &Value::from(vec!["deny *.corp.example"])).unwrap();
        assert_eq!(config.ceiling.to_string(), "public, deny *.corp.example");
        assert!(config.set("network.ceiling", &Value::from("everything")).is_err());
        config.set("network.proxy", &Value::from("http://ana:p%40ss@proxy.example:3128")).unwrap();
        for wrong in ["https://proxy.example", "socks5://proxy.example:1080", "", "http://"] {
            assert!(config.set("network.proxy", &Value::from(wrong)).is_err(), "{wrong}");
        }
        assert!(config.set("network.ceiling_rules", &Value::from(vec!["no such rule"])).is_err());
    }

    #[test]
    fn a_proxy_has_an_address_credentials_and_exceptions() {
        let url = parse("http://ana:p%40ss@proxy.example:3128").unwrap();
        let proxy = host_proxy(&url, "localhost, .corp.example,10.0.0.0/8,*.lan:80,bad name").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.example", 3128));
        assert_eq!(proxy.settings.authorization.as_deref(), Some("Basic YW5hOnBAc3M="));
        assert!(!format!("{proxy:?}").contains("YW5h"), "{proxy:?}");
        assert_eq!(proxy.settings.direct, ["10.0.0.0/8".parse().unwrap()]);
        let names: Vec<_> = proxy.settings.direct_names.iter().map(|name| name.as_str()).collect();
        assert_eq!(names, ["localhost", "corp.example", "lan"]);
        assert!(host_proxy(&url, "*").is_none());
        let plain = host_proxy(&parse("[::1]:8080").unwrap(), "").unwrap();
        assert_eq!((plain.host.as_str(), plain.port, plain.settings.authorization), ("::1", 8080, None));
        assert_eq!(host_proxy(&parse("proxy.example").unwrap(), "").unwrap().port, 80);
    }
}
