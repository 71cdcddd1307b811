//! The arguments of every tool that runs a command, and how they become an [`ExecSpec`].

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use sandbox::{DEFAULT_SHELL, Error, ExecSpec, Rlimit, TerminalSize};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::mcp::{Failure, octets::from_base64};

/// The longest time limit; a longer one is cut to this: a year is as good as none.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The guest counts in these.
const MIN_TIME_LIMIT: Duration = Duration::from_millis(1);

/// The options that all exec tools share.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExecFields {
    /// Sandbox
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) cwd: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    /// Same as cwd
    pub(crate) workdir: Option<String>,
    pub(crate) env: Option<BTreeMap<String, String>>,
    pub(crate) user: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) tty: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    /// Seconds; 0: none
    #[schemars(range(min = 0), extend("x-unlisted" = true))]
    pub(crate) timeout: Option<f64>,
    #[schemars(range(min = 1))]
    pub(crate) timeout_ms: Option<u64>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) rlimits: Option<Vec<RlimitField>>,
    pub(crate) stdin: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) stdin_base64: Option<String>,
    /// Per stream
    #[schemars(range(min = 1))]
    pub(crate) max_bytes: Option<u64>,
    pub(crate) start_if_stopped: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    /// Do not stop what startIfStopped started
    pub(crate) keep_running: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) treat_non_zero_as_error: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    /// Default true: return files made or changed in cwd
    pub(crate) track_files: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    /// The same again returns the same exec
    pub(crate) request_id: Option<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct RlimitField {
    pub(crate) resource: String,
    pub(crate) soft: u64,
    /// Same as soft when absent.
    pub(crate) hard: Option<u64>,
}

/// A limit as it was given, checked, with its resource in lower case and without `RLIMIT_`.
pub(crate) fn rlimit(resource: &str, soft: u64, hard: Option<u64>) -> Result<Rlimit, Failure> {
    let plain = resource.to_lowercase();
    let resource = plain.strip_prefix("rlimit_").unwrap_or(&plain).to_owned();
    let limit = Rlimit { resource, soft, hard: hard.unwrap_or(soft) };
    limit.check()?;
    Ok(limit)
}

/// The reader of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Nothing: it is the program.
    Program,
    Shell(String),
    /// The shell of the sandbox, which is asked when the command is launched.
    DefaultShell,
}

impl Reader {
    /// A command with blanks and without arguments is a line for a shell. A program with a blank in its name is called
    /// with `args`, which may be empty.
    pub(crate) fn of(command: &str, args: Option<&Vec<String>>) -> Self {
        match args {
            None if command.contains(char::is_whitespace) => Self::DefaultShell,
            _ => Self::Program,
        }
    }

    fn argv(&self, command: String, args: Vec<String>) -> Vec<String> {
        let shell = match self {
            Self::Program => None,
            Self::Shell(shell) => Some(shell.clone()),
            Self::DefaultShell => Some(DEFAULT_SHELL.to_owned()),
        };
        let through_shell = shell.map(|shell| [shell, "-c".to_owned()]);
        through_shell.into_iter().flatten().chain([command]).chain(args).collect()
    }
}

/// A command ready to be launched, and how the caller wants to be answered.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) sandbox: String,
    pub(crate) spec: ExecSpec,
    /// The program is to be replaced by the sandbox's shell.
    pub(crate) takes_default_shell: bool,
    /// Written once it runs. `None`: nothing was given.
    pub(crate) stdin: Option<Bytes>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) start_if_stopped: bool,
    pub(crate) keep_running: bool,
    pub(crate) fail_on_non_zero: bool,
}

impl ExecFields {
    /// `default_limit` is for callers who name no time limit.
    pub(crate) fn prepare(
        self,
        args: Vec<String>,
        reader: &Reader,
        default_limit: Option<Duration>,
    ) -> Result<Prepared, Failure> {
        let timeout = time_limit(self.timeout, self.timeout_ms, default_limit)?;
        let stdin = bytes_of("stdin", self.stdin, "stdinBase64", self.stdin_base64)?;
        let request_id = self.request_id.map(|id| id.parse()).transpose().map_err(Error::from)?;
        let rlimits = self.rlimits.iter().flatten();
        let rlimits = rlimits.map(|limit| rlimit(&limit.resource, limit.soft, limit.hard));
        let spec = ExecSpec {
            command: reader.argv(self.command, args),
            env: self.env.unwrap_or_default(),
            cwd: self.cwd.or(self.workdir),
            user: self.user,
            rlimits: rlimits.collect::<Result<_, _>>()?,
            terminal: self.tty.unwrap_or(false).then(TerminalSize::default),
            terminal_modes: Vec::new(),
            stdin: stdin.is_some(),
            timeout,
            request_id,
            cell: None,
            track_files: self.track_files.unwrap_or(true),
        };
        Ok(Prepared {
            sandbox: self.name,
            spec,
            takes_default_shell: *reader == Reader::DefaultShell,
            stdin,
            max_bytes: self.max_bytes,
            start_if_stopped: self.start_if_stopped.unwrap_or(false),
            keep_running: self.keep_running.unwrap_or(false),
            fail_on_non_zero: self.treat_non_zero_as_error.unwrap_or(false),
        })
    }
}

