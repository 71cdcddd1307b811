//! Credentials as Docker keeps them: `config.json`, and helper programs that it names.

use std::{collections::BTreeMap, path::Path, process::Stdio, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
};

use crate::{
    error::{Error, Result},
    options::{Auth, Credentials},
};

/// Largest configuration that is read, and longest answer of a helper.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// The name under which Docker keeps what belongs to its own registry.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

/// A secret to show to a registry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Secret {
    Password(Credentials),
    /// To be exchanged for tokens.
    Identity(String),
    /// To be shown as it is.
    Token(String),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Finds the secret for `registry`, if there is one.
pub(crate) async fn find(auth: &Auth, registry: &str, limit: Duration) -> Result<Option<Secret>> {
    match auth {
        Auth::Anonymous => Ok(None),
        Auth::Given(known) => Ok(known.get(registry).cloned().map(Secret::Password)),
        Auth::DockerConfig(file) => match read(file).await? {
            Some(config) => of_config(&config, registry, limit).await,
            None => Ok(None),
        },
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DockerConfig {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry(…)")
    }
}

async fn read(file: &Path) -> Result<Option<DockerConfig>> {
    let open = match tokio::fs::File::open(file).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        open => open.map_err(Error::io("open", file))?,
    };
    let mut bytes = Vec::new();
    open.take(MAX_CONFIG_BYTES).read_to_end(&mut bytes).await.map_err(Error::io("read", file))?;
    // Its text holds secrets, so the parser's complaint, which may quote it, is not passed on.
    let parsed = serde_json::from_slice(&bytes).ok();
    parsed
        .map(Some)
        .ok_or_else(|| Error::invalid(format!("{} is not a configuration of docker", file.display())))
}

async fn of_config(config: &DockerConfig, registry: &str, limit: Duration) -> Result<Option<Secret>> {
    let key = if registry == "docker.io" { DOCKER_HUB_KEY } else { registry };
    let helper = config.cred_helpers.get(registry).or_else(|| config.cred_helpers.get(key));
    if let Some(helper) = helper.or(config.creds_store.as_ref())
        && let Some(secret) = ask(helper, key, limit).await?
    {
        return Ok(Some(secret));
    }
    let entry = config.auths.iter().find(|(name, _)| name.as_str() == key || host_of(name) == registry);
    entry.map_or(Ok(None), |(name, entry)| of_entry(name, entry))
}

/// Older versions of docker wrote addresses where newer ones write hosts.
fn host_of(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    key.split('/').next().unwrap_or(key)
}

fn of_entry(registry: &str, entry: &Entry) -> Result<Option<Secret>> {
    if let Some(token) = entry.registrytoken.as_ref().filter(|token| !token.is_empty()) {
        return Ok(Some(Secret::Token(token.clone())));
    }
    if let Some(token) = entry.identitytoken.as_ref().filter(|token| !token.is_empty()) {
        return Ok(Some(Secret::Identity(token.clone())));
    }
    if let (Some(username), Some(password)) = (&entry.username, &entry.password) {
        let (username, password) = (username.clone(), password.clone());
        return Ok(Some(Secret::Password(Credentials { username, password })));
    }
    let Some(encoded) = entry.auth.as_ref().filter(|encoded| !encoded.is_empty()) else { return Ok(None) };
    let decoded = STANDARD.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = decoded.as_deref().and_then(|text| text.split_once(':'));
    let (username, password) =
        pair.ok_or_else(|| Error::invalid(format!("the credentials for {registry} cannot be decoded")))?;
    let password = password.trim_end_matches('\0').to_owned();
    Ok(Some(Secret::Password(Credentials { username: username.to_owned(), password })))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// Runs `docker-credential-<helper> get`, as docker does. `None` when it has nothing for this registry.
async fn ask(helper: &str, key: &str, limit: Duration) -> Result<Option<Secret>> {
    let is_name = !helper.is_empty()
        && helper.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if !is_name {
        return Err(Error::invalid(format!("{helper:?} is not a credential helper")));
    }
    let program = format!("docker-credential-{helper}");
    let answer = tokio::time::timeout(limit, run(&program, key))
        .await
        .map_err(|_elapsed| Error::TimedOut { what: program.clone(), after: limit })??;
    let Some(answer) = answer else { return Ok(None) };
    let Some(Answer { username, secret }) = serde_json::from_slice(&answer).ok() else {
        return Err(Error::invalid(format!("the answer of {program} is not a credential")));
    };
    Ok(Some(match username.as_str() {
        "<token>" => Secret::Identity(secret),
        _ => Secret::Password(Credentials { username, password: secret }),
    }))
}

/// Runs the program and returns its output; `None` when it failed, which is also how helpers say that they know
/// nothing.
async fn run(program: &str, key: &str) -> Result<Option<Vec<u8>>> {
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(Error::io("start", program))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that does not read is no failure yet.
        let _unread = stdin.write_all(key.as_bytes()).await;
    }
    let mut printed = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(MAX_CONFIG_BYTES)
            .read_to_end(&mut printed)
            .await
            .map_err(Error::io("read from", program))?;
    }
    let status = child.wait().await.map_err(Error::io("wait for", program))?;
    if !status.success() {
        tracing::debug!(program, %status, "credential helper has nothing");
        return Ok(None);
    }
    Ok(Some(printed))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(config: &str, registry: &str) -> Option<Secret> {
        let config: DockerConfig = serde_json::from_str(config).unwrap();
        of_config(&config, registry, Duration::from_secs(5)).await.unwrap()
    }

    fn password(username: &str, password: &str) -> Option<Secret> {
        Some(Secret::Password(Credentials { username: username.to_owned(), password: password.to_owned() }))
    }

    #[tokio::test]
    async fn entries_are_found_under_all_their_names() {
        let config = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnNlY3JldDpjb2xvbg=="},
            "https://old.example/v2/": {"username": "u", "password": "p"},
            "new.example:5000": {"auth": "", "identitytoken": "id"},
            "empty.example": {}
        }}"#;
        assert_eq!(found(config, "docker.io").await, password("hub", "secret:colon"));
        assert_eq!(found(config, "old.example").await, password("u", "p"));
        assert_eq!(found(config, "new.example:5000").await, Some(Secret::Identity("id".to_owned())));
        assert_eq!(found(config, "new.example").await, None);
        assert_eq!(found(config, "empty.example").await, None);
    }

    #[tokio::test]
    async fn a_helper_is_a_name_and_no_path() {
        let config = r#"{"credsStore": "../../bin/sh"}"#;
        let config: DockerConfig = serde_json::from_str(config).unwrap();
        let refused = of_config(&config, "a.example", Duration::from_secs(5)).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })));
    }
}
