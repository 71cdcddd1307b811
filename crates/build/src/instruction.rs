//! One instruction: what it says, before variables are known.

use crate::{
    error::{Error, Result},
    lines::Line,
    words,
};

/// `<<NAME`, with the lines up to the one that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heredoc {
    pub name: String,
    pub content: String,
    /// Whether variables in it are replaced: not when the name was quoted.
    pub expands: bool,
    pub(crate) strips_tabs: bool,
    /// As written: `3<<-"EOF"`.
    pub(crate) opening: String,
}

/// A command in one of its two forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Program and arguments.
    Exec(Vec<String>),
    /// For the stage's shell.
    Shell(String),
}

/// The network of a `RUN` command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// As the build says.
    #[default]
    Default,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    Copy,
    /// Unpacks archives.
    Add,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    pub kind: CopyKind,
    pub from: Option<String>,
    pub chown: Option<String>,
    pub chmod: Option<String>,
    /// Without here-documents, which are files of their own.
    pub sources: Vec<String>,
    pub heredocs: Vec<Heredoc>,
    pub to: String,
    /// Words of a list in JSON have no quotes of ours to take off.
    pub is_json: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instruction {
    From {
        image: String,
        platform: Option<String>,
        name: Option<String>,
    },
    Run {
        command: Command,
        heredocs: Vec<Heredoc>,
        network: Network,
    },
    Copy(Box<Copy>),
    Env(Vec<(String, String)>),
    /// Name, and the value where there is one.
    Arg(Vec<(String, Option<String>)>),
    Label(Vec<(String, String)>),
    Workdir(String),
    User(String),
    Entrypoint(Command),
    Cmd(Command),
    Expose(Vec<String>),
    Volume(Vec<String>),
    StopSignal(String),
    Shell(Vec<String>),
    /// Left out, and why.
    Ignored {
        warning: String,
    },
}

/// Known keywords, for those who misspell one.
const KEYWORDS: [&str; 18] = [
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "ONBUILD",
    "RUN",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
];

pub(crate) fn parse(line: &Line, escape: char) -> Result<Instruction> {
    let fail = |message: String| Err(Error::new(line.number, message));
    let keyword = line.keyword.as_str();
    if !KEYWORDS.contains(&keyword) {
        let shown: String = keyword.chars().take(32).collect();
        return fail(format!("unknown instruction {shown}; expected one of {}", KEYWORDS.join(", ")));
    }
    if line.rest.is_empty() {
        return fail(format!("{keyword} needs something after it; expected {}", expected(keyword)));
    }
    let (flags, rest) = match keyword {
        "FROM" | "RUN" | "COPY" | "ADD" => words::flags(&line.rest),
        _ => (Vec::new(), line.rest.as_str()),
    };
    let reading = Reading { line, keyword, escape, flags, rest };
    reading.read()
}

/// Says what a keyword takes.
fn expected(keyword: &str) -> &'static str {
    match keyword {
        "FROM" => "FROM image [AS name]",
        "COPY" | "ADD" => "sources and a destination",
        "ENV" | "LABEL" => "name=value",
        "ARG" => "name or name=value",
        "SHELL" => "a list in JSON such as [\"/bin/sh\", \"-c\"]",
        "RUN" | "CMD" | "ENTRYPOINT" => "a command",
        "EXPOSE" => "a port such as 80 or 53/udp",
        _ => "one value",
    }
}

struct Reading<'a> {
    line: &'a Line,
    keyword: &'a str,
    escape: char,
    flags: Vec<(String, Option<String>)>,
    rest: &'a str,
}

