//! Finds what a failed command lacked: a network, a package, a program, memory, space. It is recognised by how the
//! command ended and by its last words, so that the answer can name the call that leads on. Nothing is decided by it: a
//! command that fails for another reason only gets a warning too many.
//!
//! What a sandbox prints may be anything, also words for whoever reads the warning. Only what can be the name of a
//! package, a program or a plain directory is repeated.

mod own;
#[cfg(test)]
mod tests;

use engine::{NetworkDenials, NetworkReach, SandboxRef};
use sandbox::{ByteSize, ExecOutcome, KillReason, NotStarted};
use serde_json::json;

use super::denials::{self, request};
use crate::lacks::{
    self, is_package,
    known::{self, Source},
    node_module, python_module,
};
use crate::mcp::{
    Call, next_call::written, output::from_character_border, surface::Surface, words::KnownTools,
};

/// How much of the end of each stream is looked at.
const LOOKED_AT_BYTES: usize = 8 * 1024;
/// Most packages of an install command that are repeated in a warning.
const MAX_PACKAGES: usize = 20;

const INSTALL: &str = "sandbox_package_install";
const UPDATE: &str = "sandbox_update";

/// The exit code of shells for a program that they do not find.
const NOT_FOUND: i32 = 127;
/// Ends a program that writes more to a file than it may.
const SIGXFSZ: i32 = 25;
/// A sandbox without these cannot be given them by a call.
const SHELLS: [&str; 2] = ["sh", "bash"];

/// Programs that only make sense with a network. One that is stopped at its time limit waited for it.
const NETWORK_PROGRAMS: [&str; 8] = ["curl", "wget", "ssh", "scp", "rsync", "ping", "telnet", "ftp"];
/// The same for those commands of git that ask another machine.
const NETWORK_GIT: [&str; 6] = ["clone", "fetch", "pull", "push", "ls-remote", "submodule"];
/// Commands with one of these talk to the sandbox itself.
const OWN_ADDRESSES: [&str; 4] = ["localhost", "127.0.0.1", "0.0.0.0", "[::1]"];
const NO_SPACE: [&str; 7] = [
    "No space left on device",
    "ENOSPC",
    "Disk quota exceeded",
    "EDQUOT",
    "File too large",
    "File size limit exceeded",
    "EFBIG",
];
/// Said by apt of a package that Debian does not have.
const NO_DEBIAN_PACKAGE: &str = "Unable to locate package ";
/// PEP 668.
const MANAGED_PYTHON: &str = "externally-managed-environment";

/// A command that failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct FailedCommand<'a> {
    /// The sandbox, as its caller names it; `None` where it is removed with its command.
    pub(super) sandbox: Option<&'a str>,
    pub(super) command: &'a [String],
    /// The directory that the caller gave for it.
    pub(super) cwd: Option<&'a str>,
    pub(super) outcome: Option<&'a ExecOutcome>,
    pub(super) exit_code: i32,
    pub(super) timed_out: bool,
    pub(super) texts: [&'a str; 2],
    /// The network that its sandbox reaches, and what it was denied.
    pub(super) network: &'a NetworkDenials,
    /// The surface whose tools the caller has.
    pub(super) surface: &'a Surface,
}

impl<'a> FailedCommand<'a> {
    /// A command of which nothing more is known.
    pub(super) fn new(command: &'a [String], network: &'a NetworkDenials, surface: &'a Surface) -> Self {
        Self {
            sandbox: None,
            command,
            cwd: None,
            outcome: None,
            exit_code: 1,
            timed_out: false,
            texts: ["", ""],
            network,
            surface,
        }
    }

    /// Whether it is code in an interpreter of ours.
    fn is_code(&self) -> bool {
        self.command.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Lack {
    Network,
    Memory,
    Space,
    /// A module, by the name that the code imports.
    Module(Language, String),
    /// Python refuses to install into the system's directories.
    Managed,
    Program(String),
    /// The working directory does not exist.
    WorkingDirectory,
    /// A package that apt was asked for and does not have.
    DebianPackage(String),
}

/// A language whose interpreter names a missing module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    Node,
}

/// What is known of the sandbox, as far as it matters for what is lacking.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seen {
    memory: Option<ByteSize>,
    /// The directory that holds the module.
    own: Option<String>,
}

