//! One sandbox of a Sandboxfile, as the daemon is asked for it.

use std::collections::BTreeMap;

use frontends::dialects;
use sandbox::{
    BackendKind, ByteSize, Capabilities, CpuCount, Defaults, Error, ErrorKind, ImageRef, InitSpec, Language,
    Limits, MountSource, MountSpec, NetworkSpec, PortSpec, Preset, RootfsSpec, SandboxSpec, SecretName,
    SecretUse,
};
use serde_saphyr::{Location, Spanned};

use super::{
    file::{SandboxEntry, Scope, Source},
    paths::HostPaths,
};
use crate::arguments::env_file;

/// Largest file of environment variables.
const MAX_ENV_FILE_BYTES: u64 = 256 * 1024;
const MIB: u64 = 1024 * 1024;
const DEFAULT_SHELL: &str = "/bin/sh";
/// microsandbox's default, which is not ours.
const DEFAULT_WORKDIR: &str = "/";
/// The script that runs with the sandbox where nothing else is said.
const START_SCRIPT: &str = "start";

/// The meaning of an entry.
#[derive(Debug)]
pub(super) struct Meaning {
    pub(super) spec: SandboxSpec,
    /// The interpreter that must be there, because the image stands for it.
    pub(super) language: Option<(String, Language)>,
    pub(super) warnings: Vec<String>,
}

/// Reads one entry. `name` and `at` are for errors.
pub(super) struct Reader<'a> {
    pub(super) source: &'a Source,
    pub(super) paths: &'a HostPaths,
    /// Secrets that the user lets the file use.
    pub(super) secrets: &'a [SecretName],
    pub(super) name: &'a str,
    pub(super) at: Location,
}

