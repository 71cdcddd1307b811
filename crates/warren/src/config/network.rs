//! The section `network`: what sandboxes may reach at most.

use sandbox::{Policy, network::Rule};
use toml::Value;

/// The daemon's owner is not bound by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NetworkConfig {
    pub(crate) ceiling: Policy,
}

impl NetworkConfig {
    /// Sets one key of the section. The error describes the expected value.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), &'static str> {
        match key {
            "network.ceiling" => {
                let preset = value.as_str().and_then(|text| text.parse().ok());
                self.ceiling.preset = preset.ok_or("none, packages, public, public+private or all")?;
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
        assert!(config.set("network.ceiling_rules", &Value::from(vec!["no such rule"])).is_err());
    }
}