impl Seen {
    async fn look(call: &Call, which: &SandboxRef, failed: &FailedCommand<'_>, lack: &Lack) -> Self {
        match lack {
            Lack::Memory => {
                let view = call.engine().sandbox(&call.who, which).await;
                Self { memory: view.ok().map(|view| view.plan.limits.memory), ..Self::default() }
            }
            Lack::Module(language, module) => {
                let own = own::directory(call, which, failed, *language, module).await;
                Self { own, ..Self::default() }
            }
            _ => Self::default(),
        }
    }
}

/// The sentence that says what was lacking, with the next call.
pub(super) async fn warning(call: &Call, which: &SandboxRef, failed: &FailedCommand<'_>) -> Option<String> {
    let lack = lack(failed)?;
    let seen = Seen::look(call, which, failed, &lack).await;
    let told = told(failed, &lack, &seen)?;
    let tool = match lack {
        Lack::Memory if failed.sandbox.is_some() => UPDATE,
        Lack::Network if failed.sandbox.is_some() => denials::POLICY,
        _ => return Some(told),
    };
    Some(match KnownTools::of(call, failed.surface).way_to(tool) {
        Some(way) => format!("{told} {way}"),
        None => told,
    })
}

/// The same sentence for an install that failed, by its log.
pub(super) fn of_install(sandbox: &str, surface: &Surface, log: &[String]) -> Option<String> {
    let text = log.join("\n");
    let network = NetworkDenials::default();
    let failed = FailedCommand {
        sandbox: Some(sandbox),
        texts: [&text, ""],
        ..FailedCommand::new(&[], &network, surface)
    };
    let lack = lack(&failed).filter(|lack| matches!(lack, Lack::Space | Lack::DebianPackage(_)))?;
    told(&failed, &lack, &Seen::default())
}

fn told(failed: &FailedCommand<'_>, lack: &Lack, seen: &Seen) -> Option<String> {
    Some(match lack {
        Lack::Network => return no_network(failed),
        Lack::Memory => no_memory(failed, seen.memory),
        Lack::Space => no_space(failed),
        Lack::Managed => managed(failed),
        Lack::Module(language, module) => match &seen.own {
            Some(directory) => own_module(failed, *language, module, directory),
            None => no_module(failed, *language, module),
        },
        Lack::Program(program) => no_program(failed, program),
        Lack::WorkingDirectory => no_directory(failed),
        Lack::DebianPackage(package) => no_debian_package(failed, package),
    })
}

