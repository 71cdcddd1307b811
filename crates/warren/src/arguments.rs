//! Arguments that several commands share: durations, variables, and the options of new sandboxes and execs.

pub(crate) mod env_file;
mod ground;
mod inside;
mod network;

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use clap::Args;
use jiff::Timestamp;
use sandbox::{
    BackendKind, ByteSize, CpuCount, Label, Lifetime, Limits, Namespace, OnExpiry, RequestId, SandboxName,
    SandboxSpec,
};

pub(crate) use self::env_file::Variables;
use self::{ground::GroundArgs, inside::InsideArgs, network::NetworkArgs};
use crate::error::CommandResult;

/// Reads `90`, `90s`, `500ms`, `10m`, `1h30m`, `2d`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || {
        let shown: String = text.chars().take(32).collect();
        format!("{shown:?} is not a duration: write 90s, 500ms, 10m, 1h30m or 2d")
    };
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let number: u64 = number.parse().map_err(|_not_a_number| invalid())?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(invalid()),
        };
        let part = number.checked_mul(millis).map(Duration::from_millis).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = tail;
    }
    if text.is_empty() { Err(invalid()) } else { Ok(total) }
}

/// A whole number; the parser's own words for others are those of a programmer.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_other| format!("{text:?} is not a whole number that fits"))
}

/// A time, or a span before now.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let span = duration(text).map_err(|_neither| {
        format!("{text:?} is neither a span such as 10m nor a time such as 2026-01-31T12:00:00Z")
    })?;
    Timestamp::now().checked_sub(span).map_err(|_out_of_range| format!("{text:?} is too long ago"))
}

/// A size. A small one without a unit is hardly meant in bytes: other tools count in megabytes.
pub(crate) fn size(text: &str) -> Result<ByteSize, String> {
    const LEAST: u64 = 64 * 1024;
    match text.parse::<u64>() {
        Ok(bytes @ 1..LEAST) => Err(format!("{bytes} is a number of bytes; did you mean {bytes}m?")),
        _ => text.parse().map_err(|error: sandbox::InvalidSize| error.to_string()),
    }
}

/// A host name, which is written as the name of a sandbox is.
fn hostname(text: &str) -> Result<SandboxName, String> {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(64).collect();
    text.parse().map_err(|_other| {
        format!(
            "{shown:?} is not a host name: it has at most 63 letters, digits, '-', '_' and '.', and starts with a \
             letter or digit"
        )
    })
}

/// `KEY=VALUE`, or `KEY` alone to take its value from our own environment; nothing if it is not set there, as in
/// Docker.
pub(crate) fn variable(text: &str) -> Result<Variables, String> {
    match text.split_once('=') {
        Some(("", _)) | None if text.is_empty() || text.starts_with('=') => {
            Err("a variable needs a name: write KEY=VALUE".to_owned())
        }
        Some((key, value)) => Ok(Variables(vec![(key.to_owned(), value.to_owned())])),
        None => Ok(Variables(env_file::ours(text).into_iter().collect())),
    }
}

/// Options of a new sandbox.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    #[command(flatten)]
    pub(crate) plain: PlainArgs,
    #[command(flatten)]
    ground: GroundArgs,
    #[command(flatten)]
    inside: InsideArgs,
    #[command(flatten)]
    network: NetworkArgs,
}

/// Name, limits and lifetime. A struct of its own because of clap: an argument can conflict only with a group that is a
/// struct with no other struct flattened into it.
#[derive(Debug, Args)]
pub(crate) struct PlainArgs {
    /// Name of the sandbox [default: generated]
    #[arg(long)]
    pub(crate) name: Option<SandboxName>,
    /// Back end that runs it [default: the best that this host supports]
    #[arg(long)]
    backend: Option<BackendKind>,
    /// Memory limit, such as 512m or 2g [default: 1g]
    #[arg(long, short = 'm', value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// Swap in addition to memory [default: 0]
    #[arg(long, value_name = "SIZE")]
    swap: Option<ByteSize>,
    /// Number of CPUs; may be a fraction, such as 0.5 [default: 1]
    #[arg(long, value_name = "N")]
    cpus: Option<CpuCount>,
    /// Maximum number of processes and threads [default: 512]
    #[arg(long, value_name = "N", alias = "pids-limit", value_parser = number::<u32>)]
    pids: Option<u32>,
    /// Maximum size of the files it writes [default: 10g]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    disk: Option<ByteSize>,
    /// Maximum number of open files per process [default: 4096]
    #[arg(long, value_name = "N", value_parser = number::<u32>)]
    open_files: Option<u32>,
    /// Size of /tmp, which is held in memory [default: 256m]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    tmp: Option<ByteSize>,
    /// Size of /dev/shm, which is held in memory [default: 64m]
    #[arg(long, value_name = "SIZE", alias = "shm-size", value_parser = size)]
    shm: Option<ByteSize>,
    /// Environment variable for every command; KEY alone takes its value from here, if it is set
    #[arg(long, short = 'e', value_name = "KEY=VALUE", value_parser = variable)]
    env: Vec<Variables>,
    /// File of environment variables: on each line NAME=value, or NAME for its value here; --env wins over it
    #[arg(long = "env-file", value_name = "FILE", value_parser = env_file::read)]
    env_files: Vec<Variables>,
    /// Working directory for its commands
    #[arg(long = "cwd", short = 'w', value_name = "DIR", visible_alias = "workdir")]
    cwd: Option<String>,
    /// User for its commands: name, uid or uid:gid
    #[arg(long, short = 'u')]
    user: Option<String>,
    /// Host name inside [default: the sandbox's name]
    #[arg(long, value_parser = hostname)]
    hostname: Option<SandboxName>,
    /// Label, for filtering
    #[arg(long = "label", short = 'l', value_name = "KEY=VALUE")]
    labels: Vec<Label>,
    /// Maximum lifetime from its start, such as 1h
    #[arg(long, value_name = "SPAN", value_parser = duration)]
    ttl: Option<Duration>,
    /// Maximum idle time
    #[arg(long, value_name = "SPAN", value_parser = duration)]
    pub(crate) idle: Option<Duration>,
    /// Remove it when it expires, instead of stopping it
    #[arg(long)]
    remove_on_expiry: bool,
    /// Idempotency key: the same id returns the first sandbox again
    #[arg(long, value_name = "ID", visible_alias = "requestId")]
    pub(crate) request_id: Option<RequestId>,
}

