//! Finds what a failed command lacked: a network, a package, a program, space. It is recognised by the last words of
//! the command and by its exit code, so that the answer can name the call that leads on. Nothing is decided by it: a
//! command that fails for another reason only gets a warning too many.

#[cfg(test)]
mod tests;

use engine::{NetworkDenials, NetworkReach};
use serde_json::json;

use super::denials::{self, request};
use crate::mcp::{next_call::written, output::from_character_border, surface::Surface};

/// How much of the end of each stream is looked at.
const LOOKED_AT_BYTES: usize = 8 * 1024;
/// Longest name of a package or program that is repeated in a warning.
const MAX_NAME_BYTES: usize = 64;
/// Most packages of an install command that are repeated in a warning.
const MAX_PACKAGES: usize = 20;

const INSTALL: &str = "sandbox_package_install";

/// The exit code of shells for a program that they do not find.
const NOT_FOUND: i32 = 127;

/// Printed by programs that do not reach a host.
const NO_NETWORK: [&str; 16] = [
    "Could not resolve host",
    "Couldn't resolve host",
    "Temporary failure in name resolution",
    "Temporary failure resolving",
    "Name or service not known",
    "No address associated with hostname",
    "unable to resolve host",
    "failed to lookup address information",
    "dial tcp: lookup",
    "Network is unreachable",
    "network is unreachable",
    "EAI_AGAIN",
    "getaddrinfo ENOTFOUND",
    "ENETUNREACH",
    "NameResolutionError",
    "getaddrinfo failed",
];
/// Programs that may fail without a word, and the exit code that tells.
const NO_NETWORK_CODES: [(&str, i32); 2] = [("curl", 6), ("wget", 4)];
/// Programs that only make sense with a network. One that is stopped at its time limit waited for it.
const NETWORK_PROGRAMS: [&str; 8] = ["curl", "wget", "ssh", "scp", "rsync", "ping", "telnet", "ftp"];
/// The same for those commands of git that ask another machine.
const NETWORK_GIT: [&str; 6] = ["clone", "fetch", "pull", "push", "ls-remote", "submodule"];
/// Commands with one of these talk to the sandbox itself.
const OWN_ADDRESSES: [&str; 4] = ["localhost", "127.0.0.1", "0.0.0.0", "[::1]"];
const NO_SPACE: [&str; 4] = ["No space left on device", "ENOSPC", "Disk quota exceeded", "EDQUOT"];
/// PEP 668.
const MANAGED_PYTHON: &str = "externally-managed-environment";
/// Python's modules whose package has another name.
const MODULE_PACKAGES: [(&str, &str); 10] = [
    ("PIL", "pillow"),
    ("yaml", "pyyaml"),
    ("cv2", "opencv-python-headless"),
    ("sklearn", "scikit-learn"),
    ("skimage", "scikit-image"),
    ("bs4", "beautifulsoup4"),
    ("dateutil", "python-dateutil"),
    ("dotenv", "python-dotenv"),
    ("Crypto", "pycryptodome"),
    ("docx", "python-docx"),
];