impl Reader<'_> {
    pub(super) fn read(&self, entry: &SandboxEntry) -> Result<Meaning, Error> {
        self.refuse_what_cannot_be(entry)?;
        let (image, rootfs, language) = self.ground(entry)?;
        let spec = SandboxSpec {
            image,
            rootfs,
            limits: Limits {
                memory: entry.memory.as_ref().map(|mib| self.memory(mib)).transpose()?,
                cpus: entry.cpus.as_ref().map(|cpus| self.cpus(cpus)).transpose()?,
                ..Limits::default()
            },
            mounts: each(entry.volumes.as_ref(), |text| self.mount(text))?,
            ports: each(entry.ports.as_ref(), |text| self.port(text))?,
            env: self.env(entry)?,
            cwd: Some(entry.workdir.clone().unwrap_or_else(|| DEFAULT_WORKDIR.to_owned())),
            shell: entry.shell.clone(),
            scripts: scripts(entry),
            init: self.init(entry)?,
            secrets: each(entry.secrets.as_ref(), |text| self.secret(text))?,
            network: entry.scope.as_ref().map(|scope| network(scope.value)).unwrap_or_default(),
            ..SandboxSpec::default()
        };
        // Everything that the daemon would refuse is refused here, before the first sandbox is made.
        let able = [Capabilities::all(BackendKind::Namespace)];
        sandbox::check_spec(&spec, &Defaults::default(), &able).map_err(|error| {
            let placed = self.source.wrong(self.at, format!("sandbox {:?}: {error}", self.name));
            Error::new(error.kind(), placed.to_string())
                .with_hint(crate::error::hint(&error).unwrap_or_default())
        })?;
        Ok(Meaning { spec, language, warnings: self.warnings(entry) })
    }

    /// An error about a key of this entry, in the words of `error`.
    fn at(&self, at: Location, key: &str, error: &Error) -> Error {
        let words = format!("sandbox {:?}, {key}: {error}", self.name);
        let placed = self.source.wrong(at, words);
        let placed = Error::new(error.kind(), placed.to_string());
        match crate::error::hint(error) {
            Some(hint) => placed.with_hint(hint),
            None => placed,
        }
    }

    fn wrong(&self, at: Location, key: &str, words: impl std::fmt::Display) -> Error {
        self.source.wrong(at, format!("sandbox {:?}, {key}: {words}", self.name))
    }

    /// A sandbox that lacks what was asked for is not what was asked for.
    fn refuse_what_cannot_be(&self, entry: &SandboxEntry) -> Result<(), Error> {
        for (key, files) in [("imports", &entry.imports), ("exports", &entry.exports)] {
            if let Some(files) = files.as_ref().filter(|files| !files.value.is_empty()) {
                let error = Error::new(ErrorKind::Unsupported, "files cannot be passed between sandboxes")
                    .with_hint("Mount the same directory or volume in both, with `volumes`.");
                return Err(self.at(files.referenced, key, &error));
            }
        }
        Ok(())
    }

    /// Sandboxes of a group have no network of their own here.
    fn warnings(&self, entry: &SandboxEntry) -> Vec<String> {
        let scope = entry.scope.as_ref().filter(|scope| matches!(scope.value, Scope::Local | Scope::Group));
        let warn = |scope: &Spanned<Scope>| {
            let scope_name = format!("{:?}", scope.value).to_lowercase();
            let name = self.name;
            format!("sandbox {name:?} asks for scope {scope_name:?}, but reaches package indexes only")
        };
        scope.map(warn).into_iter().collect()
    }

    /// The image or directory that the sandbox is made from.
    #[expect(clippy::type_complexity, reason = "three parts of one decision, used once")]
    fn ground(
        &self,
        entry: &SandboxEntry,
    ) -> Result<(ImageRef, Option<RootfsSpec>, Option<(String, Language)>), Error> {
        let Some(image) = &entry.image else {
            let error = Error::invalid("it is missing")
                .with_hint("Name an image such as python:3.12, or `host` for the programs of this machine.");
            return Err(self.at(self.at, "image", &error));
        };
        let (text, at) = (image.value.as_str(), image.referenced);
        if text.starts_with(['.', '/']) {
            let path = self.paths.resolve(text).map_err(|error| self.at(at, "image", &error))?;
            if !path.is_dir() {
                return Err(self.wrong(at, "image", format!("{} is not a directory", path.display())));
            }
            return Ok((
                ImageRef::host(),
                Some(RootfsSpec::Directory { path, no_links: true, allowed: None }),
                None,
            ));
        }
        if let Some(language) = dialects::stand_in(text) {
            return Ok((ImageRef::host(), None, Some((text.to_owned(), language))));
        }
        let image = text.parse().map_err(|error: sandbox::InvalidImage| self.wrong(at, "image", error))?;
        Ok((image, None, None))
    }

    fn memory(&self, mib: &Spanned<u64>) -> Result<ByteSize, Error> {
        let bytes = mib.value.checked_mul(MIB).filter(|bytes| *bytes > 0);
        bytes.map(ByteSize).ok_or_else(|| {
            self.wrong(mib.referenced, "memory", format!("{} is not a number of MiB", mib.value))
        })
    }

    fn cpus(&self, cpus: &Spanned<f64>) -> Result<CpuCount, Error> {
        CpuCount::from_f64(cpus.value).ok_or_else(|| {
            let words = format!("{} is not a number of cpus between 0.001 and 4096", cpus.value);
            self.wrong(cpus.referenced, "cpus", words)
        })
    }

    /// `host:guest`, `host:guest:ro`, or a volume's name in place of the path.
    fn mount(&self, text: &Spanned<String>) -> Result<MountSpec, Error> {
        let (written, at) = (text.value.as_str(), text.referenced);
        let parts: Vec<_> = written.split(':').collect();
        let (host, guest, readonly) = match parts.as_slice() {
            [host, guest] | [host, guest, "rw"] => (*host, *guest, false),
            [host, guest, "ro"] => (*host, *guest, true),
            _ => ("", "", false),
        };
        if host.is_empty() || !guest.starts_with('/') {
            let words =
                format!("{written:?} is not \"host:guest\" with a guest path from /, and :ro if wanted");
            return Err(self.wrong(at, "volumes", words));
        }
        let source = if host.contains('/') || host.starts_with('.') {
            let host_path = self.paths.resolve(host).map_err(|error| self.at(at, "volumes", &error))?;
            // The check of the path must hold at every start: somebody may put a link there.
            MountSource::Bind { host_path, no_links: true, allowed: None }
        } else {
            let name =
                host.parse().map_err(|error: sandbox::InvalidName| self.wrong(at, "volumes", error))?;
            MountSource::Named { name }
        };
        let guest_path = sandbox::check_guest_path(guest).map_err(|error| self.at(at, "volumes", &error))?;
        Ok(MountSpec { guest_path, source, readonly, noexec: false })
    }

    /// `host:inside`, as `warren create --publish` takes it.
    fn port(&self, text: &Spanned<String>) -> Result<PortSpec, Error> {
        text.value.parse().map_err(|error| self.at(text.referenced, "ports", &error))
    }

    /// `NAME` or `NAME=VARIABLE`. The file may be a stranger's, and whoever has a secret can act with it.
    fn secret(&self, text: &Spanned<String>) -> Result<SecretUse, Error> {
        let asked: SecretUse =
            text.value.parse().map_err(|error| self.at(text.referenced, "secrets", &error))?;
        if self.secrets.contains(&asked.name) {
            return Ok(asked);
        }
        let message = format!("the file asks for the secret {}, which it was not allowed", asked.name);
        let error = Error::new(ErrorKind::Denied, message)
            .with_hint(format!("If you trust this file with it, pass --allow-secret {}.", asked.name));
        Err(self.at(text.referenced, "secrets", &error))
    }

    /// The files' variables first, so that those of the entry itself win.
    fn env(&self, entry: &SandboxEntry) -> Result<BTreeMap<String, String>, Error> {
        let mut env = BTreeMap::new();
        if let Some(Spanned { value: files, referenced: at, .. }) = &entry.env_file {
            for file in &files.0 {
                let text = self.paths.read(file, MAX_ENV_FILE_BYTES);
                let text = text.map_err(|error| self.at(*at, "env_file", &error))?;
                let variables = env_file::parse(&text).map_err(|line| {
                    self.wrong(*at, "env_file", format!("line {line} of {file} is not NAME=value"))
                })?;
                env.extend(variables);
            }
        }
        for text in entry.envs.iter().flatten() {
            match text.value.split_once('=') {
                Some((name, value)) if !name.is_empty() => env.insert(name.to_owned(), value.to_owned()),
                // The text is not shown: it may be a value whose name was forgotten.
                _ => return Err(self.wrong(text.referenced, "envs", "an entry is not \"NAME=value\"")),
            };
        }
        Ok(env)
    }

    fn init(&self, entry: &SandboxEntry) -> Result<Option<InitSpec>, Error> {
        let init =
            |path: &str, args: Vec<String>| InitSpec { path: path.to_owned(), args, env: BTreeMap::new() };
        if let (Some(command), Some(_)) = (&entry.command, &entry.exec) {
            return Err(self.wrong(
                command.referenced,
                "command",
                "there is `exec` already; keep one of them",
            ));
        }
        if let Some(command) = &entry.command {
            return match command.value.split_first() {
                Some((program, args)) if !program.is_empty() => Ok(Some(init(program, args.to_vec()))),
                _ => Err(self.wrong(command.referenced, "command", "it names no program")),
            };
        }
        let has_start = entry.scripts.as_ref().is_some_and(|scripts| scripts.contains_key(START_SCRIPT));
        let exec = entry.exec.as_ref().map(|exec| exec.value.as_str());
        let Some(line) = exec.or(has_start.then_some(START_SCRIPT)) else { return Ok(None) };
        let shell = entry.shell.as_deref().unwrap_or(DEFAULT_SHELL);
        Ok(Some(init(shell, vec!["-c".to_owned(), line.to_owned()])))
    }
}

fn network(scope: Scope) -> NetworkSpec {
    match scope {
        Scope::None => NetworkSpec::preset(Preset::None),
        Scope::Local | Scope::Group => NetworkSpec::default(),
        Scope::Public => NetworkSpec::preset(Preset::Public),
        Scope::Any => NetworkSpec::preset(Preset::All),
    }
}

/// The scripts, each with the program that runs it: the sandbox's shell, unless its first line names another.
fn scripts(entry: &SandboxEntry) -> BTreeMap<String, String> {
    let shell = entry.shell.as_deref().unwrap_or(DEFAULT_SHELL);
    let runnable = |(name, text): (&String, &String)| {
        let text = if text.starts_with("#!") { text.clone() } else { format!("#!{shell}\n{text}") };
        (name.clone(), text)
    };
    entry.scripts.iter().flatten().map(runnable).collect()
}

fn each<T, U>(
    list: Option<&Vec<Spanned<T>>>,
    read: impl Fn(&Spanned<T>) -> Result<U, Error>,
) -> Result<Vec<U>, Error> {
    list.into_iter().flatten().map(read).collect()
}