impl SandboxArgs {
    /// The value of --init.
    pub(crate) fn init(&self) -> Option<&str> {
        self.inside.init.as_deref()
    }

    pub(crate) fn spec(&self, namespace: Namespace) -> CommandResult<SandboxSpec> {
        let plain = &self.plain;
        let mut spec = SandboxSpec {
            name: plain.name.clone(),
            namespace,
            backend: plain.backend,
            limits: Limits {
                memory: plain.memory,
                swap: plain.swap,
                cpus: plain.cpus,
                pids: plain.pids,
                open_files: plain.open_files,
                disk: plain.disk,
                tmp: plain.tmp,
                shm: plain.shm,
            },
            env: environment(&plain.env_files, &plain.env),
            cwd: plain.cwd.clone(),
            user: plain.user.clone(),
            hostname: plain.hostname.clone(),
            labels: plain.labels.iter().map(|label| (label.key.clone(), label.value.clone())).collect(),
            lifetime: Lifetime {
                ttl: plain.ttl,
                idle: plain.idle,
                on_expiry: if plain.remove_on_expiry { OnExpiry::Remove } else { OnExpiry::Stop },
            },
            request_id: plain.request_id.clone(),
            network: self.network.spec(),
            secrets: self.network.secrets.clone(),
            ..SandboxSpec::default()
        };
        self.ground.fill(&mut spec)?;
        self.inside.fill(&mut spec)?;
        Ok(spec)
    }
}

/// How a command is attached to this terminal.
#[derive(Debug, Clone, Args)]
pub(crate) struct AttachArgs {
    /// Pass stdin to the command
    #[arg(long, short = 'i')]
    pub(crate) interactive: bool,
    /// Give the command a terminal
    #[arg(long, short = 't')]
    pub(crate) tty: bool,
    /// Start the command and return at once
    #[arg(long, short = 'd')]
    pub(crate) detach: bool,
    /// Kill the command after this long; the exit code is then 124
    #[arg(long, value_name = "SPAN", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

/// Variables by name; the last one wins if a name is given twice, and those of files lose.
pub(crate) fn environment(files: &[Variables], pairs: &[Variables]) -> BTreeMap<String, String> {
    files.iter().chain(pairs).flat_map(|some| &some.0).cloned().collect()
}

/// The program and its arguments, which must be text.
pub(crate) fn command(words: &[String]) -> CommandResult<Vec<String>> {
    let spec = sandbox::ExecSpec::argv(words.iter().cloned());
    spec.check()?;
    Ok(spec.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Help states the defaults of `sandbox::plan`.
    #[test]
    fn help_shows_the_defaults() {
        let command = PlainArgs::augment_args(clap::Command::new("run"));
        let limits = sandbox::Defaults::default().limits;
        let gib = |size: ByteSize| format!("{}g", size.bytes() >> 30);
        let mib = |size: ByteSize| format!("{}m", size.bytes() >> 20);
        for (flag, default) in [
            ("memory", gib(limits.memory)),
            ("swap", limits.swap.bytes().to_string()),
            ("cpus", limits.cpus.to_string()),
            ("pids", limits.pids.to_string()),
            ("disk", gib(limits.disk)),
            ("open_files", limits.open_files.to_string()),
            ("tmp", mib(limits.tmp)),
            ("shm", mib(limits.shm)),
        ] {
            let argument = command.get_arguments().find(|argument| argument.get_id() == flag).unwrap();
            let help = argument.get_help().unwrap().to_string();
            assert!(help.ends_with(&format!("[default: {default}]")), "{flag}: {help}");
        }
    }

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, millis) in [
            ("90", 90_000),
            ("90s", 90_000),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("0", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text:?}");
        }
        for text in ["", "-1", "s", "5x", "1.5h", "10 m", "99999999999999999999", "99999999999999999d"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_size_without_a_unit_is_hardly_meant_in_bytes() {
        assert_eq!(size("512"), Err("512 is a number of bytes; did you mean 512m?".to_owned()));
        assert_eq!(size("512m"), Ok(ByteSize::mib(512)));
        assert_eq!((size("0"), size("536870912")), (Ok(ByteSize(0)), Ok(ByteSize::mib(512))));
        assert!(hostname("a b").unwrap_err().contains("not a host name"));
    }

    #[test]
    fn what_is_no_number_is_said_in_plain_words() {
        assert_eq!(number("12"), Ok(12_u32));
        for text in ["x", "-1", "1.5", "99999999999"] {
            assert_eq!(number::<u32>(text), Err(format!("{text:?} is not a whole number that fits")));
        }
    }

    #[test]
    fn a_variable_has_a_name() {
        let one = |key: &str, value: &str| Ok(Variables(vec![(key.to_owned(), value.to_owned())]));
        assert_eq!((variable("A=b=c"), variable("A=")), (one("A", "b=c"), one("A", "")));
        assert!(variable("=x").is_err() && variable("").is_err());
        assert_eq!(variable("WARREN_SURELY_NOT_SET"), Ok(Variables(Vec::new())));
    }
}
