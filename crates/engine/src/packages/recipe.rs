//! From packages to the command that installs them.

use std::{collections::BTreeMap, time::Duration};

use sandbox::{Error, ErrorKind, ExecSpec, PackageManager, RequestId, Result, SandboxPlan};
use serde::Deserialize;

use super::{PackageGateway, errand, run::FROM_FILE};
use crate::shared::Life;

/// An install that takes longer is killed, unless its caller set another limit.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Our programs travel in the environment, so that the exec's command stays readable.
const BOOTSTRAP: &str = include_str!("bootstrap.py");
const BOOTSTRAP_VARIABLE: &str = "WARREN_PIP_BOOTSTRAP";
const RUN_BOOTSTRAP: &str = "import os; exec(os.environ['WARREN_PIP_BOOTSTRAP'])";
const APT: &str = include_str!("apt.sh");
/// The script that apt runs before dpkg, both in our installs and in commands that a user types.
pub(super) const OWN_FILES: &str = include_str!("own-files.sh");
const OWN_FILES_VARIABLE: &str = "WARREN_OWN_FILES";
const APT_VARIABLE: &str = "WARREN_APT_INSTALL";
const RUN_APT: &str = "eval \"$WARREN_APT_INSTALL\"";
const APT_SOURCES_VARIABLE: &str = "WARREN_APT_SOURCES";

/// Prints facts about Python inside, as JSON.
const PYTHON_FACTS: &str = "\
import importlib.util, json, os, sysconfig
place = sysconfig.get_path('purelib')
while not os.path.isdir(place):
    place = os.path.dirname(place)
print(json.dumps({
    'pip': importlib.util.find_spec('pip') is not None,
    'writable': os.access(place, os.W_OK),
}))
";
const FACTS: &str = "command -v uv >/dev/null 2>&1 && uv=1\n\
    command -v python3 >/dev/null 2>&1 || exit 127\n\
    echo \"${uv:-0}\"; exec python3 -c \"$1\"";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct Python {
    pip: bool,
    /// Whether the sandbox's user may write to the system's packages.
    writable: bool,
    #[serde(skip)]
    uv: bool,
}

/// The exec that installs `packages` from the index on `port` inside.
pub(super) async fn exec(
    life: &Life,
    plan: &SandboxPlan,
    gateway: &dyn PackageGateway,
    asked: &Asked<'_>,
    port: u16,
) -> Result<ExecSpec> {
    let served = format!("http://127.0.0.1:{port}");
    let base = format!("{served}/{}/", asked.manager);
    let (mut command, mut env) = match asked.manager {
        PackageManager::Pip => pip(python(life, plan).await?, &base),
        PackageManager::Npm => npm(&base),
        PackageManager::Apt => apt(gateway.apt_sources(&served)?),
    };
    for text in asked.packages {
        match text.strip_prefix(FROM_FILE) {
            Some(file) => command.extend(["-r".to_owned(), file.to_owned()]),
            None => command.push(text.clone()),
        }
    }
    // The index is on loopback, whatever proxies the sandbox's own environment sets.
    for name in ["NO_PROXY", "no_proxy"] {
        env.insert(name.to_owned(), "127.0.0.1".to_owned());
    }
    Ok(ExecSpec {
        command,
        env,
        cwd: Some(asked.cwd.clone()),
        timeout: Some(asked.timeout.unwrap_or(DEFAULT_TIME_LIMIT)),
        request_id: Some(asked.request_id.clone()),
        ..ExecSpec::default()
    })
}

pub(super) struct Asked<'a> {
    pub(super) manager: PackageManager,
    /// Packages, and files that name them after [`FROM_FILE`].
    pub(super) packages: &'a [String],
    pub(super) cwd: String,
    pub(super) timeout: Option<Duration>,
    /// The request of the exec, by which it is found again.
    pub(super) request_id: RequestId,
}

type Command = (Vec<String>, BTreeMap<String, String>);

