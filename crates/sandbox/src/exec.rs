//! One command run in a sandbox: the request, and how it ended.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{CellSpec, RequestId, base::signal_name, code::MAX_CODE_BYTES, object::only_object};

/// Most variables of one environment. With longer variables, [`MAX_EXEC_BYTES`] is reached first.
pub const MAX_VARIABLES: usize = 4096;
/// How much of a name a message repeats.
const MAX_SHOWN_CHARS: usize = 64;
/// Longest single argument or variable: the kernel's own `MAX_ARG_STRLEN`.
pub const MAX_ARG_BYTES: usize = 128 * 1024;
/// Longest working directory, which is also more than enough for a user: the kernel's longest path.
const MAX_PATH_BYTES: usize = 4095;
/// Arguments and environment together. Below the kernel's usual 2 MiB, so that our refusal comes first and is readable.
pub const MAX_EXEC_BYTES: usize = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExec {
    #[error("the command is empty")]
    Empty,
    #[error("{what} contains a NUL byte")]
    Nul { what: String },
    #[error("{what} has {len} bytes; the limit is {limit}")]
    TooLong { what: String, len: usize, limit: usize },
    #[error("{name:?} is not a valid name for an environment variable")]
    VariableName { name: String },
    #[error("env has {count} variables; the limit is {MAX_VARIABLES}")]
    TooManyVariables { count: usize },
    #[error("{0}")]
    Rlimit(String),
    #[error("the working directory is empty")]
    NoDirectory,
    #[error("a terminal cannot have {rows} rows and {cols} columns")]
    TerminalSize { rows: u16, cols: u16 },
    #[error("the user is empty")]
    NoUser,
    #[error("the time limit must be longer than zero")]
    NoTime,
    #[error("a cell takes code, but no command, stdin or terminal")]
    CellWithCommand,
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(remote = "Self")]
pub struct TerminalSize {
    pub rows: u16,
    pub cols: u16,
}
only_object!(TerminalSize);

/// One of a terminal's modes, by its number in SSH (RFC 4254, section 8): 53 with 0 turns the echo off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalMode {
    pub opcode: u8,
    pub value: u32,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

/// A limit for the processes of one exec, by its `ulimit`/`setrlimit` name in lower case (`nofile`, `cpu`, `core`…).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(remote = "Self")]
pub struct Rlimit {
    /// As in `ulimit`: `nofile`, `cpu`, `core`…
    pub resource: String,
    pub soft: u64,
    pub hard: u64,
}
only_object!(Rlimit);

/// The resources that can be limited.
pub const RLIMIT_RESOURCES: [&str; 16] = [
    "as",
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
];

impl Rlimit {
    /// Refuses limits that no kernel would accept.
    pub fn check(&self) -> crate::Result<()> {
        let Self { resource, soft, hard } = self;
        if !RLIMIT_RESOURCES.contains(&resource.as_str()) {
            let shown: String = resource.chars().take(32).collect();
            return Err(crate::Error::invalid(format!("rlimits: {shown:?} is not a resource"))
                .with_hint(format!("The resources are {}.", RLIMIT_RESOURCES.join(", "))));
        }
        if soft > hard {
            return Err(crate::Error::invalid(format!(
                "rlimits: soft {soft} of {resource} is above hard {hard}"
            ))
            .with_hint("Set a hard limit that is not below the soft one, or omit it."));
        }
        Ok(())
    }
}

/// The request for one exec.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecSpec {
    /// Program and arguments; a program without a slash is looked for in the exec's `PATH`. Left out where `cell` is
    /// given.
    #[serde(default)]
    pub command: Vec<String>,
    /// Added to the sandbox's own environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The sandbox's working directory when absent; a relative path starts there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `name`, `uid`, `name:group` or `uid:gid`; the sandbox's user when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rlimits: Vec<Rlimit>,
    /// If present, the exec gets a terminal of this size, and stderr joins stdout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// Modes of the terminal that differ from the kernel's. Only SSH has clients that state them, so the API does not.
    #[serde(skip)]
    pub terminal_modes: Vec<TerminalMode>,
    /// Whether stdin stays open for writing; otherwise it is empty from the start.
    #[serde(default)]
    pub stdin: bool,
    /// After this long the whole process group is killed and the outcome says `timeLimit`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::spec::millis")]
    #[serde(rename = "timeoutMs")]
    #[schema(value_type = Option<u64>)]
    pub timeout: Option<Duration>,
    /// The same id again returns the first exec instead of starting a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// Code in place of a command; `command` is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellSpec>,
    /// Whether to report the files below the working directory that the command created or changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub track_files: bool,
}