/// A command that failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct FailedCommand<'a> {
    /// The sandbox, as its caller names it; `None` where it is removed with its command.
    pub(super) sandbox: Option<&'a str>,
    pub(super) command: &'a [String],
    pub(super) exit_code: i32,
    pub(super) timed_out: bool,
    pub(super) texts: [&'a str; 2],
    /// The network that its sandbox reaches, and what it was denied.
    pub(super) network: &'a NetworkDenials,
    /// The surface whose tools the caller has.
    pub(super) surface: &'a Surface,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Lack {
    Network,
    Space,
    Packages(&'static str, Vec<String>),
    /// Python refuses to install into the system's directories.
    Managed,
    Program(String),
}

/// The sentence that says what was lacking, with the next call.
pub(super) fn warning(failed: &FailedCommand<'_>) -> Option<String> {
    let lack = lack(failed)?;
    let asked = asked_packages(failed.command);
    Some(match lack {
        Lack::Network => {
            let (manager, packages) = asked.unwrap_or(("pip", vec!["NAME".to_owned()]));
            let has = match failed.network.reach {
                NetworkReach::Nothing => "no network",
                NetworkReach::Packages => "no network but package indexes",
                // The denials are told beside this.
                NetworkReach::Policy if !failed.network.denied.is_empty() => return None,
                NetworkReach::Policy => {
                    let log = denials::log(failed.sandbox, failed.surface);
                    let log = log.map_or(String::new(), |log| format!(", or see {log}"));
                    return Some(format!(
                        "Nothing that it asked for was denied: the name does not exist, or nobody answers there. Correct \
                         the address{log}."
                    ));
                }
            };
            let mut ways = Vec::new();
            if failed.network.reach == NetworkReach::Packages || has_installer(failed) {
                ways.push(format!("For packages call {}", install(failed, manager, &packages)));
            }
            ways.push(format!("for a host, {}", open(failed)));
            ways.push("write other files with sandbox_fs_write".to_owned());
            let ways = ways.join("; ");
            let (first, rest) = ways.split_at(1);
            let ways = first.to_uppercase() + rest;
            format!("This sandbox has {has}, so this cannot work, however long it runs. {ways}.")
        }
        Lack::Managed => {
            let (_, packages) = asked.unwrap_or(("pip", vec!["NAME".to_owned()]));
            let call = if has_installer(failed) {
                install(failed, "pip", &packages)
            } else {
                let names = as_words(&packages);
                in_shell(failed, &format!("python3 -m venv ~/.venv && ~/.venv/bin/pip install {names}"))
            };
            format!("pip may not change the system's Python here. Call {call}.")
        }
        Lack::Packages(manager, packages) => {
            format!("A package is missing. Call {}, then run it again.", install(failed, manager, &packages))
        }
        Lack::Program(program) => format!(
            "There is no program {program} in this sandbox. If a Debian package has its name, call {}.",
            install(failed, "apt", std::slice::from_ref(&program))
        ),
        Lack::Space => match failed.sandbox {
            Some(name) => format!(
                "The disk or a size limit is full. See with {}, remove files, or create a sandbox with a larger diskMib \
                 (files in /tmp are limited separately: use another directory).",
                written("sandbox_shell", &json!({ "name": name, "command": "df -h; du -xsh /root /tmp" }))
            ),
            None => "The disk or a size limit is full. Call again with a larger diskMib, and not for files in /tmp, which \
                     are limited separately."
                .to_owned(),
        },
    })
}

fn has_installer(failed: &FailedCommand<'_>) -> bool {
    failed.surface.find(INSTALL).is_some()
}

/// The call that installs packages; where there is no tool for it, by a shell.
fn install(failed: &FailedCommand<'_>, manager: &str, packages: &[String]) -> String {
    if !has_installer(failed) {
        let command = match manager {
            "apt" => "apt-get update && apt-get install -y",
            "npm" => "npm install",
            _ => "pip install",
        };
        return in_shell(failed, &format!("{command} {}", as_words(packages)));
    }
    match failed.sandbox {
        Some(name) => written(INSTALL, &json!({ "name": name, "manager": manager, "packages": packages })),
        None => format!(
            "sandbox_create, then {} with its name",
            written(INSTALL, &json!({ "manager": manager, "packages": packages }))
        ),
    }
}

fn in_shell(failed: &FailedCommand<'_>, command: &str) -> String {
    match failed.sandbox {
        Some(name) => written("sandbox_shell", &json!({ "name": name, "command": command })),
        None => format!(
            "sandbox_create, then {} with its name",
            written("sandbox_shell", &json!({ "command": command }))
        ),
    }
}

/// For a shell. Names that are repeated have no quotes in them.
fn as_words(packages: &[String]) -> String {
    packages.iter().map(|package| format!("'{package}'")).collect::<Vec<_>>().join(" ")
}

/// How a host is opened.
fn open(failed: &FailedCommand<'_>) -> String {
    let with_host = json!({ "network": { "allow": ["HOST"] } });
    let has_tool = denials::has_policy_tool(failed.surface);
    match (failed.sandbox, failed.network.may_widen) {
        (None, true) => format!("sandbox_run with {with_host}"),
        (Some(name), true) if has_tool => {
            written("sandbox_network", &json!({ "name": name, "allow": ["HOST"] }))
        }
        (Some(_), true) => format!("sandbox_create with {with_host}"),
        (Some(name), false) if has_tool => format!("which a person has to grant, {}", request(name, "HOST")),
        (None, false) if has_tool => format!(
            "which a person has to grant, sandbox_create, then {} with its name",
            request("NAME", "HOST")
        ),
        (Some(name), false) => {
            format!("ask the person who runs this server for {}", denials::on_the_host(name, "HOST"))
        }
        (None, false) => "ask the person who runs this server".to_owned(),
    }
}

fn lack(failed: &FailedCommand<'_>) -> Option<Lack> {
    let ends = failed.texts.map(end);
    let says = |words: &[&str]| words.iter().any(|word| ends.iter().any(|text| text.contains(word)));
    if says(&NO_SPACE) {
        return Some(Lack::Space);
    }
    if says(&[MANAGED_PYTHON]) {
        return Some(Lack::Managed);
    }
    if let Some(missing) = ends.iter().find_map(|text| python_module(text)) {
        return Some(Lack::Packages("pip", vec![missing]));
    }
    if let Some(missing) = ends.iter().find_map(|text| node_module(text)) {
        return Some(Lack::Packages("npm", vec![missing]));
    }
    if says(&NO_NETWORK) || is_silent_about_network(failed) {
        return Some(Lack::Network);
    }
    (failed.exit_code == NOT_FOUND)
        .then(|| ends.iter().find_map(|text| missing_program(text)))?
        .map(Lack::Program)
}

fn end(text: &str) -> &str {
    let bytes = &text.as_bytes()[text.len().saturating_sub(LOOKED_AT_BYTES)..];
    let bytes = if bytes.len() < text.len() { from_character_border(bytes) } else { bytes };
    std::str::from_utf8(bytes).unwrap_or_default()
}

fn is_silent_about_network(failed: &FailedCommand<'_>) -> bool {
    let words = words(failed.command);
    if OWN_ADDRESSES.iter().any(|own| failed.command.iter().any(|part| part.contains(own))) {
        return false;
    }
    let by_code = NO_NETWORK_CODES
        .iter()
        .any(|(program, code)| failed.exit_code == *code && words.iter().any(|word| word == program));
    let waits = || {
        words.iter().any(|word| NETWORK_PROGRAMS.contains(word))
            || words.windows(2).any(|pair| pair[0] == "git" && NETWORK_GIT.contains(&pair[1]))
    };
    by_code || (failed.timed_out && waits())
}

/// The words of a command, those of a shell's line one by one.
fn words(command: &[String]) -> Vec<&str> {
    let is_border = |c: char| c.is_whitespace() || ";|&()`\"'$".contains(c);
    command.iter().flat_map(|part| part.split(is_border)).filter(|word| !word.is_empty()).collect()
}

/// Returns the packages that a command installs, and the package manager.
fn asked_packages(command: &[String]) -> Option<(&'static str, Vec<String>)> {
    const INSTALLS: [(&str, &str, &str); 9] = [
        ("pip", "install", "pip"),
        ("pip3", "install", "pip"),
        ("npm", "install", "npm"),
        ("npm", "i", "npm"),
        ("npm", "add", "npm"),
        ("yarn", "add", "npm"),
        ("apt", "install", "apt"),
        ("apt-get", "install", "apt"),
        ("uv", "pip", "pip"),
    ];
    // One command of a line at a time.
    command.join(" ").split([';', '|', '&', '\n']).find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (at, manager) = words.windows(2).enumerate().find_map(|(at, pair)| {
            let is_it = |(program, verb, _): &&(&str, &str, &str)| pair[0] == *program && pair[1] == *verb;
            INSTALLS.iter().find(is_it).map(|(.., manager)| (at, *manager))
        })?;
        let names = words[at + 2..].iter().skip_while(|word| word.starts_with('-') || **word == "install");
        let names = names.take_while(|word| is_package(word)).map(|word| (*word).to_owned());
        let names: Vec<_> = names.take(MAX_PACKAGES).collect();
        (!names.is_empty()).then_some((manager, names))
    })
}

