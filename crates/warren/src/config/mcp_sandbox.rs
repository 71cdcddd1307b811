//! The `config.toml` of mcp-sandbox, for a daemon that speaks its dialect: what means something here is used, and the
//! rest is named once.

use std::path::Path;

use gateway::Url;
use sandbox::{Error, Result};
use toml::{Table, Value};

use super::is_http;

/// Sections that only their file has.
const SECTIONS: [&str; 6] = ["server", "auth", "docker", "sandbox", "logging", "mirror"];
const MAX_SHOWN_CHARS: usize = 64;

/// The settings of mcp-sandbox's own file that count here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct McpSandboxConfig {
    /// The address to listen on, unless a flag or a variable says otherwise.
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
    pub(super) pip_index: Option<Url>,
    /// Keys without a meaning here.
    pub(super) ignored: Vec<String>,
}

impl McpSandboxConfig {
    /// Takes their sections out of a file, which may have ours too.
    pub(super) fn take_from(table: &mut Table, path: &Path) -> Result<Self> {
        let mut config = Self::default();
        for section in SECTIONS {
            match table.remove(section) {
                Some(Value::Table(keys)) => {
                    for (key, value) in &keys {
                        config.set(&format!("{section}.{key}"), value, path)?;
                    }
                }
                Some(_) => return Err(wrong(path, section, "a section")),
                None => {}
            }
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &Value, path: &Path) -> Result<()> {
        match key {
            "server.host" => match value.as_str() {
                Some(host) => self.host = Some(host.to_owned()),
                None => return Err(wrong(path, key, "an IP address or localhost")),
            },
            "server.port" => match value.as_integer().and_then(|port| u16::try_from(port).ok()) {
                Some(port) => self.port = Some(port),
                None => return Err(wrong(path, key, "a port")),
            },
            "mirror.pypi_index_url" => {
                let url = value.as_str().and_then(|text| Url::parse(text).ok()).filter(is_http);
                self.pip_index = Some(url.ok_or_else(|| wrong(path, key, "an http or https address"))?);
            }
            _ => self.ignored.push(key.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect()),
        }
        Ok(())
    }

    /// One sentence about all that has no effect.
    pub(super) fn warning(&self, path: &Path) -> Option<String> {
        let names = self.ignored.join(", ");
        (!names.is_empty()).then(|| format!("{}: these keys have no effect here: {names}", path.display()))
    }
}

/// The value is not shown: it may be an address with a password.
fn wrong(path: &Path, key: &str, wanted: &str) -> Error {
    Error::invalid(format!("{}: {key} is not {wanted}", path.display()))
        .with_hint(format!("Set {key} to {wanted}, or remove it."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it ships.
    const THEIRS: &str = "[server]\nhost = '0.0.0.0'\nport = 8000\n[auth]\nrequire_auth = false\n\
        default_user_id = 'root'\nuser_sandbox_limit = 3\n[docker]\ndefault_image = 'python-sandbox:latest'\n\
        dockerfile_path = 'sandbox_images/Dockerfile'\ncheck_dockerfile_changes = true\n\
        build_info_file = '.docker_build_info'\n[logging]\nlevel = 'INFO'\nlog_file = 'mcp_sandbox.log'\n\
        [mirror]\npypi_index_url = 'https://pypi.tuna.tsinghua.edu.cn/simple'\n";

    fn taken(text: &str) -> (Result<McpSandboxConfig>, Table) {
        let mut table: Table = text.parse().unwrap();
        let config = McpSandboxConfig::take_from(&mut table, Path::new("/c.toml"));
        (config, table)
    }

    #[test]
    fn their_own_file_is_read_and_what_has_no_effect_is_named_once() {
        let (config, left) = taken(&format!("{THEIRS}[npm]\nregistry = 'http://r.example'\n"));
        let config = config.unwrap();
        assert_eq!((config.host.as_deref(), config.port), (Some("0.0.0.0"), Some(8000)));
        assert_eq!(config.pip_index.as_ref().unwrap().host_str(), Some("pypi.tuna.tsinghua.edu.cn"));
        let warning = config.warning(Path::new("/c.toml")).unwrap();
        assert!(
            warning.contains("auth.user_sandbox_limit") && warning.contains("docker.default_image"),
            "{warning}"
        );
        assert!(!warning.contains("server.port") && !warning.contains("mirror"), "{warning}");
        // Ours stay for those who read them.
        assert_eq!(left.keys().collect::<Vec<_>>(), ["npm"]);
        assert_eq!(taken("").0.unwrap(), McpSandboxConfig::default());
    }

    #[test]
    fn wrong_values_are_named_and_never_shown() {
        for text in [
            "server = 'secret'",
            "[server]\nport = 'secret'",
            "[server]\nport = 99999",
            "[server]\nhost = 7",
            "[mirror]\npypi_index_url = 'ftp://me:secret@x/'",
        ] {
            let error = taken(text).0.unwrap_err();
            assert!(
                error.to_string().starts_with("/c.toml: ") && !error.to_string().contains("secret"),
                "{error}"
            );
        }
    }
}