fn no_network(failed: &FailedCommand<'_>) -> Option<String> {
    let (manager, packages) = asked_packages(failed.command).unwrap_or(("pip", vec!["NAME".to_owned()]));
    let has = match failed.network.reach {
        NetworkReach::Nothing => "no network",
        NetworkReach::Packages => "no network but package indexes",
        // The denials are told beside this.
        NetworkReach::Policy if !failed.network.denied.is_empty() => return None,
        NetworkReach::Policy => {
            let log = denials::log(failed.sandbox, failed.surface);
            let log = log.map_or(String::new(), |log| format!(", or see {log}"));
            return Some(format!(
                "Nothing that it asked for was denied: the name does not exist, or nobody answers there. Correct the \
                 address{log}."
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
    Some(format!("This sandbox has {has}, so this cannot work, however long it runs. {ways}."))
}

fn managed(failed: &FailedCommand<'_>) -> String {
    let (_, packages) = asked_packages(failed.command).unwrap_or(("pip", vec!["NAME".to_owned()]));
    let call = if has_installer(failed) {
        install(failed, "pip", &packages)
    } else {
        let names = as_words(&packages);
        in_shell(failed, &format!("python3 -m venv ~/.venv && ~/.venv/bin/pip install {names}"))
    };
    format!("pip may not change the system's Python here. Call {call}.")
}

/// Proposes twice the memory.
fn no_memory(failed: &FailedCommand<'_>, has: Option<ByteSize>) -> String {
    const MIB: u64 = 1024 * 1024;
    let memory_mib = has.map_or(2048, |memory| (memory.bytes() / MIB).saturating_mul(2).max(1));
    let has = has.map_or_else(
        || "The sandbox ran out of memory.".to_owned(),
        |memory| format!("The sandbox ran out of memory: it has {} MiB.", memory.bytes() / MIB),
    );
    let more = json!({ "memoryMib": memory_mib });
    let next = match failed.sandbox {
        None => format!("call again with {more}"),
        Some(name) if failed.surface.find(UPDATE).is_some() => {
            let update = written(UPDATE, &json!({ "name": name, "memoryMib": memory_mib }));
            format!("call {update}, then run it again")
        }
        Some(_) => format!("call {} for another sandbox", written("sandbox_create", &more)),
    };
    format!("{has} Use less at a time, or {next}.")
}

fn no_space(failed: &FailedCommand<'_>) -> String {
    match failed.sandbox {
        Some(name) => format!(
            "The disk or a size limit is full. See with {}, remove files, or create a sandbox with a larger diskMib \
             (files in /tmp are limited separately: use another directory).",
            written("sandbox_shell", &json!({ "name": name, "command": "df -h; du -xsh /root /tmp" }))
        ),
        None => "The disk or a size limit is full. Call again with a larger diskMib, and not for files in /tmp, which \
                 are limited separately."
            .to_owned(),
    }
}

/// A module that exists where the interpreter does not look.
fn own_module(failed: &FailedCommand<'_>, language: Language, module: &str, directory: &str) -> String {
    let fix = match language {
        Language::Python if failed.is_code() => {
            format!("Begin with: import sys; sys.path.insert(0, {directory:?})")
        }
        Language::Python => {
            format!("Call it again with env {}", json!({ "PYTHONPATH": directory }))
        }
        Language::Node => format!("Import it by a relative path, such as ./{module}"),
    };
    format!("No package is missing: {module} is in {directory}, where it is not looked for. {fix}.")
}

fn no_module(failed: &FailedCommand<'_>, language: Language, module: &str) -> String {
    if known::is_own_name(module) {
        let fix = match language {
            Language::Python => "call it again with cwd or env PYTHONPATH set to the directory that holds it",
            Language::Node => "import it by a relative path, such as ./",
        };
        return format!(
            "There is no module {module} here. A module of that name is mostly a file of your own: {fix}."
        );
    }
    let (manager, package) = match language {
        Language::Python => ("pip", known::pip_package(module)),
        Language::Node => ("npm", module),
    };
    let install = install(failed, manager, &[package.to_owned()]);
    format!(
        "The module {module} is missing. If it is a package and no file of yours, call {install}, then run it again."
    )
}

fn no_program(failed: &FailedCommand<'_>, program: &str) -> String {
    let has_none = format!("There is no program {program} in this sandbox.");
    let from = |manager, package: &str| install(failed, manager, &[package.to_owned()]);
    match known::program(program) {
        Some(Source::Instead(other)) => format!("{has_none} Use {other}."),
        Some(Source::Apt(package)) => format!("{has_none} Call {}.", from("apt", package)),
        Some(Source::Pip(package)) => format!("{has_none} Call {}.", from("pip", package)),
        Some(Source::Npm(package)) => {
            format!("{has_none} Call {}, then run it as npx {program}.", from("npm", package))
        }
        None => format!("{has_none} If a Debian package has its name, call {}.", from("apt", program)),
    }
}

fn no_directory(failed: &FailedCommand<'_>) -> String {
    let above = failed.cwd.and_then(|cwd| cwd.trim_end_matches('/').rsplit_once('/'));
    let above = above.map(|(above, _)| above).filter(|above| !above.is_empty()).unwrap_or("/");
    match failed.sandbox {
        Some(name) => format!(
            "Omit cwd, or give a directory that exists: {} shows which do.",
            written("sandbox_fs_list", &json!({ "name": name, "path": above }))
        ),
        None => "Omit cwd, or give a directory that exists.".to_owned(),
    }
}

fn no_debian_package(failed: &FailedCommand<'_>, package: &str) -> String {
    let has_none = format!("There is no Debian package {package}.");
    let from = |manager, package: &str| install(failed, manager, &[package.to_owned()]);
    match known::program(package) {
        Some(Source::Instead(other)) => format!("{has_none} Use {other}."),
        Some(Source::Apt(other)) => format!("{has_none} Call {}.", from("apt", other)),
        Some(Source::Pip(other)) => format!("{has_none} Call {}.", from("pip", other)),
        Some(Source::Npm(other)) => {
            format!("{has_none} Call {}, then run it as npx {package}.", from("npm", other))
        }
        None => format!(
            "{has_none} If it is a program of Python, call {}; if of Node, {}.",
            from("pip", package),
            from("npm", package)
        ),
    }
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
    if let Some(lack) = failed.outcome.and_then(|outcome| lack_of_outcome(failed, outcome)) {
        return Some(lack);
    }
    let ends = failed.texts.map(end);
    let says = |words: &[&str]| words.iter().any(|word| ends.iter().any(|text| text.contains(word)));
    if says(&NO_SPACE) {
        return Some(Lack::Space);
    }
    if says(&[MANAGED_PYTHON]) {
        return Some(Lack::Managed);
    }
    if let Some(missing) = ends.iter().find_map(|text| debian_package(text)) {
        return Some(Lack::DebianPackage(missing));
    }
    if let Some(missing) = ends.iter().find_map(|text| python_module(text)) {
        return Some(Lack::Module(Language::Python, missing));
    }
    if let Some(missing) = ends.iter().find_map(|text| node_module(text)) {
        return Some(Lack::Module(Language::Node, missing));
    }
    if is_network(failed, &ends) {
        return Some(Lack::Network);
    }
    (failed.exit_code == NOT_FOUND)
        .then(|| ends.iter().find_map(|text| missing_program(text)))?
        .map(Lack::Program)
}

/// Finds the lack by the outcome alone.
fn lack_of_outcome(failed: &FailedCommand<'_>, outcome: &ExecOutcome) -> Option<Lack> {
    match outcome {
        ExecOutcome::Killed { reason: KillReason::MemoryLimit }
        | ExecOutcome::Exited { memory_limit_hit: true, .. } => Some(Lack::Memory),
        ExecOutcome::Killed { reason: KillReason::DiskLimit } | ExecOutcome::Signaled { signal: SIGXFSZ } => {
            Some(Lack::Space)
        }
        ExecOutcome::NotStarted { reason: NotStarted::NotFound, .. } => {
            let program = failed.command.first()?;
            let is_plain =
                is_package(program) && !program.contains('/') && !SHELLS.contains(&program.as_str());
            is_plain.then(|| Lack::Program(program.clone()))
        }
        ExecOutcome::NotStarted { reason: NotStarted::BadWorkingDirectory, .. } => {
            Some(Lack::WorkingDirectory)
        }
        _ => None,
    }
}

fn end(text: &str) -> &str {
    let bytes = &text.as_bytes()[text.len().saturating_sub(LOOKED_AT_BYTES)..];
    let bytes = if bytes.len() < text.len() { from_character_border(bytes) } else { bytes };
    std::str::from_utf8(bytes).unwrap_or_default()
}

fn is_network(failed: &FailedCommand<'_>, ends: &[&str]) -> bool {
    if lacks::says_no_network(ends) {
        return true;
    }
    if OWN_ADDRESSES.iter().any(|own| failed.command.iter().any(|part| part.contains(own))) {
        return false;
    }
    let words = lacks::words(failed.command);
    let waits = || {
        words.iter().any(|word| NETWORK_PROGRAMS.contains(word))
            || words.windows(2).any(|pair| pair[0] == "git" && NETWORK_GIT.contains(&pair[1]))
    };
    lacks::means_no_network(failed.command, failed.exit_code) || (failed.timed_out && waits())
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

/// `E: Unable to locate package pytest`.
fn debian_package(text: &str) -> Option<String> {
    let (_, rest) = text.rsplit_once(NO_DEBIAN_PACKAGE)?;
    let package = rest.split_whitespace().next()?;
    is_package(package).then(|| package.to_owned())
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
