//! The section `events`: where events are sent.

use std::{
    env, fmt,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use gateway::Url;
use sandbox::{Error, ErrorKind, EventKind, Result};
use toml::Value;

use super::{is_http, is_trusted};

/// Longest secret, in bytes.
const MAX_SECRET_BYTES: u64 = 4096;
/// Shortest secret: fewer bytes could be guessed.
const MIN_SECRET_BYTES: usize = 16;

#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct EventsConfig {
    pub(super) webhook: Option<Url>,
    secret_file: Option<PathBuf>,
    secret_env: Option<String>,
    /// All, if absent.
    kinds: Option<Vec<EventKind>>,
}

/// The receiver of events, how they are signed, and which are sent.
pub(crate) struct Webhook {
    pub(crate) url: Url,
    /// As it is written.
    pub(crate) secret: String,
    pub(crate) kinds: Option<Vec<EventKind>>,
}

// Written by hand: an address may hold a token, and a secret is one.
impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

impl EventsConfig {
    /// Sets one key of the section. The error describes the expected value.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), &'static str> {
        let text = value.as_str();
        match key {
            "events.webhook" => {
                let url = text.and_then(|text| Url::parse(text).ok()).filter(is_http);
                self.webhook = Some(url.ok_or("an http or https address")?);
            }
            "events.secret_file" => {
                let path = text.map(PathBuf::from).filter(|path| path.is_absolute());
                self.secret_file = Some(path.ok_or("an absolute path of a file with a secret")?);
            }
            "events.secret_env" => {
                let name = text.filter(|name| !name.is_empty() && !name.contains(['=', '\0']));
                self.secret_env = Some(name.ok_or("the name of an environment variable")?.to_owned());
            }
            _ => {
                let parse = |kind: &Value| kind.as_str().and_then(|kind| kind.parse::<EventKind>().ok());
                let kinds =
                    value.as_array().and_then(|list| list.iter().map(parse).collect::<Option<Vec<_>>>());
                let wanted = "a list of kinds of events such as [\"sandbox_failed\", \"out_of_memory\"]";
                self.kinds = Some(kinds.ok_or(wanted)?);
            }
        }
        Ok(())
    }

    /// The webhook, with its secret, which is read now.
    pub(crate) fn webhook(&self) -> Result<Option<Webhook>> {
        let Some(url) = self.webhook.clone() else { return Ok(None) };
        let secret = match (&self.secret_file, &self.secret_env) {
            (Some(path), None) => read_secret(path)?,
            (None, Some(name)) => env::var(name).map_err(|_unset| {
                Error::invalid(format!("events.secret_env names {name}, which is not set"))
                    .with_hint(format!("Set {name} in the daemon's environment, or use events.secret_file."))
            })?,
            _ => {
                return Err(Error::invalid("events.webhook needs one secret")
                    .with_hint("Set either events.secret_file or events.secret_env."));
            }
        };
        let secret = secret.trim().to_owned();
        if secret.len() < MIN_SECRET_BYTES {
            let message = format!("the webhook's secret is shorter than {MIN_SECRET_BYTES} bytes");
            return Err(Error::invalid(message).with_hint("`openssl rand -hex 32` makes a good one."));
        }
        Ok(Some(Webhook { url, secret, kinds: self.kinds.clone() }))
    }
}

fn read_secret(path: &Path) -> Result<String> {
    let failed = |error: io::Error| {
        let message = format!("could not read the webhook's secret in {}: {error}", path.display());
        Error::new(ErrorKind::Unavailable, message).with_hint("Correct events.secret_file.")
    };
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let us = rustix::process::geteuid().as_raw();
    if !about.is_file() || !is_trusted(about.uid(), us) || about.mode() & 0o077 != 0 {
        let message = format!("others may read or replace the webhook's secret in {}", path.display());
        return Err(Error::new(ErrorKind::Denied, message)
            .with_hint("It must be a regular file of the daemon's user or root; run `chmod 600` on it."));
    }
    let mut text = String::new();
    file.take(MAX_SECRET_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn config(secret_file: &Path) -> EventsConfig {
        let mut config = EventsConfig::default();
        config.set("events.webhook", &Value::from("https://hooks.example/warren?token=hidden")).unwrap();
        config.set("events.secret_file", &Value::from(secret_file.to_str().unwrap())).unwrap();
        config
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("secret");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        for mode in [0o644, 0o640, 0o604] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(config(&path).webhook().unwrap_err().kind(), ErrorKind::Denied, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let webhook = config(&path).webhook().unwrap().unwrap();
        assert_eq!(webhook.secret, "0123456789abcdef");
        let shown = format!("{webhook:?}");
        assert!(!shown.contains("hidden") && !shown.contains("0123"), "{shown}");
        fs::write(&path, "short").unwrap();
        assert_eq!(config(&path).webhook().unwrap_err().kind(), ErrorKind::InvalidRequest);
        assert!(config(&place.path().join("none")).webhook().unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        let mut config = EventsConfig::default();
        assert!(config.webhook().unwrap().is_none());
        for (key, value) in [
            ("events.webhook", Value::from("ftp://x/")),
            ("events.secret_file", Value::from("secret")),
            ("events.secret_env", Value::from("")),
            ("events.kinds", Value::from(vec!["sandbox_eaten"])),
            ("events.kinds", Value::from("sandbox_created")),
        ] {
            assert!(config.set(key, &value).is_err(), "{key}");
        }
        config.set("events.webhook", &Value::from("https://hooks.example/")).unwrap();
        assert!(config.webhook().unwrap_err().to_string().contains("secret"));
        config.set("events.secret_env", &Value::from("WARREN_TEST_NOT_SET")).unwrap();
        assert!(config.webhook().unwrap_err().to_string().contains("WARREN_TEST_NOT_SET"));
    }
}
