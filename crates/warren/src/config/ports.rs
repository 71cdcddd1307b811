//! The section `ports`: below which domain ports have host names, and where they may be published.

use std::net::IpAddr;

use frontends::ports::PortDomain;
use toml::Value;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PortsConfig {
    pub(crate) domain: Option<PortDomain>,
    pub(crate) publish_on: Vec<IpAddr>,
}

impl PortsConfig {
    /// Sets one key of the section. The error describes the expected value.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), &'static str> {
        match key {
            "ports.domain" => {
                let domain = value.as_str().and_then(|text| text.parse().ok());
                self.domain = Some(domain.ok_or("a domain such as \"apps.example\"")?);
            }
            _ => {
                let addresses = value.as_array().and_then(|list| {
                    list.iter().map(|text| text.as_str().and_then(|text| text.parse().ok())).collect()
                });
                self.publish_on = addresses.ok_or("a list of addresses such as [\"192.0.2.7\"]")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_says_is_what_is_used() {
        let mut config = PortsConfig::default();
        config.set("ports.domain", &Value::from("https://apps.example")).unwrap();
        config.set("ports.publish_on", &Value::from(vec!["192.0.2.7", "::"])).unwrap();
        assert_eq!(config.domain, Some("https://apps.example".parse().unwrap()));
        assert_eq!(config.publish_on, ["192.0.2.7", "::"].map(|text| text.parse::<IpAddr>().unwrap()));
        assert!(config.set("ports.domain", &Value::from("a b")).is_err());
        assert!(config.set("ports.publish_on", &Value::from(vec!["everywhere"])).is_err());
    }
}