impl ExecSpec {
    pub fn argv<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        Self { command: command.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    pub fn shell(script: impl Into<String>) -> Self {
        Self::argv(["/bin/sh".to_owned(), "-c".to_owned(), script.into()])
    }

    /// Refuses requests that no kernel would accept, with a message that names the offending part.
    pub fn check(&self) -> Result<(), InvalidExec> {
        match &self.cell {
            Some(cell) => self.check_cell(cell)?,
            None if self.command.first().is_none_or(String::is_empty) => return Err(InvalidExec::Empty),
            None => {}
        }
        let mut total = 0;
        for (position, argument) in self.command.iter().enumerate() {
            let what = if position == 0 { "the program".to_owned() } else { format!("argument {position}") };
            total += check_text(what, argument)?;
        }
        total += check_env(&self.env)?;
        if total > MAX_EXEC_BYTES {
            let what = "the command with its environment".to_owned();
            return Err(InvalidExec::TooLong { what, len: total, limit: MAX_EXEC_BYTES });
        }
        check_rlimits(&self.rlimits).map_err(|error| InvalidExec::Rlimit(error.to_string()))?;
        if let Some(cwd) = &self.cwd {
            check_short_text("the working directory", cwd)?;
            if cwd.is_empty() {
                return Err(InvalidExec::NoDirectory);
            }
        }
        if let Some(user) = &self.user {
            check_short_text("the user", user)?;
            if user.is_empty() {
                return Err(InvalidExec::NoUser);
            }
        }
        if let Some(TerminalSize { rows, cols }) = self.terminal
            && (rows == 0 || cols == 0)
        {
            return Err(InvalidExec::TerminalSize { rows, cols });
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(InvalidExec::NoTime);
        }
        Ok(())
    }

    fn check_cell(&self, cell: &CellSpec) -> Result<(), InvalidExec> {
        if !self.command.is_empty() || self.stdin || self.terminal.is_some() {
            return Err(InvalidExec::CellWithCommand);
        }
        if let Some(position) = cell.code.bytes().position(|byte| byte == 0) {
            return Err(InvalidExec::Nul { what: format!("the code, at byte {position},") });
        }
        let len = cell.code.len();
        if len > MAX_CODE_BYTES {
            return Err(InvalidExec::TooLong { what: "the code".to_owned(), len, limit: MAX_CODE_BYTES });
        }
        Ok(())
    }
}

fn check_text(what: String, text: &str) -> Result<usize, InvalidExec> {
    if text.contains('\0') {
        return Err(InvalidExec::Nul { what });
    }
    if text.len() >= MAX_ARG_BYTES {
        return Err(InvalidExec::TooLong { what, len: text.len(), limit: MAX_ARG_BYTES - 1 });
    }
    Ok(text.len() + 1)
}

fn check_short_text(what: &str, text: &str) -> Result<(), InvalidExec> {
    check_text(what.to_owned(), text)?;
    if text.len() > MAX_PATH_BYTES {
        let (what, len) = (what.to_owned(), text.len());
        return Err(InvalidExec::TooLong { what, len, limit: MAX_PATH_BYTES });
    }
    Ok(())
}

/// Checks the names, values and number of variables; returns the bytes that they take.
pub(crate) fn check_env(env: &BTreeMap<String, String>) -> Result<usize, InvalidExec> {
    if env.len() > MAX_VARIABLES {
        return Err(InvalidExec::TooManyVariables { count: env.len() });
    }
    let mut total = 0;
    for (name, value) in env {
        let shown: String = name.chars().take(MAX_SHOWN_CHARS).collect();
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(InvalidExec::VariableName { name: shown });
        }
        // The kernel counts name and value as one string.
        let len = name.len() + 1 + value.len();
        if len >= MAX_ARG_BYTES {
            let what = format!("the variable {shown}");
            return Err(InvalidExec::TooLong { what, len, limit: MAX_ARG_BYTES - 1 });
        }
        total += check_text(format!("the variable {shown}"), value)? + name.len() + 1;
    }
    Ok(total)
}