/// `timeoutMs` wins over `timeout`, which is in seconds and means none when 0.
pub(crate) fn time_limit(
    seconds: Option<f64>,
    millis: Option<u64>,
    default: Option<Duration>,
) -> Result<Option<Duration>, Failure> {
    let limit = match (millis, seconds) {
        (Some(millis), _) => Some(Duration::from_millis(millis)),
        (None, Some(0.0)) => None,
        (None, Some(seconds)) => Some(Duration::try_from_secs_f64(seconds).map_err(|error| {
            Failure::invalid(format!("timeout: {seconds} seconds is not a valid time limit: {error}"))
                .with_hint("Give seconds, or milliseconds as timeoutMs; 0 means none.")
        })?),
        (None, None) => default,
    };
    Ok(limit.map(|limit| limit.clamp(MIN_TIME_LIMIT, MAX_TIME_LIMIT)))
}

/// Bytes given as text or as base64; base64 wins unless it is empty.
pub(crate) fn bytes_of(
    text_name: &str,
    text: Option<String>,
    base64_name: &str,
    base64: Option<String>,
) -> Result<Option<Bytes>, Failure> {
    match (text, base64.filter(|base64| !base64.is_empty())) {
        (_, Some(base64)) => from_base64(&base64).map(|bytes| Some(bytes.into())).map_err(|error| {
            Failure::invalid(format!("{base64_name} is not base64: {error}"))
                .with_hint(format!("Encode the bytes again, or give text as {text_name}."))
        }),
        (text, None) => Ok(text.map(Bytes::from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_come_in_two_units_and_zero_is_none() {
        let default = Some(Duration::from_secs(120));
        let check = |seconds, millis, expected| {
            assert_eq!(time_limit(seconds, millis, default).unwrap(), expected, "{seconds:?} {millis:?}");
        };
        check(None, None, default);
        check(Some(0.0), None, None);
        check(Some(1.5), None, Some(Duration::from_millis(1500)));
        check(Some(1.5), Some(20), Some(Duration::from_millis(20)));
        check(Some(0.000_000_1), None, Some(MIN_TIME_LIMIT));
        check(Some(1e12), None, Some(MAX_TIME_LIMIT));
        assert_eq!(time_limit(Some(1e300), None, None).unwrap_err().code(), "invalid_request");
        assert_eq!(time_limit(Some(-1.0), None, None).unwrap_err().code(), "invalid_request");
    }

    #[test]
    fn limits_are_of_known_resources() {
        let limit = rlimit("RLIMIT_NOFILE", 5, None).unwrap();
        assert_eq!((limit.resource.as_str(), limit.soft, limit.hard), ("nofile", 5, 5));
        let failure = rlimit("files", 5, None).unwrap_err();
        assert_eq!(failure.code(), "invalid_request");
        assert!(failure.worded(crate::mcp::words::hint).hint.unwrap().contains("nofile"));
        assert!(rlimit("cpu", 6, Some(5)).unwrap_err().error().to_string().contains("above hard 5"));
    }

    #[test]
    fn a_command_with_blanks_and_no_arguments_is_a_line() {
        for (command, args, expected) in [
            ("ls", None, Reader::Program),
            ("ls -la | wc -l", None, Reader::DefaultShell),
            ("/opt/my program", Some(vec![]), Reader::Program),
            ("ls", Some(vec!["-la".to_owned()]), Reader::Program),
        ] {
            assert_eq!(Reader::of(command, args.as_ref()), expected, "{command}");
        }
        assert_eq!(Reader::DefaultShell.argv("ls -la".into(), vec![]), ["sh", "-c", "ls -la"]);
        assert_eq!(Reader::Program.argv("ls".into(), vec!["-la".into()]), ["ls", "-la"]);
    }

    #[test]
    fn base64_wins_over_text_and_must_be_right() {
        let bytes = |text: Option<&str>, base64: Option<&str>| {
            bytes_of("stdin", text.map(str::to_owned), "stdinBase64", base64.map(str::to_owned))
        };
        assert_eq!(bytes(None, None).unwrap(), None);
        assert_eq!(bytes(Some(""), None).unwrap().unwrap(), "");
        assert_eq!(bytes(Some("a"), Some("Yg==")).unwrap().unwrap(), "b");
        assert_eq!(bytes(Some("a"), Some("")).unwrap().unwrap(), "a");
        assert_eq!(bytes(None, Some("Y\ng")).unwrap().unwrap(), "b");
        assert!(bytes(None, Some("?")).unwrap_err().error().to_string().contains("stdinBase64"));
    }
}