/// Whether a text can be repeated as the name of a package: what a sandbox prints may be anything.
fn is_package(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@/=<>~[]+".contains(&byte);
    word.len() <= MAX_NAME_BYTES
        && word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '@')
        && word.bytes().all(is_plain)
}

fn python_module(text: &str) -> Option<String> {
    let (_, rest) = text.rsplit_once("No module named ")?;
    let name = rest.trim_start_matches(['\'', '"']);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let module = &name[..name.find(|c| !is_part(c)).unwrap_or(name.len())];
    let known = MODULE_PACKAGES.iter().find(|(known, _)| *known == module);
    let package = known.map_or(module, |(_, package)| package);
    is_package(package).then(|| package.to_owned())
}

fn node_module(text: &str) -> Option<String> {
    let found =
        ["Cannot find module '", "Cannot find package '"].iter().find_map(|words| text.rsplit_once(words));
    let name = found?.1.split('\'').next()?;
    let n_parts = if name.starts_with('@') { 2 } else { 1 };
    let package: Vec<_> = name.split('/').take(n_parts).collect();
    let package = package.join("/");
    (is_package(&package) && !name.starts_with("node:")).then_some(package)
}

/// `bash: line 1: foo: command not found`, `sh: 1: foo: not found`.
fn missing_program(text: &str) -> Option<String> {
    let line = text
        .lines()
        .rev()
        .find(|line| line.ends_with(": command not found") || line.ends_with(": not found"))?;
    let line = line.strip_suffix(": command not found").or_else(|| line.strip_suffix(": not found"))?;
    let program = line.rsplit(": ").next()?;
    (is_package(program) && !program.contains('/')).then(|| program.to_owned())
}