impl Reading<'_> {
    fn error(&self, message: impl Into<String>) -> Error {
        Error::new(self.line.number, message)
    }

    fn misfit(&self) -> Error {
        self.error(format!("{} takes {}", self.keyword, expected(self.keyword)))
    }

    fn read(self) -> Result<Instruction> {
        Ok(match self.keyword {
            "FROM" => self.from()?,
            "RUN" => self.run()?,
            "COPY" => self.copy(CopyKind::Copy)?,
            "ADD" => self.copy(CopyKind::Add)?,
            "ENV" => Instruction::Env(self.pairs()?),
            "LABEL" => Instruction::Label(self.pairs()?),
            "ARG" => self.arg()?,
            "WORKDIR" => Instruction::Workdir(self.rest.to_owned()),
            "USER" => Instruction::User(self.rest.to_owned()),
            "STOPSIGNAL" => Instruction::StopSignal(self.rest.to_owned()),
            "ENTRYPOINT" => Instruction::Entrypoint(command(self.rest)),
            "CMD" => Instruction::Cmd(command(self.rest)),
            "EXPOSE" => Instruction::Expose(words::split(self.rest, self.escape)),
            "VOLUME" => Instruction::Volume(self.list()),
            "SHELL" => match words::json_list(self.rest) {
                Some(shell) if !shell.is_empty() => Instruction::Shell(shell),
                _ => return Err(self.misfit()),
            },
            keyword => {
                let why = match keyword {
                    "MAINTAINER" => "is out of use; write LABEL org.opencontainers.image.authors=…",
                    "HEALTHCHECK" => "is left out: sandboxes have no health checks",
                    _ => "is left out: images here have no triggers",
                };
                Instruction::Ignored { warning: format!("line {}: {keyword} {why}", self.line.number) }
            }
        })
    }

    fn list(&self) -> Vec<String> {
        words::json_list(self.rest).unwrap_or_else(|| words::split(self.rest, self.escape))
    }

    /// The value of a flag that takes one.
    fn value(&self, name: &str, value: &Option<String>) -> Result<String> {
        match value {
            Some(value) if !value.is_empty() => Ok(value.clone()),
            _ => Err(self.error(format!("{} --{name} takes a value: --{name}=…", self.keyword))),
        }
    }

    fn unsupported(&self, flag: &str, known: &str) -> Error {
        let shown: String = flag.chars().take(32).collect();
        self.error(format!("{} --{shown} is not supported; expected {known}", self.keyword))
    }

    fn from(self) -> Result<Instruction> {
        let mut platform = None;
        for (name, value) in &self.flags {
            match name.as_str() {
                "platform" => platform = Some(self.value(name, value)?),
                other => return Err(self.unsupported(other, "--platform")),
            }
        }
        let words = words::split(self.rest, self.escape);
        let (image, name) = match &words[..] {
            [image] => (image.clone(), None),
            [image, word, name] if word.eq_ignore_ascii_case("as") => {
                (image.clone(), Some(self.stage_name(name)?))
            }
            _ => return Err(self.misfit()),
        };
        Ok(Instruction::From { image, platform, name })
    }

    fn stage_name(&self, name: &str) -> Result<String> {
        let name = name.to_ascii_lowercase();
        let begins_well = name.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            let message =
                format!("{name:?} cannot name a stage; expected a letter, then letters, digits, - _ or .");
            return Err(self.error(message));
        }
        Ok(name)
    }

    fn run(self) -> Result<Instruction> {
        let mut network = Network::Default;
        for (name, value) in &self.flags {
            match (name.as_str(), value.as_deref()) {
                ("network", Some("default")) => network = Network::Default,
                ("network", Some("none")) => network = Network::None,
                ("network", _) => {
                    let why = "what else is reached, the build says as a whole";
                    return Err(self.error(format!("RUN --network takes none or default: {why}")));
                }
                ("security", Some("sandbox")) => {}
                (other, _) => return Err(self.unsupported(other, "a command")),
            }
        }
        if self.rest.is_empty() {
            return Err(self.misfit());
        }
        let command = command(self.rest);
        if command == Command::Exec(Vec::new()) {
            return Err(self.misfit());
        }
        Ok(Instruction::Run { command, heredocs: self.line.heredocs.clone(), network })
    }

    fn copy(self, kind: CopyKind) -> Result<Instruction> {
        let (mut from, mut chown, mut chmod) = (None, None, None);
        for (name, value) in &self.flags {
            match name.as_str() {
                "from" if kind == CopyKind::Copy => from = Some(self.value(name, value)?),
                "chown" => chown = Some(self.value(name, value)?),
                "chmod" => chmod = Some(self.value(name, value)?),
                // Says only how layers may be joined; the files are the same.
                "link" => {}
                other => {
                    let known = if kind == CopyKind::Copy {
                        "--from, --chown or --chmod"
                    } else {
                        "--chown or --chmod"
                    };
                    return Err(self.unsupported(other, known));
                }
            }
        }
        let json = words::json_list(self.rest);
        let is_json = json.is_some();
        let mut words = json.unwrap_or_else(|| words::split(self.rest, self.escape));
        let Some(to) = words.pop() else { return Err(self.misfit()) };
        words.retain(|word| !self.line.heredocs.iter().any(|heredoc| heredoc.opening == *word));
        if words.is_empty() && self.line.heredocs.is_empty() {
            return Err(self.misfit());
        }
        if let Some(url) = words.iter().find(|word| is_remote(word)) {
            let shown: String = url.chars().take(100).collect();
            let why = "sandboxes have no network; fetch it yourself and put it into the context";
            return Err(self.error(format!("{} of {shown} is not supported: {why}", self.keyword)));
        }
        let heredocs = self.line.heredocs.clone();
        Ok(Instruction::Copy(Box::new(Copy {
            kind,
            from,
            chown,
            chmod,
            sources: words,
            heredocs,
            to,
            is_json,
        })))
    }

    /// `a=b "c d"=e`, or the older `name the rest is the value`.
    fn pairs(&self) -> Result<Vec<(String, String)>> {
        let words = words::split(self.rest, self.escape);
        let is_older = words.first().is_some_and(|word| !word.contains('='));
        if is_older {
            let (name, value) = self.rest.split_once(char::is_whitespace).ok_or_else(|| self.misfit())?;
            return Ok(vec![(name.to_owned(), value.trim_start().to_owned())]);
        }
        let pairs = words.iter().map(|word| match word.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => {
                let shown: String = word.chars().take(64).collect();
                Err(self.error(format!("{} takes name=value, not {shown:?}", self.keyword)))
            }
        });
        pairs.collect()
    }

    fn arg(&self) -> Result<Instruction> {
        let args = words::split(self.rest, self.escape).into_iter().map(|word| {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word.clone(), None),
            };
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if is_name { Ok((name, value)) } else { Err(self.misfit()) }
        });
        Ok(Instruction::Arg(args.collect::<Result<_>>()?))
    }
}

fn command(text: &str) -> Command {
    words::json_list(text).map_or_else(|| Command::Shell(text.to_owned()), Command::Exec)
}

pub(crate) fn is_remote(source: &str) -> bool {
    let source = source.trim_start_matches(['"', '\'']);
    ["http://", "https://", "ftp://", "git@", "git://", "ssh://"]
        .iter()
        .any(|start| source.starts_with(start))
}