async fn python(life: &Life, plan: &SandboxPlan) -> Result<Python> {
    let words = ["/bin/sh", "-c", FACTS, "facts", PYTHON_FACTS];
    let output = errand::run(life, plan, &words, "/").await?;
    let none = || {
        Error::new(ErrorKind::Unsupported, format!("{} has no python3", life.client.label()))
            .with_hint("Use an image with Python, or install python3 with apt.")
    };
    let output = output.ok_or_else(none)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let uv = lines.next().ok_or_else(none)? == "1";
    let facts = lines.next().and_then(|line| serde_json::from_str::<Python>(line).ok());
    let facts = facts.ok_or_else(|| {
        let message = format!("python3 in {} does not work: {}", life.client.label(), output.complaint());
        Error::new(ErrorKind::WrongState, message).with_hint("Run python3 yourself to see why.")
    })?;
    Ok(Python { uv, ..facts })
}

/// Everything is set by the environment: an old pip ignores what it does not know.
fn pip(python: Python, base: &str) -> Command {
    let index = format!("{base}simple/");
    let env = [
        ("PIP_INDEX_URL", index.as_str()),
        ("PIP_CONFIG_FILE", "/dev/null"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("PIP_NO_INPUT", "1"),
        ("PIP_NO_CACHE_DIR", "1"),
        ("PIP_PROGRESS_BAR", "off"),
        ("PIP_ROOT_USER_ACTION", "ignore"),
        ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
        ("PIP_TIMEOUT", "120"),
        ("UV_DEFAULT_INDEX", &index),
        ("UV_NO_CONFIG", "1"),
        ("UV_NO_CACHE", "1"),
        ("UV_NO_PROGRESS", "1"),
        ("UV_LINK_MODE", "copy"),
        ("UV_PYTHON_DOWNLOADS", "never"),
        ("UV_BREAK_SYSTEM_PACKAGES", "1"),
        ("UV_HTTP_TIMEOUT", "120"),
    ];
    let mut env = variables(&env);
    if !python.pip {
        env.insert(BOOTSTRAP_VARIABLE.to_owned(), BOOTSTRAP.to_owned());
    }
    let words: &[&str] = match python {
        Python { uv: true, writable: true, .. } => &["uv", "pip", "install", "--system"],
        Python { pip: true, writable: true, .. } => &["python3", "-m", "pip", "install"],
        Python { pip: true, writable: false, .. } => &["python3", "-m", "pip", "install", "--user"],
        Python { pip: false, writable: true, .. } => &["python3", "-c", RUN_BOOTSTRAP, "install"],
        Python { pip: false, writable: false, .. } => &["python3", "-c", RUN_BOOTSTRAP, "install", "--user"],
    };
    (owned(words), env)
}

/// Installs for the project around the working directory, as npm finds it: the nearest one with a `package.json`.
fn npm(base: &str) -> Command {
    let words = ["npm", "install", "--registry", base, "--no-audit", "--no-fund"];
    let env = [
        ("npm_config_update_notifier", "false"),
        ("npm_config_progress", "false"),
        // Otherwise the project's lock file would contain the port of this install.
        ("npm_config_omit_lockfile_registry_resolved", "true"),
        ("npm_config_fetch_timeout", "120000"),
    ];
    (owned(&words), variables(&env))
}

fn apt(sources: String) -> Command {
    let mut env = variables(&[("DEBIAN_FRONTEND", "noninteractive"), ("LC_ALL", "C.UTF-8")]);
    env.insert(APT_SOURCES_VARIABLE.to_owned(), sources);
    env.insert(APT_VARIABLE.to_owned(), APT.to_owned());
    env.insert(OWN_FILES_VARIABLE.to_owned(), OWN_FILES.to_owned());
    (owned(&["/bin/sh", "-c", RUN_APT, "apt-install"]), env)
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pip_takes_what_the_sandbox_has() {
        let check = |uv, has_pip, writable, expected: &str| {
            let (words, env) = pip(Python { uv, pip: has_pip, writable }, "http://127.0.0.1:9/pip/");
            assert_eq!(words.join(" ").replace(RUN_BOOTSTRAP, "BOOTSTRAP"), expected);
            assert_eq!(env["PIP_INDEX_URL"], "http://127.0.0.1:9/pip/simple/");
            assert_eq!(env["UV_DEFAULT_INDEX"], env["PIP_INDEX_URL"]);
        };
        check(true, true, true, "uv pip install --system");
        // uv can only install into the system.
        check(true, true, false, "python3 -m pip install --user");
        check(false, true, true, "python3 -m pip install");
        check(false, false, true, "python3 -c BOOTSTRAP install");
    }
}
