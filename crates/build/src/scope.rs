//! Walking through a stage: variables and configuration as they are at each instruction, and what is to be done.

use std::collections::BTreeMap;

use crate::{
    dockerfile::{Located, Plan, StageRef},
    error::{Error, Result},
    expand::{self, Room},
    instruction::{Command, Copy, CopyKind, Heredoc, Instruction, Network, is_remote},
    options::is_proxy,
};

/// Ports that an image may name.
const MAX_PORTS: usize = 1024;
/// Volumes that an image may name.
const MAX_VOLUMES: usize = 1024;
/// Variables of an image.
const MAX_VARIABLES: usize = 4096;

/// The configuration that the image will have: how it is run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// In order; each name once.
    pub env: Vec<(String, String)>,
    pub user: Option<String>,
    pub workdir: Option<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// `80/tcp`, each once.
    pub ports: Vec<String>,
    pub volumes: Vec<String>,
    pub stop_signal: Option<String>,
    pub shell: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

/// The step that one instruction comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Run(RunStep),
    Copy(Box<CopyStep>),
    /// The directory is to be there, owned by root.
    Workdir(String),
    /// Only the configuration changed.
    Config,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStep {
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    /// The part of `env` that says only where things are fetched: it stays out of the cache.
    pub proxies: Vec<(String, String)>,
    pub user: Option<String>,
    pub workdir: String,
    pub network: Network,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStep {
    pub from: Option<StageRef>,
    /// Relative to the context, or to the root of what `from` names; may be patterns.
    pub sources: Vec<String>,
    /// Files that stand in the Dockerfile itself: name and content.
    pub files: Vec<(String, String)>,
    /// Absolute; a slash at the end means a directory.
    pub to: String,
    pub chown: Option<String>,
    /// Permission bits.
    pub chmod: Option<u32>,
    /// Archives are unpacked.
    pub unpack: bool,
}

/// Where a walk through a stage is.
#[derive(Debug, Clone)]
pub struct Scope<'a> {
    plan: &'a Plan,
    /// Position of the stage.
    index: usize,
    pub config: Config,
    /// Declared arguments that have a value.
    args: BTreeMap<String, String>,
    /// `CMD` came after `FROM`.
    has_own_cmd: bool,
}

impl<'a> Scope<'a> {
    /// At the beginning of a stage that is made on an image with this configuration.
    pub fn on_image(plan: &'a Plan, index: usize, config: Config) -> Self {
        Self { plan, index, config, args: BTreeMap::new(), has_own_cmd: false }
    }

    /// At the beginning of a stage that is made on another one, whose end this is. Its arguments are inherited.
    pub fn on_stage(plan: &'a Plan, index: usize, end: &Self) -> Self {
        Self { plan, index, config: end.config.clone(), args: end.args.clone(), has_own_cmd: false }
    }

    /// Applies the instruction here and returns its step.
    pub fn step(&mut self, located: &Located) -> Result<Step> {
        let step = self.apply(&located.instruction);
        let step = step.and_then(|step| self.check_size().map(|()| step));
        step.map_err(|message| Error::new(located.line, message))
    }

    /// Checks the configuration as a whole: earlier instructions count too, so this comes on top of what each looks at
    /// by itself.
    fn check_size(&self) -> Result<(), String> {
        let Config { env, labels, volumes, .. } = &self.config;
        let mut room = Room::new();
        let env = env.iter().map(|(name, value)| (name, value));
        env.chain(labels).chain(&self.args).try_for_each(|(name, value)| room.take(name, value))?;
        if volumes.len() > MAX_VOLUMES {
            return Err(format!("more than {MAX_VOLUMES} volumes"));
        }
        Ok(())
    }

    fn lookup(&self, name: &str) -> Option<String> {
        let of_env = self.config.env.iter().find(|(own, _)| own == name).map(|(_, value)| value);
        let proxy = || self.plan.given.get(name).filter(|_| is_proxy(name));
        of_env.or_else(|| self.args.get(name)).or_else(proxy).cloned()
    }

    fn expand(&self, text: &str) -> Result<String, String> {
        expand::word(text, self.plan.escape, &|name| self.lookup(name))
    }

    /// A word of a list in JSON: variables are replaced, quotes are letters.
    fn expand_in(&self, text: &str, is_json: bool) -> Result<String, String> {
        if is_json {
            expand::body(text, self.plan.escape, &|name| self.lookup(name))
        } else {
            self.expand(text)
        }
    }

    /// One value that must not be empty.
    fn value(&self, what: &str, text: &str) -> Result<String, String> {
        let value = self.expand(text)?;
        if value.trim().is_empty() {
            return Err(format!("{what} {text} is empty once its variables are replaced"));
        }
        Ok(value)
    }

