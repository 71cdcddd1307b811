//! Docker's file of credentials, which the daemon reads for pulls and pushes: `warren login` writes it as
//! `docker login` does, into a credential helper where the file names one.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sandbox::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

/// Docker's own registry, and the name under which Docker keeps what belongs to it.
pub(crate) const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";
/// Largest file that is read.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// The file, with everything in it that is none of our business.
#[derive(Debug)]
pub(crate) struct DockerConfig {
    path: PathBuf,
    fields: Map<String, Value>,
    /// The field `auths`, by registry.
    entries: Map<String, Value>,
}

impl DockerConfig {
    /// `$DOCKER_CONFIG/config.json`, or the one in the home directory. It need not exist.
    pub(crate) fn open() -> Result<Self> {
        let directory = env::var_os("DOCKER_CONFIG")
            .map(PathBuf::from)
            .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".docker")));
        let directory = directory.ok_or_else(|| {
            Error::invalid("there is no home directory for credentials")
                .with_hint("Set HOME or DOCKER_CONFIG.")
        })?;
        Self::read(directory.join("config.json"))
    }

    /// The file that another process of this user reads, according to the environment that it was started with.
    pub(crate) fn path_of_process(pid: i32) -> Option<PathBuf> {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        path_in(&environment)
    }

    fn read(path: PathBuf) -> Result<Self> {
        let text = match fs::File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed("read", &path, error)),
            Ok(file) => {
                let mut text = String::new();
                io::Read::read_to_string(&mut io::Read::take(file, MAX_CONFIG_BYTES), &mut text)
                    .map_err(|error| failed("read", &path, error))?;
                text
            }
        };
        if text.trim().is_empty() {
            return Ok(Self { path, fields: Map::new(), entries: Map::new() });
        }
        // Its text holds secrets, so what the parser says, which may quote it, is not passed on.
        let Ok(Value::Object(mut fields)) = serde_json::from_str(&text) else {
            return Err(Error::invalid(format!("{} is not a configuration of Docker", path.display())));
        };
        let entries = match fields.remove("auths") {
            Some(Value::Object(entries)) => entries,
            _ => Map::new(),
        };
        Ok(Self { path, fields, entries })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the credentials. Returns the helper that has them, if one does.
    pub(crate) fn store(mut self, registry: &str, username: &str, password: &str) -> Result<Option<String>> {
        let key = key_of(registry);
        if let Some(helper) = self.helper(registry) {
            let said = json!({ "ServerURL": key, "Username": username, "Secret": password });
            run_helper(&helper, "store", &said.to_string())?;
            self.entries.insert(key.to_owned(), json!({}));
            self.write()?;
            return Ok(Some(helper));
        }
        let auth = STANDARD.encode(format!("{username}:{password}"));
        self.entries.insert(key.to_owned(), json!({ "auth": auth }));
        self.write()?;
        Ok(None)
    }

    /// Forgets the credentials. Returns whether there were any.
    pub(crate) fn erase(mut self, registry: &str) -> Result<bool> {
        let key = key_of(registry);
        let helper = self.helper(registry);
        if let Some(helper) = &helper {
            run_helper(helper, "erase", key)?;
        }
        let known = self.entries.remove(key).is_some();
        if known {
            self.write()?;
        }
        Ok(known || helper.is_some())
    }

    fn helper(&self, registry: &str) -> Option<String> {
        let helpers = self.fields.get("credHelpers").and_then(Value::as_object);
        let own = helpers.and_then(|helpers| helpers.get(registry).or_else(|| helpers.get(key_of(registry))));
        own.or_else(|| self.fields.get("credsStore")).and_then(Value::as_str).map(str::to_owned)
    }

    /// Readable by its owner alone, and replaced as a whole.
    fn write(&self) -> Result<()> {
        let wrong = |error| failed("write", &self.path, error);
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory).map_err(wrong)?;
        }
        let mut fields = self.fields.clone();
        fields.insert("auths".to_owned(), Value::Object(self.entries.clone()));
        let text = serde_json::to_string_pretty(&fields).map_err(|error| wrong(error.into()))?;
        let new = self.path.with_extension(format!("json.{}", std::process::id()));
        let mut file =
            fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new).map_err(wrong)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&new, &self.path));
        written.inspect_err(|_failed| drop(fs::remove_file(&new))).map_err(wrong)
    }
}

/// As the daemon chooses it. `environment`: each variable ends with a NUL.
fn path_in(environment: &[u8]) -> Option<PathBuf> {
    let variable = |name: &[u8]| {
        let mut variables = environment.split(|byte| *byte == 0);
        let value = variables.find_map(|line| line.strip_prefix(name)?.strip_prefix(b"="))?;
        Some(PathBuf::from(OsStr::from_bytes(value)))
    };
    let directory = variable(b"DOCKER_CONFIG").or_else(|| Some(variable(b"HOME")?.join(".docker")))?;
    Some(directory.join("config.json"))
}

fn key_of(registry: &str) -> &str {
    if registry == DOCKER_HUB { DOCKER_HUB_KEY } else { registry }
}

fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("could not {what} {}", path.display())).with_source(error)
}

/// As docker runs it: the verb as an argument, the rest on stdin.
fn run_helper(helper: &str, verb: &str, said: &str) -> Result<()> {
    let is_name = !helper.is_empty()
        && helper.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_name {
        return Err(Error::invalid(format!("{helper:?} is not a credential helper")));
    }
    let program = format!("docker-credential-{helper}");
    let wrong = |error: io::Error| {
        Error::new(ErrorKind::Unavailable, format!("could not run {program}")).with_source(error)
    };
    let mut child = Command::new(&program)
        .arg(verb)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(wrong)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(said.as_bytes()).map_err(wrong)?;
    }
    let status = child.wait().map_err(wrong)?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Unavailable, format!("{program} {verb} failed: {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_login_is_kept_beside_what_others_wrote_and_forgotten_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/config.json");
        let open = || DockerConfig::read(path.clone()).unwrap();
        assert_eq!(open().store("r.example:5000", "ana", "p:w").unwrap(), None);
        fs::write(&path, fs::read_to_string(&path).unwrap().replacen('{', "{\"psFormat\": \"x\",", 1))
            .unwrap();
        open().store(DOCKER_HUB, "bo", "secret").unwrap();
        let kept: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(
            kept,
            json!({
                "psFormat": "x",
                "auths": {
                    "r.example:5000": { "auth": STANDARD.encode("ana:p:w") },
                    "https://index.docker.io/v1/": { "auth": STANDARD.encode("bo:secret") },
                },
            })
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(open().erase(DOCKER_HUB).unwrap());
        assert!(!open().erase(DOCKER_HUB).unwrap());
        assert!(open().erase("r.example:5000").unwrap());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn the_file_of_another_process_is_that_of_its_environment() {
        let found = |text: &str| path_in(text.as_bytes()).map(|path| path.display().to_string());
        assert_eq!(found("A=b\0HOME=/home/ana\0").unwrap(), "/home/ana/.docker/config.json");
        assert_eq!(found("HOME=/home/ana\0DOCKER_CONFIG=/etc/d\0").unwrap(), "/etc/d/config.json");
        assert_eq!(found("HOMES=/x\0"), None);
    }

    #[test]
    fn a_file_that_is_no_configuration_is_not_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("config.json");
        fs::write(&path, "[]").unwrap();
        assert!(DockerConfig::read(path.clone()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "[]");
    }
}
