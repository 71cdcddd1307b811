//! The section `ssh`: where the SSH server listens, and whom and what it accepts.

use std::{fs, net::SocketAddr, path::PathBuf};

use sandbox::{Error, ErrorKind, ImageRef, Result};
use ssh::{DEFAULT_ACCEPTED_ENV, Settings};
use toml::Value;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SshConfig {
    pub(crate) listen: Option<SocketAddr>,
    /// A file with the public keys of authorities.
    pub(crate) trusted_user_ca: Option<PathBuf>,
    pub(crate) accept_env: Option<Vec<String>>,
    /// The name that makes a sandbox for a login.
    pub(crate) new: Option<String>,
    pub(crate) new_image: Option<ImageRef>,
}

impl SshConfig {
    /// Sets one key of the section. The error describes the expected value.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), &'static str> {
        let text = value.as_str();
        match key {
            "ssh.listen" => {
                let address = text.and_then(|text| text.parse().ok());
                self.listen = Some(address.ok_or("an address such as \"127.0.0.1:2222\"")?);
            }
            "ssh.trusted_user_ca" => {
                let path = text.map(PathBuf::from).filter(|path| path.is_absolute());
                self.trusted_user_ca = Some(path.ok_or("an absolute path of a file with public keys")?);
            }
            "ssh.accept_env" => {
                let names = value
                    .as_array()
                    .and_then(|list| list.iter().map(|name| name.as_str().map(str::to_owned)).collect());
                self.accept_env = Some(names.ok_or("a list of names such as [\"LANG\", \"LC_*\"]")?);
            }
            "ssh.new" => {
                let name = text.filter(|name| name.parse::<sandbox::SandboxName>().is_ok());
                self.new = Some(name.ok_or("a name such as \"new\"")?.to_owned());
            }
            _ => {
                let image = text.and_then(|text| text.parse().ok());
                self.new_image = Some(image.ok_or("an image such as \"host\" or \"debian:12\"")?);
            }
        }
        Ok(())
    }

    /// The server's settings. Reads the file of authorities.
    pub(crate) fn settings(&self, is_dev: bool) -> Result<Settings> {
        let authorities = match &self.trusted_user_ca {
            Some(path) => {
                let text = fs::read_to_string(path).map_err(|error| {
                    let message = format!("could not read the authorities in {}: {error}", path.display());
                    Error::new(ErrorKind::Unavailable, message)
                        .with_hint("Correct ssh.trusted_user_ca, or remove it.")
                })?;
                text.parse()
                    .map_err(|error: Error| error.reworded(|words| format!("{}: {words}", path.display())))?
            }
            None => ssh::Authorities::default(),
        };
        let default_env = || DEFAULT_ACCEPTED_ENV.map(str::to_owned).to_vec();
        Ok(Settings {
            accepted_env: self.accept_env.clone().unwrap_or_else(default_env),
            new_name: self.new.clone(),
            new_image: self.new_image.clone().unwrap_or_default(),
            authorities,
            is_dev,
            ..Settings::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_says_is_what_is_used() {
        let mut config = SshConfig::default();
        config.set("ssh.listen", &Value::from("127.0.0.1:2222")).unwrap();
        config.set("ssh.accept_env", &Value::from(vec!["FOO_*"])).unwrap();
        config.set("ssh.new", &Value::from("new")).unwrap();
        config.set("ssh.new_image", &Value::from("debian:12")).unwrap();
        assert_eq!(config.listen, Some("127.0.0.1:2222".parse().unwrap()));
        let settings = config.settings(false).unwrap();
        assert_eq!(settings.accepted_env, ["FOO_*"]);
        assert_eq!(settings.new_name.as_deref(), Some("new"));
        for (key, value) in [
            ("ssh.listen", Value::from("here")),
            ("ssh.trusted_user_ca", Value::from("ca.pub")),
            ("ssh.accept_env", Value::from("LANG")),
            ("ssh.new", Value::from("../new")),
            ("ssh.new_image", Value::from(1)),
        ] {
            assert!(config.set(key, &value).is_err(), "{key}");
        }
    }

    #[test]
    fn authorities_that_cannot_be_read_are_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("ca.pub");
        let config = SshConfig { trusted_user_ca: Some(path.clone()), ..SshConfig::default() };
        assert!(config.settings(false).unwrap_err().to_string().contains("ca.pub"));
        fs::write(&path, "nonsense").unwrap();
        assert!(config.settings(false).unwrap_err().to_string().contains("ca.pub"));
    }
}