    fn apply(&mut self, instruction: &Instruction) -> Result<Step, String> {
        match instruction {
            Instruction::Run { command, heredocs, network } => {
                return self.run(command, heredocs, *network).map(Step::Run);
            }
            Instruction::Copy(copy) => return self.copy(copy).map(|copy| Step::Copy(Box::new(copy))),
            Instruction::Workdir(path) => {
                let path = self.absolute(&self.value("WORKDIR", path)?);
                self.config.workdir = Some(path.clone());
                return Ok(Step::Workdir(path));
            }
            Instruction::Env(pairs) => self.env(pairs)?,
            Instruction::Label(pairs) => {
                let mut room = Room::new();
                for (name, value) in pairs {
                    let (name, value) = (self.expand(name)?, self.expand(value)?);
                    room.take(&name, &value)?;
                    self.config.labels.insert(name, value);
                }
            }
            Instruction::Arg(args) => self.declare(args)?,
            Instruction::User(user) => self.config.user = Some(self.value("USER", user)?),
            Instruction::StopSignal(signal) => {
                self.config.stop_signal = Some(self.value("STOPSIGNAL", signal)?);
            }
            Instruction::Entrypoint(command) => {
                self.config.entrypoint = self.argv(command);
                // What the base would have given to its own entry point means nothing to this one.
                if !self.has_own_cmd {
                    self.config.cmd.clear();
                }
            }
            Instruction::Cmd(command) => {
                self.config.cmd = self.argv(command);
                self.has_own_cmd = true;
            }
            Instruction::Shell(shell) => self.config.shell.clone_from(shell),
            Instruction::Expose(ports) => self.expose(ports)?,
            Instruction::Volume(volumes) => {
                for volume in volumes.iter().take(MAX_VOLUMES + 1) {
                    let volume = self.value("VOLUME", volume)?;
                    add(&mut self.config.volumes, volume);
                }
            }
            Instruction::From { .. } | Instruction::Ignored { .. } => {}
        }
        Ok(Step::Config)
    }