/// At most one limit for each resource makes sense.
pub(crate) fn check_rlimits(rlimits: &[Rlimit]) -> crate::Result<()> {
    let (n, most) = (rlimits.len(), RLIMIT_RESOURCES.len());
    if n > most {
        return Err(crate::Error::invalid(format!("rlimits has {n} entries; the limit is {most}"))
            .with_hint("Give each resource once."));
    }
    rlimits.iter().try_for_each(Rlimit::check)
}

/// The state of an exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecState {
    Starting,
    Running,
    Done,
}

/// The end of a command. No outcome is a failure of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ExecOutcome {
    Exited {
        code: u8,
        /// A process of this exec, but not its first, was killed for lack of memory.
        #[serde(default, rename = "memoryLimitHit")]
        #[schema(required)]
        memory_limit_hit: bool,
    },
    Signaled {
        signal: i32,
    },
    NotStarted {
        reason: NotStarted,
        message: String,
    },
    Killed {
        reason: KillReason,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum NotStarted {
    /// No such program.
    NotFound,
    /// The file exists but cannot be run: a directory, no permission, a foreign format.
    NotExecutable,
    BadWorkingDirectory,
    BadUser,
    /// The sandbox was out of processes, memory or descriptors.
    LimitReached,
    /// The daemon or the sandbox ended after the exec was recorded and before it started.
    Lost,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum KillReason {
    TimeLimit,
    MemoryLimit,
    DiskLimit,
    SandboxStopped,
    Request,
    /// The sandbox ended by itself and its commands with it.
    SandboxLost,
}

impl ExecOutcome {
    pub const fn exited(code: u8) -> Self {
        Self::Exited { code, memory_limit_hit: false }
    }

    pub fn is_success(&self) -> bool {
        matches!(self, Self::Exited { code: 0, .. })
    }

    /// The exit code a shell would show: 126 and 127 if the program could not start, 128+n for signal n.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Exited { code, .. } => *code,
            Self::Signaled { signal } => 128_u8.wrapping_add(u8::try_from(*signal).unwrap_or(0)),
            Self::NotStarted { reason: NotStarted::NotFound, .. } => 127,
            Self::NotStarted { reason: NotStarted::NotExecutable, .. } => 126,
            Self::NotStarted { .. } => 125,
            // Like `timeout(1)`.
            Self::Killed { reason: KillReason::TimeLimit } => 124,
            Self::Killed { .. } => 137,
        }
    }
}

impl fmt::Display for ExecOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code, memory_limit_hit: false } => write!(f, "exited with {code}"),
            Self::Exited { code, memory_limit_hit: true } => {
                write!(f, "exited with {code} after one of its processes ran out of memory")
            }
            Self::Signaled { signal } => match signal_name(*signal) {
                Some(name) => write!(f, "ended by signal {signal} (SIG{name})"),
                None => write!(f, "ended by signal {signal}"),
            },
            Self::NotStarted { message, .. } => write!(f, "did not start: {message}"),
            Self::Killed { reason } => f.write_str(match reason {
                KillReason::TimeLimit => "killed: it timed out",
                KillReason::MemoryLimit => "killed: the sandbox ran out of memory",
                KillReason::DiskLimit => "killed: the sandbox ran out of disk",
                KillReason::SandboxStopped => "killed: the sandbox was stopped",
                KillReason::Request => "killed on request",
                KillReason::SandboxLost => "killed: the sandbox ended",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_told_by_name() {
        let told = |signal| ExecOutcome::Signaled { signal }.to_string();
        assert_eq!(told(25), "ended by signal 25 (SIGXFSZ)");
        assert_eq!(told(40), "ended by signal 40");
    }
}