    fn env(&mut self, pairs: &[(String, String)]) -> Result<(), String> {
        // All values are those from before the instruction.
        if pairs.len() + self.config.env.len() > MAX_VARIABLES {
            return Err(format!("more than {MAX_VARIABLES} variables"));
        }
        let mut room = Room::new();
        let mut expanded = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let name = self.expand(name)?;
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(format!("ENV takes name=value; {name:?} is not a name"));
            }
            let value = self.expand(value)?;
            room.take(&name, &value)?;
            expanded.push((name, value));
        }
        for (name, value) in expanded {
            match self.config.env.iter_mut().find(|(own, _)| *own == name) {
                Some(known) => known.1 = value,
                None => self.config.env.push((name, value)),
            }
        }
        Ok(())
    }

    fn declare(&mut self, args: &[(String, Option<String>)]) -> Result<(), String> {
        let mut room = Room::new();
        for (name, default) in args {
            let plan = self.plan;
            let value = match (plan.given.get(name), default) {
                (Some(given), _) => Some(given.clone()),
                (None, Some(default)) => Some(self.expand(default)?),
                (None, None) => plan.global_args.get(name).cloned(),
            };
            if let Some(value) = value {
                room.take(name, &value)?;
                self.args.insert(name.clone(), value);
            }
        }
        Ok(())
    }

    fn shell(&self) -> Vec<String> {
        if self.config.shell.is_empty() {
            return vec!["/bin/sh".to_owned(), "-c".to_owned()];
        }
        self.config.shell.clone()
    }

    fn argv(&self, command: &Command) -> Vec<String> {
        match command {
            Command::Exec(argv) => argv.clone(),
            Command::Shell(text) => {
                let mut argv = self.shell();
                argv.push(text.clone());
                argv
            }
        }
    }

    fn run(&self, command: &Command, heredocs: &[Heredoc], network: Network) -> Result<RunStep, String> {
        let command = match (command, heredocs) {
            (Command::Shell(text), [only]) if *text == only.opening => {
                if only.content.starts_with("#!") {
                    let why = "a here-document with #! is not supported";
                    return Err(format!("{why}; write the script with COPY <<EOF, and run it"));
                }
                self.argv(&Command::Shell(only.content.clone()))
            }
            (Command::Shell(text), heredocs) => {
                let mut script = text.clone();
                for heredoc in heredocs {
                    // The shell reads them as it does in any script.
                    script = format!("{script}\n{}{}", heredoc.content, heredoc.name);
                }
                self.argv(&Command::Shell(script))
            }
            (exec, _) => self.argv(exec),
        };
        let mut env = self.config.env.clone();
        let is_new = |name: &str, env: &[(String, String)]| !env.iter().any(|(own, _)| own == name);
        for (name, value) in &self.args {
            if is_new(name, &env) {
                env.push((name.clone(), value.clone()));
            }
        }
        let given = self.plan.given.iter().filter(|(name, _)| is_proxy(name) && is_new(name, &env));
        let proxies = given.map(|(name, value)| (name.clone(), value.clone())).collect();
        let workdir = self.config.workdir.clone().unwrap_or_else(|| "/".to_owned());
        Ok(RunStep { command, env, proxies, user: self.config.user.clone(), workdir, network })
    }

    fn copy(&self, copy: &Copy) -> Result<CopyStep, String> {
        let keyword = if copy.kind == CopyKind::Add { "ADD" } else { "COPY" };
        let from = copy.from.as_deref().map(|from| self.value("--from", from)).transpose()?;
        let mut room = Room::new();
        let mut sources = Vec::with_capacity(copy.sources.len());
        for source in &copy.sources {
            let source = self.expand_in(source, copy.is_json)?;
            room.take("", &source)?;
            if source.is_empty() {
                return Err(format!("a source of {keyword} is empty once its variables are replaced"));
            }
            if is_remote(&source) {
                return Err(format!("{keyword} of {source} is not supported: sandboxes have no network"));
            }
            sources.push(source);
        }
        let files = copy.heredocs.iter().map(|heredoc| {
            let content = if heredoc.expands {
                expand::body(&heredoc.content, self.plan.escape, &|name| self.lookup(name))?
            } else {
                heredoc.content.clone()
            };
            room.take(&heredoc.name, &content)?;
            Ok((heredoc.name.clone(), content))
        });
        let files = files.collect::<Result<Vec<_>, String>>()?;
        let to = self.expand_in(&copy.to, copy.is_json)?;
        if to.is_empty() {
            return Err(format!("the destination of {keyword} is empty once its variables are replaced"));
        }
        let is_directory = to.ends_with('/') || to.ends_with("/.") || to == ".";
        let mut absolute = self.absolute(&to);
        if is_directory && absolute != "/" {
            absolute.push('/');
        }
        if sources.len() + files.len() > 1 && !is_directory {
            return Err(format!(
                "{keyword} of several sources needs a destination that ends with /, not {to}"
            ));
        }
        Ok(CopyStep {
            from: from.map(|from| self.plan.source(self.index, &from)),
            sources,
            files,
            to: absolute,
            chown: copy.chown.as_deref().map(|chown| self.value("--chown", chown)).transpose()?,
            chmod: copy.chmod.as_deref().map(|chmod| self.mode(chmod)).transpose()?,
            unpack: copy.kind == CopyKind::Add,
        })
    }

    fn mode(&self, text: &str) -> Result<u32, String> {
        let text = self.expand(text)?;
        let bits = u32::from_str_radix(&text, 8).ok().filter(|bits| *bits <= 0o7777);
        bits.ok_or_else(|| format!("--chmod takes permission bits such as 644, not {text:?}"))
    }

    /// Relative to the working directory, without `.`, `..` and needless slashes.
    fn absolute(&self, path: &str) -> String {
        let mut parts: Vec<&str> = Vec::new();
        let base = if path.starts_with('/') { "" } else { self.config.workdir.as_deref().unwrap_or("") };
        for part in base.split('/').chain(path.split('/')) {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }

    fn expose(&mut self, ports: &[String]) -> Result<(), String> {
        let mut n_ports = self.config.ports.len();
        for word in ports {
            let expanded = self.expand(word)?;
            for text in expanded.split_whitespace() {
                let refuse = || format!("EXPOSE takes a port such as 80, 53/udp or 8000-8010, not {text:?}");
                let (range, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
                let protocol = protocol.to_ascii_lowercase();
                if !matches!(protocol.as_str(), "tcp" | "udp" | "sctp") {
                    return Err(refuse());
                }
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let number = |text: &str| text.parse::<u16>().map(u32::from).map_err(|_bad| refuse());
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(refuse());
                }
                n_ports += (last - first + 1) as usize;
                if n_ports > MAX_PORTS {
                    return Err(format!("more than {MAX_PORTS} ports"));
                }
                for port in first..=last {
                    add(&mut self.config.ports, format!("{port}/{protocol}"));
                }
            }
        }
        Ok(())
    }
}

fn add(list: &mut Vec<String>, item: String) {
    if !list.contains(&item) {
        list.push(item);
    }
}
